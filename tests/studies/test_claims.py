"""All claims: their grids build at every scale, and their verdicts follow the numbers."""

import math
import re
from typing import Any

import numpy as np
import pytest
from made_up_rows import at_shapes, made_up

from isobatch.errors import UsageError
from isobatch.settings.config import Config
from isobatch.statistics.normalization import range_of
from isobatch.studies.claims import STUDIES, invariance, study_of
from isobatch.studies.claims.prox_grid import slopes
from isobatch.studies.grid import SCALES, Row
from isobatch.studies.scores import FINAL
from isobatch.studies.tuned_settings import ENTRIES
from isobatch.studies.verdicts import Question, answers


def test_the_catalogue_is_complete() -> None:
    assert set(STUDIES) == {
        *("staleness", "invariance", "adam-rule", "sgd-rule", "ewma", "prox-grid", "epochs", "geometry", "aggregation"),
        *("asynchrony", "transfer", "newer-rules", "explain"),
    }
    with pytest.raises(UsageError, match=r"study 'invarianc' is unknown; did you mean invariance\?"):
        study_of("invarianc")


@pytest.mark.parametrize("name", STUDIES)
@pytest.mark.parametrize("scale", SCALES)
def test_every_grid_builds(name: str, scale: str) -> None:
    study = STUDIES[name]
    grid = study.grid(scale)
    sizes = grid.sizes()
    if name == "explain":
        harmed = ["Pendulum-v1", "envpool/LunarLander-v3"]
        assert sizes["environments"] == (harmed[:1] if scale == "quick" else harmed)  # without EnvPool
    else:
        games = len(ENTRIES) if name == "transfer" else 16
        assert len(sizes["environments"]) == {"quick": 1, "paper": games}.get(scale, len(sizes["environments"]))
        assert scale != "laptop" or len(sizes["environments"]) >= 2
    assert grid.num_seeds >= 3
    assert not study.pictures or study.pictures in sizes["factors"]
    assert set(study.everywhere) <= set(sizes["factors"])
    names = [tuple(cell.factors.items()) for cell in grid.cells if cell.config.env == sizes["environments"][0]]
    assert len(set(names)) == len(names)
    for cell in grid.cells:
        range_of(cell.config.env, study.ranges)
        steps = [learned_from(other.config) for other in grid.cells if other.config.env == cell.config.env]
        assert min(steps) > 0.9 * max(steps), "compared at equal data"


def learned_from(config: Config) -> int:
    """Environment steps without those that a queue still holds in the end."""
    return config.env_steps - config.staleness * config.geometry.iteration_batch


@pytest.mark.parametrize("name", STUDIES)
def test_verdicts_are_sentences(name: str) -> None:
    found = STUDIES[name].verdict(made_up(name))
    assert found[0].startswith("In short, ")
    assert " less " not in " ".join(found).replace("less than", "")  # a difference is A minus B
    assert all(sentence.endswith(".") and "nan" not in sentence for sentence in found)


