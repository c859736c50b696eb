"""Published settings: the numbers of their sources, and how they are named on the command line."""

import pytest

import isobatch as ib
from isobatch.cli.main import main
from isobatch.envs.registry import as_played
from isobatch.errors import UsageError
from isobatch.settings.presets import PUBLISHED

GAMES = [name for name in PUBLISHED if name.startswith("procgen")]


@pytest.mark.parametrize("name", GAMES)
def test_the_papers_settings(name):
    """Section 5.1 and appendix B: 256 x 256 in 8 minibatches, so 8192 samples a gradient step; 100M steps.

    The reference's value loss is .5 (V - target)^2: coefficient 1 before half the squared error.
    """
    config = ib.preset(name)
    hypers = config.hypers
    assert (config.geometry.iteration_batch, config.geometry.optimization_batch) == (65_536, 8_192)
    assert abs(config.env_steps - 100_000_000) < 1_100_000
    assert (hypers.learning_rate, hypers.beta1, hypers.beta2) == (5e-4, 0.9, 0.999)
    assert (hypers.gamma, hypers.gae_lambda, hypers.ent_coef, hypers.vf_coef) == (0.999, 0.95, 0.01, 1.0)
    assert (config.encoder, config.channels, config.hidden_sizes) == ("impala", (16, 32, 32), (256,))
    assert (hypers.optimizer_eps, hypers.max_grad_norm) == (1e-8, float("inf"))  # as the reference code
    assert config.normalize_rewards
    assert (config.proximal_policy == "ewma") == name.endswith("-ewma")
    if "ppg" in name:
        assert (config.policy_iterations_per_phase, config.update_epochs, config.value_epochs) == (32, 1, 1)
        assert (config.aux_epochs, config.aux_minibatches, config.arrangement) == (6, 16, "dual")
        assert (config.objective, hypers.kl_coef, hypers.beta_clone, hypers.aux_learning_rate) == ("kl", 1, 1, 5e-4)
    else:
        assert (config.objective, hypers.clip_eps, config.update_epochs, config.arrangement) == (
            "clip", 0.2, 3, "shared",
        )  # fmt: skip


def test_cleanrls_settings_for_atari():
    config = ib.preset("atari-ppo", env="envpool/Pong-v5")
    assert config.env == "envpool/Pong-v5"
    assert config.geometry.iteration_batch == 8 * 128
    assert (config.num_minibatches, config.update_epochs, config.hypers.clip_eps) == (4, 4, 0.1)
    assert (config.encoder, config.channels, config.hidden_sizes) == ("nature", (32, 64, 64), (512,))
    assert config.num_iterations == 9_765  # CleanRL: total_timesteps // batch_size


def test_cleanrls_settings_for_mujoco():
    config = ib.preset("mujoco-ppo")
    assert (config.num_envs, config.num_steps, config.num_minibatches, config.update_epochs) == (1, 2048, 32, 10)
    assert (config.hypers.learning_rate, config.hypers.ent_coef, config.lr_schedule) == (3e-4, 0, "linear")
    assert config.normalize_observations
    assert config.normalize_rewards


def test_purejaxrls_settings_for_minatar():
    config = ib.preset("minatar-ppo", env="SpaceInvaders-MinAtar")
    assert (config.num_envs, config.num_steps, config.num_minibatches, config.update_epochs) == (64, 128, 8, 4)
    assert (config.hypers.learning_rate, config.hypers.ent_coef, config.lr_schedule) == (5e-3, 0.01, "linear")
    assert (config.arrangement, config.encoder) == ("dual", "mlp")
    assert (config.hidden_sizes, config.activation) == ((64, 64), "relu")
    assert config.num_iterations == 1_220  # PureJaxRL: TOTAL_TIMESTEPS // NUM_STEPS // NUM_ENVS


def test_an_evaluation_plays_whole_games_for_their_own_rewards():
    config = ib.preset("atari-ppo", env_kwargs={"episodic_life": True, "reward_clip": True, "stack_num": 2})
    assert as_played(config).to_dict()["env_kwargs"] == {"stack_num": 2}
    other = ib.preset("ppo", "gymnasium/CartPole-v1", env_kwargs={"reward_clip": True})  # somebody's own argument
    assert as_played(other) is other


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--preset", "procgen-pgg"], "procgen-ppg"),
        (["--preset", "nothing-like-it"], "atari-ppo"),
        (["--preset", "mujoco-ppo", "--algo", "ppg"], "cannot go together"),
        (["--preset", "mujoco-ppo", "--resume", "--run-dir", "RUN"], "has begun"),
    ],
)
def test_what_cannot_be_is_said(flags, says, runs, capsys):
    where = [str(runs("CartPole-v1")) if flag == "RUN" else flag for flag in flags]
    assert main(["train", *where]) == 2
    assert says in capsys.readouterr().err


def test_a_preset_by_flag_and_in_a_file(tmp_path, capsys):
    """The same settings, flags over them."""
    file = tmp_path / "settings.yaml"
    file.write_text("preset: procgen-ppo\nenv: envpool/BigfishHard-v0\n")
    answers = []
    for flags in (["--preset", "procgen-ppo", "--env", "envpool/BigfishHard-v0"], ["--config", str(file)]):
        assert main(["rescale", *flags, "--factor", "4", "--json"]) == 0
        answers.append(capsys.readouterr().out)
    assert answers[0] == answers[1]
    assert "BigfishHard" in answers[0]


def test_unknown_names_in_python():
    with pytest.raises(UsageError, match="procgen-ppo"):
        ib.preset("procgen-poo")
