"""Settings that work, in one place: per environment, then per algorithm, then for both, then the user's own.

An environment's preset says how it is best learned; an algorithm is a preset over the choices of `Config`, and what
makes it that algorithm wins over the environment. `preset(algo, env, ...)` merges them in this order. Settings that
others have published stand beside them, by names of their own (`preset("procgen-ppg-ewma")`): they are as published and
not what is best here.
"""

from __future__ import annotations

from typing import NamedTuple

from isobatch.errors import UsageError, unknown_name
from isobatch.settings.config import Config
from isobatch.settings.parsing import SettingsByName, parse_value
from isobatch.settings.searched_presets import IMAGES, SEARCHED

PPG: SettingsByName = dict(
    objective="kl", kl_coef=1.0, update_epochs=1, num_minibatches=8, policy_iterations_per_phase=8, aux_epochs=6
)
ALGORITHMS: dict[str, SettingsByName] = {
    # Schulman 2017, with the advantages normalized over the iteration, not per minibatch:
    # the population of a minibatch changes with the batch size.
    "ppo": dict(objective="clip", proximal_policy="behavior"),
    # Hilton 2021, section 4: the clip range is centered on an EWMA of the policy's weights.
    "ppo-ewma": dict(objective="clip", proximal_policy="ewma"),
    # Cobbe 2020 with the KL penalty of Hilton 2021's invariance runs; one policy epoch.
    "ppg": PPG,
    "ppg-ewma": PPG | dict(proximal_policy="ewma"),
    # Mnih 2016 as in SB3: five steps, one gradient step on all of them, RMSProp.
    "a2c": dict(
        objective="policy-gradient", num_steps=5, num_minibatches=1, update_epochs=1, optimizer="rmsprop", beta2=0.99,
        learning_rate=7e-4, gae_lambda=1.0, ent_coef=0.0, vf_coef=1.0, advantage_norm="none",
    ),
    # Williams 1992: whole episodes, reward-to-go, a learned baseline.
    "reinforce": dict(
        objective="policy-gradient", complete_episodes=True, bootstrap=False, num_minibatches=1, update_epochs=1,
        gae_lambda=1.0, ent_coef=0.0, vf_coef=0.1, advantage_norm="none", aggregation="timestep",
    ),
}  # fmt: skip

# PureJaxRL, examples/brax_minatar.ipynb, "briefly tuned" there for gymnax's MinAtar; a script of CleanRL's kind.
MINATAR: SettingsByName = dict(
    num_envs=64, num_steps=128, num_minibatches=8, update_epochs=4, total_timesteps=10_000_000, learning_rate=5e-3,
    lr_schedule="linear", optimizer_eps=1e-5, gamma=0.99, gae_lambda=0.95, clip_eps=0.2, clip_value_loss=True,
    value_clip_eps=0.2, vf_coef=0.5, ent_coef=0.01, max_grad_norm=0.5, advantage_norm="minibatch",
    arrangement="dual", encoder="mlp", hidden_sizes=(64, 64), activation="relu",
)  # fmt: skip
BY_HAND: dict[str, SettingsByName] = {
    "CartPole-v1": dict(total_timesteps=500_000, learning_rate=2.5e-3, lr_schedule="linear"),
    "Acrobot-v1": dict(
        total_timesteps=1_000_000, num_envs=16, num_steps=256, num_minibatches=16, learning_rate=1e-3,
        lr_schedule="linear", ent_coef=0.0, normalize_observations=True, normalize_rewards=True,
    ),
    # Rewards are dense and the horizon short: a small gamma is most of the trick.
    "Pendulum-v1": dict(
        total_timesteps=500_000, num_envs=8, num_steps=256, num_minibatches=16, update_epochs=10, learning_rate=1e-3,
        lr_schedule="linear", gamma=0.9, ent_coef=0.0, normalize_rewards=True,
    ),
    # The goal is found by chance first: many steps between updates, and a long horizon.
    "MountainCarContinuous-v0": dict(
        total_timesteps=1_000_000, num_envs=16, num_steps=1024, num_minibatches=16, learning_rate=1e-3,
        lr_schedule="linear", gamma=0.999, ent_coef=0.0, normalize_observations=True, normalize_rewards=True,
    ),
    # A policy that is sure too early plays a safe loop for ever: hence the entropy.
    "Breakout-MinAtar": IMAGES | dict(total_timesteps=600_000, learning_rate=1e-3, ent_coef=0.05),
}  # fmt: skip
ENVIRONMENTS: dict[str, SettingsByName] = {
    **BY_HAND,
    **SEARCHED,
    **{f"{game}-MinAtar": MINATAR for game in ("Asterix", "Freeway", "SpaceInvaders")},
}
TIME_LIMITS = {  # of environments whose presets know nothing of whole episodes
    "MountainCar-v0": 200, "Catch-bsuite": 1000, "DeepSea-bsuite": 8, "UmbrellaChain-bsuite": 100,
    "DiscountingChain-bsuite": 100, "FourRooms-misc": 500, "FrozenLake-misc": 100,
    "Reacher-misc": 100, "Swimmer-misc": 500, "Asterix-MinAtar": 1000, "Freeway-MinAtar": 2500,
    "SpaceInvaders-MinAtar": 1000,
}  # fmt: skip