def test_verdicts_follow_the_numbers() -> None:
    def sentence(name: str, good: dict[str, Any] | None, begin: str) -> str:
        return next(line for line in STUDIES[name].verdict(made_up(name, good)) if line.startswith(begin))

    begin = "At c = 64, no Adam rule minus all rules, in normalized final return"
    assert "which cannot be told from 0" in sentence("invariance", None, begin)
    assert "which is above 0" in sentence("invariance", {"rules": "no Adam rule"}, begin)
    gap = "All rules, normalized final return:"
    assert "gap between best and worst of c = 1, 4, 16, 64 is 0.0" in sentence("invariance", None, gap)
    assert re.search(r" is 0\.(39|4)", sentence("invariance", {"divisor": 64}, gap))
    between = sentence("invariance", {"divisor": 64}, "All rules, normalized final return,")
    assert re.search(r"c = 64: -0\.(39|4)", between)
    larger = "Batches of 16 times the base's minus the base's"
    assert "which is above 0" in sentence("invariance", {"rules": "all rules", "divisor": 1 / 16}, larger)
    stands = sentence("invariance", {"rules": "no Adam rule"}, "Of 18 tests")
    assert "these stand at the paper's 0.1%: 2 (At c = 64, no Adam rule" in stands
    assert "at the paper's 0.1%: 0; and at 5 % besides: 0." in sentence("invariance", None, "Of 18 tests")
    decoupled = {"treatment": "decoupled", "staleness": 8}
    assert "which is above 0" in sentence("staleness", decoupled, "Staleness 8: decoupled minus recent")
    assert "cannot be told" in sentence("staleness", decoupled, "Staleness 4: decoupled minus recent")
    assert "0.40" in sentence("ewma", {"algo": "ppo-ewma"}, "ppo-ewma minus ppo")
    assert "probability 1.00" in sentence("ewma", {"algo": "ppo-ewma"}, "A run of ppo-ewma")
    assert "best 0.90 at 32 x 4" in sentence("prox-grid", {"center_of_mass": 32, "kl_coef": 4.0}, "Normalized")
    several = {"update_epochs": 4, "divisor": 16}
    assert "final return: c = 1: 0.50, c = 4: 0.50, c = 16: 0.90, c = 64: 0.50; a gap of 0.4" in sentence(
        "epochs", several, "E = 4"
    )
    assert "a gap of 0.0" in sentence("epochs", several, "E = 1")
    assert "c = 16: 0.89" in sentence("adam-rule", {"adam_rule": "linear", "divisor": 16}, "CartPole-v1, linear")
    in_short = STUDIES["adam-rule"].verdict(made_up("adam-rule"))[0]
    assert "malladi on 3 of them: 0.0" in in_short
    assert "square root: 0.0" in in_short
    linear = {"sgd_rule": "linear", "divisor": 64}
    assert "c = 64: 0.90" in sentence("sgd-rule", linear, "CartPole-v1, linear, normalized final")
    assert "which is above 0" in sentence("sgd-rule", linear, "At c = 64, linear minus none")
    assert "32 x 32: 0.90" in sentence("geometry", {"shape": "32 x 32"}, "N x T")
    good = {"aggregation": "timestep", "optimizer": "sgd"}
    assert "which is above 0" in sentence("aggregation", good, "With sgd: timestep minus trajectory")
    assert "which cannot be told from 0" in sentence("aggregation", good, "With adam: timestep minus trajectory")


def test_an_interval_and_a_test_that_seem_to_disagree_are_explained() -> None:
    """Of seven seeds one that is far off widens the interval past 0, and hardly moves a rank; two cannot be ranked."""
    steady = [0.5, 0.51, 0.52, 0.53, 0.54, 0.55, 0.56]
    one_off = [0.6, 0.61, 0.62, 0.63, 0.64, 0.65, -2.0]
    few = ([0.1, 0.11, 0.12], [0.9, 0.91, 0.92])

    def answer(x: list[float], y: list[float]) -> str:
        rows = [
            {"env": "e", "which": which, "normalized_final": value}
            for which, values in (("x", x), ("y", y))
            for value in values
        ]
        return answers(rows, [Question("x minus y", "normalized_final", dict(which="x"), dict(which="y"))])[0]

    assert "Interval and test differ" in answer(one_off, steady)
    assert "So few seeds cannot be ranked" in answer(few[1][:2], few[0][:2])
    assert answer(few[1] * 2, few[0] * 2).endswith(").")


