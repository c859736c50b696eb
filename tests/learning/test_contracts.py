"""What every algorithm of the registry must do."""

import dataclasses
from functools import cache

import jax
import numpy as np
import pytest
from needs import one_more_case
from tiny import ALGOS, tiny

from isobatch.settings.config import Config, Hypers
from isobatch.training import compiled_program as program_module
from isobatch.training.checkpoints import flatten
from isobatch.training.programs import initial_states, program_for, stack_hypers
from isobatch.training.result import Result
from isobatch.training.trainer import train

JSON_FIELDS = {
    "run_dir", "env", "algo", "env_steps", "seeds", "final_return", "steps_per_second", "compile_seconds",
}  # fmt: skip


# What the two that are left to ISOBATCH_TEST_ALL do, ppg-ewma does too.
every_algorithm = pytest.mark.parametrize(
    "algo",
    [pytest.param(a, marks=[pytest.mark.xdist_group(a)] + [one_more_case] * (a in ("ppg", "ppo-ewma"))) for a in ALGOS],
)
# For what compiles a program of its own and depends little on the algorithm.
unlike_algorithms = pytest.mark.parametrize(
    "algo",
    [
        pytest.param(a, marks=[pytest.mark.xdist_group(a)] + [one_more_case] * (a not in ("ppg-ewma", "reinforce")))
        for a in ALGOS
    ],
)


@cache
def trained(algo: str) -> Result:
    """One short run of an algorithm, three seeds."""
    return train(tiny(algo), num_seeds=3)


def same_bits(a: object, b: object) -> bool:
    left, right = flatten(a), flatten(b)
    return left.keys() == right.keys() and all(left[k].tobytes() == right[k].tobytes() for k in left)


@every_algorithm
def test_same_seed_same_bits(algo: str) -> None:
    again = train(tiny(algo), num_seeds=3)
    assert same_bits(again.states, trained(algo).states)
    for name, values in again.metrics.items():
        np.testing.assert_array_equal(values, trained(algo).metrics[name], err_msg=name)


@every_algorithm
def test_another_seed_other_bits(algo: str) -> None:
    weights = flatten(trained(algo).states)["learning/learner/networks/policy/head/weight"]
    assert not np.array_equal(weights[0], weights[1])


@unlike_algorithms
def test_vmapped_seeds_agree_with_seeds_alone(algo: str) -> None:
    """To a tolerance: the width of a vmap changes low-order bits, which training amplifies."""
    alone = train(tiny(algo), seed=1)
    rows = trained(algo).metrics["seed"] == 1
    for name in ("losses/policy_loss", "losses/entropy", "advantages/std"):
        np.testing.assert_allclose(
            alone.metrics[name][:4], trained(algo).metrics[name][rows][:4], rtol=1e-3, atol=1e-4, err_msg=name
        )


@every_algorithm
def test_metrics_are_whole(algo: str) -> None:
    metrics, config = trained(algo).metrics, trained(algo).config
    assert sorted(set(metrics["seed"])) == [0, 1, 2]
    assert metrics["env_steps"].max() == config.env_steps == config.num_iterations * 32
    for name, values in metrics.items():
        if name.startswith("aux/"):
            phase_ends = metrics["iteration"] % config.policy_iterations_per_phase == 0
            np.testing.assert_array_equal(~np.isnan(values), phase_ends, err_msg=name)
        else:
            assert not np.any(np.isnan(values)), name


@every_algorithm
def test_json_fields(algo: str) -> None:
    found = trained(algo).to_json()
    assert found.keys() >= JSON_FIELDS
    assert found["seeds"] == [0, 1, 2]
    assert len(found["final_return"]) == 3


