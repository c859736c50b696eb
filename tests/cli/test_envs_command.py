"""`isobatch envs`: what there is, found without making any of it, and quickly."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from needs import needs_envpool

from isobatch.cli.main import main
from isobatch.envs import catalog
from isobatch.envs.registry import make_env

WITHOUT_JAX = """
import sys
from isobatch.cli.main import main
code = main(sys.argv[1:])
sys.exit("loaded jax" if "jax" in sys.modules else code)
"""


def test_facts_are_those_of_the_environments() -> None:
    """What the table says without importing gymnax is what gymnax and the probes are."""
    import gymnax

    from isobatch.envs.probes import PROBES

    assert list(catalog.PROBES) == list(PROBES)
    assert list(catalog.GYMNAX) == [env_id for env_id in gymnax.registered_envs if env_id not in catalog.BROKEN]
    for env_id, facts in catalog.IN_JAX.items():
        env = make_env(env_id)
        assert facts == (env.obs_shape, str(env.action_space), env.max_steps), env_id


def test_json_has_every_backend(capsys: pytest.CaptureFixture) -> None:
    assert main(["envs", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    envs = {env["id"]: env for env in answer["envs"]}
    assert envs["CartPole-v1"]["action_space"] == "2 actions"
    assert envs["Breakout-MinAtar"]["observation_shape"] == [10, 10, 4]
    assert "MNISTBandit-bsuite" not in envs
    assert "gymnasium/LunarLander-v3" in answer["gymnasium"]


def test_the_listing_is_short_and_words_filter_it(capsys: pytest.CaptureFixture) -> None:
    assert main(["envs"]) == 0
    assert len(capsys.readouterr().out) < 5000
    assert main(["envs", "LUNAR", "gymnasium"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[-2:]] == [
        "gymnasium/LunarLander-v3",
        "gymnasium/LunarLanderContinuous-v3",
    ]
    assert lines[-1].split()[-1] == "1000"
    assert main(["envs", "nothing-like-it"]) == 2
    assert "no environment's id contains 'nothing-like-it'" in capsys.readouterr().err


@needs_envpool
def test_ids_of_envpool_are_kept_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    catalog.envpool_ids.cache_clear()
    ids = catalog.envpool_ids()
    catalog.envpool_ids.cache_clear()
    monkeypatch.setattr(catalog, "import_envpool", None)
    assert catalog.envpool_ids() == ids
    assert "Pong-v5" in ids
    catalog.envpool_ids.cache_clear()


@pytest.mark.parametrize(
    ("words", "code"), [(["envs"], 0), (["train", "--env", "CartPole-v9"], 2), (["train", "--env", ""], 2)]
)
def test_answers_come_without_jax(words: list[str], code: int) -> None:
    catalog.envpool_ids()  # once for this version of EnvPool
    done = subprocess.run([sys.executable, "-c", WITHOUT_JAX, *words], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    if code:
        assert done.stdout == ""  # no header before the complaint
        assert "is unknown" in done.stderr