def test_invariance_names_the_critical_batch_size_and_what_larger_batches_lose() -> None:
    """Three environments whose larger batches lose the more the further they are above the critical batch size."""
    cells = {cell.name: cell.config for cell in STUDIES["invariance"].grid("laptop").cells}
    rows, measured, point = [], [], at_shapes()[0]
    for env, critical in (("CartPole-v1", 100.0), ("Acrobot-v1", 1_000.0), ("Pendulum-v1", 10_000.0)):
        shape = point | {"num_envs": 32, "num_steps": 32}  # the base's rollouts; the others are there for long chains
        measured += [shape | at_stage(env, 3.0, critical), shape | at_stage(env, 1.0, critical)]
        measured.append(point | at_stage(env, 1.0, 7.0))
        for row in made_up("invariance"):
            if row["env"] == env:
                config = cells[row["cell"]]
                batch = config.geometry.optimization_batch
                lost = batch / (batch + critical)
                sizes = {name: getattr(config, name) for name in ("num_envs", "num_steps", "num_minibatches")}
                rows.append(row | sizes | {"normalized_mean": 0.9 - lost})
    sentences = STUDIES["invariance"].reading(rows, measured)
    assert sentences[0] == (
        "CartPole-v1: optimization batches of 1,024 to 1 samples; critical batch size by the laboratory, over the 2 "
        "stages of training together: 100 [100, 100]; the base's 64 samples are below its interval at 2 of them, above "
        "at 0. Lost over the run against 64: 1,024 samples 0.52, 256 samples 0.33."
    )
    assert sentences[3].startswith(
        "Where the base is below the critical size at every stage (CartPole-v1, Acrobot-v1, Pendulum-v1), all rules, "
        "c = 1 minus c = 64: "
    )
    near = STUDIES["invariance"].reading(rows, [row | {"critical_batch_low": 10.0} for row in measured])
    assert near[3].startswith("Where the base is not known to be (CartPole-v1, Acrobot-v1, Pendulum-v1), all rules")
    assert "the rank correlation of what is predicted and lost is 1.00" in sentences[-1]
    assert "26% in the mean over these 6 batches. They lose 0.26" in sentences[-1]


def at_stage(env: str, variance: float, critical: float) -> dict[str, Any]:
    """Of 128 x 8, measured exactly: the signal is N T variance / critical."""
    exact = {"variance": variance, "signal": 1024 * variance / critical, "critical_batch": critical}
    return {"env": env} | {f"{name}{end}": value for name, value in exact.items() for end in ("", "_low", "_high")}


def test_critical_batch_sizes_are_pooled_over_stages() -> None:
    """Noise 3072 + 1024 over signal 2.048 + 0: 2,000, where the mean of the two would be infinite."""
    point = at_shapes()[0]
    stages = [
        point | at_stage("CartPole-v1", 3.0, 1_500.0),
        point | at_stage("CartPole-v1", 1.0, math.inf) | {"critical_batch": None, "critical_batch_high": None},
    ]
    assert invariance.pooled(stages).value == pytest.approx(2_000.0)
    assert invariance.beside(1_600, stages) == (
        "the base's 1,600 samples are below its interval at 1 of them, above at 1"
    )
    wide = [stages[0] | {"signal_low": -10.0, "signal_high": 14.096}]
    size = invariance.pooled(wide)
    assert size.high == math.inf
    assert invariance.size_text(size) == f"at least {3072 / 14.096:,.0f}, with no upper end"
    undecided = [stages[0] | {"critical_batch_low": 0.0, "critical_batch_high": None}]
    assert invariance.beside(64, undecided).endswith("at 0 of them, above at 0, and at 1 it cannot be told")


def test_batches_that_end_no_episode_are_left_out_of_invariance() -> None:
    """They count as 0, which would look like a loss of .5."""
    rows = [
        row | {"final_return": None, "normalized_final": 0.0, "normalized_mean": 0.0}
        if (row["env"], row["divisor"]) == ("Pendulum-v1", 1 / 16)
        else row
        for row in made_up("invariance")
    ]
    sentences = STUDIES["invariance"].verdict(rows)
    larger = next(line for line in sentences if line.startswith("Batches of 16 times the base's minus the base's"))
    assert "cannot be told from 0" in larger
    assert "Pendulum-v1" not in larger
    assert sentences[-1] == (
        "Left out, because no episode ended in the steps of an environment: Pendulum-v1 at c = 1/16."
    )