@every_algorithm
def test_logging_less_often_changes_no_bit_and_compiles_nothing(algo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of 5, 5 and 2 iterations hold the means of theirs, and the program that had rows of one serves them."""
    train(tiny(algo), num_seeds=3)  # whose program may have been forgotten since `trained`
    traces = []
    original = program_module.advance_rows
    monkeypatch.setattr(program_module, "advance_rows", lambda *a: traces.append(1) or original(*a))
    coarse = train(tiny(algo), num_seeds=3, log_interval=5, checkpoint_interval=5)
    assert not traces
    assert same_bits(coarse.states, trained(algo).states)
    fine = trained(algo).metrics["losses/entropy"].reshape(12, 3)
    means = np.stack([fine[:5].mean(axis=0), fine[5:10].mean(axis=0), fine[10:].mean(axis=0)])
    np.testing.assert_allclose(coarse.metrics["losses/entropy"].reshape(3, 3), means, rtol=1e-5)


@pytest.mark.xdist_group("ppo")
@pytest.mark.parametrize("objective", ["recent", "decoupled", "behavior"])
def test_staleness_zero_is_no_staleness(objective: str) -> None:
    """On fresh data the recent policy is the behavior policy: all three objectives are plain PPO, bit for bit."""
    fresh = train(tiny("ppo", staleness=0, stale_objective=objective), num_seeds=3)
    assert same_bits(fresh.states, trained("ppo").states)


@pytest.mark.parametrize("algo", ["ppo", "ppg-ewma"])
def test_stale_runs_only_collect_at_first(algo: str) -> None:
    config = tiny(algo, staleness=3, stale_objective="decoupled", total_timesteps=32 * 15)
    result = train(config)
    learned = ~np.isnan(result.metrics["losses/entropy"])
    np.testing.assert_array_equal(learned, result.metrics["iteration"] > 3)
    assert result.metrics["staleness/env_steps"][-1] == 3 * 32
    assert np.all(result.metrics["importance/ess"][learned] <= 1 + 1e-6)


# Where hyperparameters matter: runs in which changing one must change the result. They are few: each is compiled.
RUNS: dict[str, dict] = {
    "ppo": dict(
        env="Probe-Truncation", learning_rate=0.1, clip_value_loss=True, advantage_norm="ewma", normalize_rewards=True,
        clip_schedule="linear", value_clip_schedule="linear",
    ),
    "loglinear": dict(proximal_policy="loglinear", learning_rate=0.1),
    "stale": dict(
        algo="ppo-ewma", objective="kl", staleness=2, learning_rate=0.1, normalize_observations=True,
        lr_schedule="adaptive", desired_kl=1.0, target_kl=10.0,
    ),
    "ppg": dict(algo="ppg", learning_rate=0.1),
    "sgd": dict(algo="a2c", aggregation="constant", optimizer="sgd"),
}  # fmt: skip
WHERE = {
    "loglinear_alpha": "loglinear", "importance_cap": "stale", "beta_prox": "stale", "kl_coef": "stale",
    "obs_clip": "stale", "desired_kl": "stale", "target_kl": "stale", "beta_clone": "ppg", "aux_learning_rate": "ppg",
    "aggregation_horizon": "sgd", "max_grad_norm": "sgd",
}  # fmt: skip
OTHER_VALUE = {
    "learning_rate": 0.01, "beta1": 0.5, "beta2": 0.9, "optimizer_eps": 0.1, "max_grad_norm": 1e-6, "gamma": 0.5,
    "gae_lambda": 0.3, "clip_eps": 0.01, "kl_coef": 5.0, "ent_coef": 0.5, "vf_coef": 2.0, "value_clip_eps": 0.001,
    "importance_cap": 1.0, "beta_prox": 0.1, "loglinear_alpha": 0.01, "adv_norm_decay": 0.9, "adv_norm_eps": 0.5,
    "aggregation_horizon": 2.0, "obs_clip": 0.1, "reward_norm_gamma": 0.1, "reward_clip": 0.1, "beta_clone": 20.0,
    "aux_learning_rate": 0.01, "desired_kl": 1e-6, "target_kl": 1e-9,
    "clip_eps_end": 0.1,
}  # fmt: skip


@pytest.mark.xdist_group("hypers")
@pytest.mark.parametrize("name", [f.name for f in dataclasses.fields(Hypers)])
def test_every_hyperparameter_is_used_and_traced(name: str) -> None:
    """Two values of it train side by side in one compiled program and end with different parameters."""
    config: Config = tiny(**RUNS[WHERE.get(name, "ppo")])
    changed = config.replace(**{name: OTHER_VALUE[name]})
    assert changed.static == config.static
    assert networks_agree(config, config)
    assert not networks_agree(config, changed)


@cache
def networks_agree(one: Config, other: Config) -> bool:
    """Train two configs that differ in hyperparameters side by side, from the same seed."""
    states = initial_states(one, [0, 0])
    hypers = stack_hypers([one.hypers, other.hypers])
    done = program_for(one, states, hypers, 1)(states, hypers, 0, one.num_iterations).states
    return all(np.array_equal(leaf[0], leaf[1]) for leaf in map(np.asarray, jax.tree.leaves(done.networks)))


@unlike_algorithms
def test_learns_a_probe(algo: str) -> None:
    """Which action is right depends on the observation; always right is a return of 1, chance 0."""
    learning = dict(
        learning_rate=0.02, lr_schedule="constant", total_timesteps=32 * 150, num_minibatches=1, max_grad_norm=0.5
    )
    final = train(tiny(algo, **learning), num_seeds=2).final_return
    assert min(final) > 0.9, final
