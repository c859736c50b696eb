"""rl-zoo3 knows ppo_ewma, and its settings are those of the zoo with an average as old as PPO's policy."""

import importlib.util
from pathlib import Path

import pytest
import yaml

pytest.importorskip("stable_baselines3", reason="the extra sb3 is not installed")

from sb3_models import walks

from isobatch.errors import UsageError
from isobatch.torch import PPOEWMA, register_zoo

ROOT = Path(__file__).parents[2]
OURS = yaml.safe_load((ROOT / "examples" / "ppo_ewma.yml").read_text())


@pytest.mark.parametrize("env", OURS)
def test_settings_are_those_of_the_zoo(env: str) -> None:
    spec = importlib.util.find_spec("rl_zoo3")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("rl_zoo3 is not installed")
    theirs = yaml.safe_load((Path(spec.submodule_search_locations[0]) / "hyperparams" / "ppo.yml").read_text())[env]
    assert OURS[env] == PPOEWMA.from_ppo(theirs)


@pytest.mark.parametrize("env", OURS)
def test_the_constructor_takes_them(env: str) -> None:
    others = ("n_envs", "n_timesteps", "policy", "normalize", "learning_rate", "clip_range")  # for the zoo itself
    settings = {name: value for name, value in OURS[env].items() if name not in others}
    assert PPOEWMA("MlpPolicy", walks(OURS[env]["n_envs"]), device="cpu", **settings).proximal.beta < 1


def test_registration() -> None:
    try:
        from rl_zoo3 import ALGOS
    except ImportError:
        with pytest.raises(UsageError, match="register_zoo needs rl_zoo3"):
            register_zoo()
        return
    register_zoo()
    assert ALGOS["ppo_ewma"] is PPOEWMA