def rows_of_episodes(time_limit: int) -> SettingsByName:
    """Rows of four time limits, three quarters of which are surely used, and some 2,000 steps at least."""
    steps = 4 * time_limit
    return dict(num_envs=max(2, 2048 // steps), num_steps=steps)


ALGORITHM_ON_ENVIRONMENT: dict[tuple[str, str], SettingsByName] = {
    # As in rl-zoo3: shorter horizons keep a solved CartPole solved.
    ("ppo", "CartPole-v1"): dict(gamma=0.98, gae_lambda=0.8, ent_coef=0.0),
    ("ppo-ewma", "CartPole-v1"): dict(gamma=0.98, gae_lambda=0.8, ent_coef=0.0),
    # Ten epochs make the proximal policy young: an average as old as half an iteration holds on to more.
    ("ppo-ewma", "Pendulum-v1"): dict(beta_prox=80 / 81),
    ("ppg", "Breakout-MinAtar"): dict(total_timesteps=1_179_648, update_epochs=1, aux_epochs=3),
    ("ppg-ewma", "Breakout-MinAtar"): dict(total_timesteps=1_179_648, update_epochs=1, aux_epochs=3),
    ("a2c", "CartPole-v1"): dict(learning_rate=2.5e-3),
    # Rows of four time limits: of rows of one, the first episode alone could be used.
    ("reinforce", "CartPole-v1"): dict(total_timesteps=1_000_000, num_envs=2, num_steps=2000, learning_rate=5e-3),
    # The same rows; a smaller rate often does not leave random actions before it has reached the goal once.
    ("reinforce", "Acrobot-v1"): dict(num_envs=2, num_steps=2000, learning_rate=1e-2),
    # Slow learners (Pendulum comes to about -1,000); on Breakout nothing was learned in 600,000 steps.
    ("reinforce", "Pendulum-v1"): dict(num_envs=4, num_steps=800, learning_rate=5e-3),
    ("reinforce", "MountainCarContinuous-v0"): dict(num_envs=4, num_steps=3996, learning_rate=5e-3),
    ("reinforce", "Breakout-MinAtar"): dict(num_envs=4, num_steps=4000),
    **{("reinforce", env): rows_of_episodes(limit) for env, limit in TIME_LIMITS.items()},
}


# What belongs to an encoder that has a name: Espeholt 2018, Mnih 2015.
ENCODERS: dict[str, SettingsByName] = {
    "impala": dict(channels=(16, 32, 32), hidden_sizes=(256,), activation="relu"),
    "nature": dict(channels=(32, 64, 64), hidden_sizes=(512,), activation="relu"),
}


class PublishedSettings(NamedTuple):
    """An algorithm with settings of its own, and the environment it is meant for unless another one is named."""

    algo: str
    env: str
    settings: SettingsByName
    source: str


# Hilton 2021, section 5.1 and appendix B: Procgen hard, images through channels 16, 32, 32 and 256 outputs. What the
# paper does not say is the reference code's: no gradient clipping, and PyTorch's epsilon. Its value loss is .5 times
# the squared error, here vf_coef times half of it.
PROCGEN: SettingsByName = dict(
    num_envs=256, num_steps=256, num_minibatches=8, update_epochs=3, total_timesteps=100_000_000, learning_rate=5e-4,
    beta1=0.9, beta2=0.999, optimizer_eps=1e-8, max_grad_norm=float("inf"), gamma=0.999, gae_lambda=0.95,
    clip_eps=0.2, vf_coef=1.0, ent_coef=0.01,
    normalize_rewards=True, reward_norm_gamma=0.99, reward_clip=10.0, arrangement="shared", encoder="impala",
    lr_schedule="constant",
)  # fmt: skip
PROCGEN_PHASES: SettingsByName = PROCGEN | dict(
    update_epochs=1, value_epochs=1, policy_iterations_per_phase=32, aux_epochs=6, aux_minibatches=16,
    aux_learning_rate=5e-4, beta_clone=1.0, objective="kl", kl_coef=1.0, arrangement="dual",
    total_timesteps=48 * 32 * 256 * 256,  # the whole phases nearest to 100M
)  # fmt: skip
# CleanRL, ppo_atari_envpool.py: rewards are clipped to their sign and a lost life ends an episode, in training.
ATARI: SettingsByName = dict(
    num_envs=8, num_steps=128, num_minibatches=4, update_epochs=4, total_timesteps=10_000_000, learning_rate=2.5e-4,
    lr_schedule="linear", optimizer_eps=1e-5, gamma=0.99, gae_lambda=0.95, clip_eps=0.1, clip_value_loss=True,
    value_clip_eps=0.1, vf_coef=0.5, ent_coef=0.01, max_grad_norm=0.5, advantage_norm="minibatch",
    arrangement="shared", encoder="nature", env_kwargs={"episodic_life": True, "reward_clip": True},
)  # fmt: skip
# CleanRL, ppo_continuous_action.py.
MUJOCO: SettingsByName = dict(
    num_envs=1, num_steps=2048, num_minibatches=32, update_epochs=10, total_timesteps=1_000_000, learning_rate=3e-4,
    lr_schedule="linear", optimizer_eps=1e-5, gamma=0.99, gae_lambda=0.95, clip_eps=0.2, clip_value_loss=True,
    value_clip_eps=0.2, vf_coef=0.5, ent_coef=0.0, max_grad_norm=0.5, advantage_norm="minibatch",
    normalize_observations=True, obs_clip=10.0, normalize_rewards=True, reward_norm_gamma=0.99, reward_clip=10.0,
    arrangement="dual", hidden_sizes=(64, 64), activation="tanh",
)  # fmt: skip

HILTON = "Hilton, Cobbe, Schulman 2021"
PUBLISHED = {
    "procgen-ppo": PublishedSettings("ppo", "envpool/CoinrunHard-v0", PROCGEN, HILTON),
    "procgen-ppo-ewma": PublishedSettings("ppo-ewma", "envpool/CoinrunHard-v0", PROCGEN, HILTON),
    "procgen-ppg": PublishedSettings("ppg", "envpool/CoinrunHard-v0", PROCGEN_PHASES, HILTON),
    "procgen-ppg-ewma": PublishedSettings("ppg-ewma", "envpool/CoinrunHard-v0", PROCGEN_PHASES, HILTON),
    "atari-ppo": PublishedSettings("ppo", "envpool/Breakout-v5", ATARI, "CleanRL, ppo_atari_envpool.py"),
    "mujoco-ppo": PublishedSettings("ppo", "envpool/HalfCheetah-v4", MUJOCO, "CleanRL, ppo_continuous_action.py"),
    "minatar-ppo": PublishedSettings("ppo", "Breakout-MinAtar", MINATAR, "PureJaxRL, brax_minatar.ipynb"),
}
STALE_OBJECTIVES = ("recent", "decoupled", "behavior")


def bare_id(env: str) -> str:
    """The id without its backend or module: `gymnasium/CartPole-v1` is learned as `CartPole-v1` is."""
    return env.rpartition(":")[2] if ":" in env else env.removeprefix("gymnasium/").removeprefix("envpool/")


def preset(
    algo: str = "ppo", env: str | None = None, stale_objective: str | None = None, **overrides: object
) -> Config:
    """The settings for `algo` on `env`, with `overrides` by flat field name on top.

    Args:
        algo: ppo, ppo-ewma, ppg, ppg-ewma, a2c, reinforce, or the name of published settings (`docs/environments.md`),
            which bring their own environment unless `env` names another one.
        env: an id (`isobatch envs` lists them), or a name given to `register_env`.
        stale_objective: one of the paper's three ways to treat stale data (figure 1 of https://arxiv.org/abs/2110.00641):
            recent, decoupled or behavior. It sets the importance policy and the proximal policy.
        overrides: any field of `Config` or `Hypers`.

    Returns:
        A checked `Config`.

    Example:
        >>> import isobatch as ib
        >>> config = ib.preset("ppo", "CartPole-v1", num_envs=16, learning_rate=1e-3)
        >>> config.num_envs, config.hypers.learning_rate, config.geometry.iteration_batch
        (16, 0.001, 2048)
    """
    algo = parse_value("algo", algo, str)
    env = env if env is None else parse_value("env", env, str)
    if algo in PUBLISHED:
        named = PUBLISHED[algo]
        algo, settings = named.algo, ALGORITHMS[named.algo] | named.settings
        env = named.env if env is None else env
    elif algo in ALGORITHMS:
        env = "CartPole-v1" if env is None else env
        name = bare_id(env)
        settings = ENVIRONMENTS.get(name, {}) | ALGORITHMS[algo] | ALGORITHM_ON_ENVIRONMENT.get((algo, name), {})
    else:
        raise unknown_name(f"algo={algo!r}", algo, [*ALGORITHMS, *PUBLISHED])
    encoder = (settings | overrides).get("encoder")
    chosen = settings | ENCODERS.get(str(encoder), {}) | overrides
    phases = parse_value("policy_iterations_per_phase", chosen.get("policy_iterations_per_phase", 0), int)
    if phases and "total_timesteps" not in overrides:  # as many whole phases as the preset has room for
        plain = Config.from_dict(chosen | dict(policy_iterations_per_phase=0))
        updates = max((plain.num_iterations - plain.staleness) // phases, 1) * phases
        chosen["total_timesteps"] = (updates + plain.staleness) * plain.geometry.iteration_batch
    config = Config.from_dict(chosen | dict(algo=algo, env=env))
    return config if stale_objective is None else with_stale_objective(config, stale_objective)


def without_environment(algo: str, env: str, stale_objective: str | None = None, **overrides: object) -> Config:
    """What an algorithm brings by itself, without the settings that are known to work on the environment."""
    return preset(algo, "", stale_objective, **overrides).replace(env=env)


def with_stale_objective(config: Config, name: object) -> Config:
    """recent: both are the recent policy (biased); decoupled: importance behavior, proximal recent; behavior: both.

    An averaged or log-linear proximal policy stays what it is under `recent` and `decoupled`.
    """
    if name not in STALE_OBJECTIVES:
        raise UsageError(f"stale_objective={name!r} is unknown: use one of {', '.join(STALE_OBJECTIVES)}.")
    if config.objective == "policy-gradient":
        raise UsageError(
            f"stale_objective={name!r} needs an objective with a ratio, and {config.algo} has none: use ppo, ppo-ewma, "
            "ppg or ppg-ewma."
        )
    recent = config.proximal_policy if config.proximal_policy in ("ewma", "loglinear") else "recent"
    return config.replace(
        importance_policy="recent" if name == "recent" else "behavior",
        proximal_policy="behavior" if name == "behavior" else recent,
    )


def changed_settings(config: Config) -> SettingsByName:
    """Algorithm, environment, and the settings in which `config` differs from their preset: `preset(**these)`."""
    usual = preset(config.algo, config.env).to_dict()
    named = {"algo": config.algo, "env": config.env}
    return named | {name: value for name, value in config.to_dict().items() if value != usual[name]}