def test_what_doubling_does_is_found() -> None:
    """KL = center^-1 x coefficient^-1/2, exactly."""
    rows = [
        row | {"approx_kl": row["center_of_mass"] ** -1.0 * row["kl_coef"] ** -0.5, "normalized_mean": 0.5}
        for row in made_up("prox-grid")
    ]
    found = slopes([row for row in rows if row["env"] == "CartPole-v1"], "approx_kl")
    np.testing.assert_allclose(found, np.array([[-1.0], [-0.5], [-0.5]]) * np.ones(4), atol=1e-9)
    np.testing.assert_allclose(slopes(rows, "normalized_mean"), 0, atol=1e-9)
    assert any("they differ (-0.50" in sentence for sentence in STUDIES["prox-grid"].verdict(rows))


def test_the_rate_of_sgd_follows_three_rules() -> None:
    """At c = 64: 1/64, 1/8 and all of the base's; everything else is the same."""
    cells = {cell.factors["sgd_rule"]: cell.config for cell in STUDIES["sgd-rule"].grid("quick").cells}
    base = cells["nothing to do"].hypers.learning_rate
    rates = [cells[rule].hypers.learning_rate / base for rule in ("linear", "square root", "none")]
    assert rates == pytest.approx([1 / 64, 1 / 8, 1])
    assert len({cells[rule].replace(learning_rate=1.0) for rule in ("linear", "square root", "none")}) == 1


def test_settings_of_the_paper() -> None:
    """FACTS section 4: invariance with PPG-EWMA at 256 to 1 environments, three seeds."""
    grid = STUDIES["invariance"].grid("paper")
    own = [
        cell
        for cell in grid.cells
        if cell.config.env == "envpool/BigfishHard-v0" and cell.factors["rules"] == "all rules"
    ]
    assert [cell.config.num_envs for cell in own] == [256, 64, 16, 4, 1]
    assert [cell.config.policy_iterations_per_phase for cell in own] == [32, 128, 512, 2048, 8192]
    assert [round(cell.config.hypers.beta_prox, 6) for cell in own] == [
        0.888889,
        0.969697,
        0.992248,
        0.998051,
        0.999512,
    ]
    assert own[0].config.hypers.learning_rate == 5e-4
    assert grid.num_seeds == 3


def test_figure_2_refers_to_the_algorithm_without_ewma() -> None:
    """Its caption: PPG at the default batch size, with the KL coefficient reduced to 1/256; nothing else differs."""
    for scale, divisor in (("paper", 256), ("laptop", 64)):
        cells = STUDIES["invariance"].grid(scale).cells
        bases = [cell.config for cell in cells if cell.factors == {"rules": "all rules", "divisor": 1}]
        weak = [cell.config for cell in cells if cell.factors == {"rules": "no EWMA, weak KL penalty", "divisor": 1}]
        assert [config.algo for config in weak] == [config.algo.removesuffix("-ewma") for config in bases]
        for one, base in zip(weak, bases, strict=True):
            same = dict(
                algo=base.algo, proximal_policy="ewma", kl_coef=base.hypers.kl_coef, beta_prox=base.hypers.beta_prox
            )
            assert (one.proximal_policy, one.hypers.kl_coef) == ("behavior", 1 / divisor)
            assert one.replace(**same) == base


def test_a_verdict_that_cannot_tell_says_how_many_seeds_would() -> None:
    """Made-up scores have a standard deviation of .01: four seeds on four environments would have told .05."""
    rows = made_up("invariance")

    def sentence(rows: list[Row]) -> str:
        begin = "At c = 64, no Adam rule minus all rules, in normalized final return"
        return next(line for line in STUDIES["invariance"].verdict(rows) if line.startswith(begin))

    assert "cannot be told from 0" in sentence(rows)
    assert "; a difference of 0.05 would have been told." in sentence(rows)
    noisy = [row | {FINAL: 0.5 + 20 * (row[FINAL] - 0.5)} for row in rows]
    assert re.search(r"; to tell a difference of 0.05 takes about \d\d seeds\.", sentence(noisy))
