"""What explains a harm: the study `explain`, its words and its grid."""

import re

import pytest
from made_up_rows import made_up

from isobatch.settings.presets import with_stale_objective
from isobatch.statistics.bootstrap import Estimate
from isobatch.studies.claims import STUDIES
from isobatch.studies.claims.explain import draw_changes, meaning


def explained(harmless_loss: float) -> tuple[list[str], str]:
    """Stale data costs .4 as it is; with a small clip range runs are equal, and lose so much without the harm too."""
    rows = made_up("explain")
    for row in rows:
        clip, harmed = (row["kind"], row["level"]) == ("clip range", "1/4"), row["harm"] == "stale"
        loss = harmless_loss if clip else 0.4 * harmed
        if row["harm"] in ("fresh", "stale"):
            row |= {name: row[name] - loss for name in ("normalized_final", "normalized_mean")}
            row |= {"approx_kl": {"ratios": 0.3, "clip range": 0.02}.get(row["kind"], 0.1), "clip_fraction": 0.25}
    sentences = STUDIES["explain"].verdict(rows)
    return sentences, next(line for line in sentences if line.startswith("Stale data, clip range, in normalized final"))


def test_what_explains_a_harm_helps_those_who_have_it() -> None:
    sentences, clip = explained(0.0)
    gain = r"and runs with it gain most from clip range 1/4, 0\.(39|4)"
    assert re.search(r"stale data costs 0\.(39|4).*, " + gain, sentences[0])
    half, quarter, _ = clip.split("; ")
    ending = "which cannot be told from what the others gain, a difference of 0.05 would have been told"
    assert half.endswith(f"{ending} (KL 0.02, 25% clipped)")
    assert quarter.startswith("1/4: stale ")
    assert quarter.endswith("which explains it in part (KL 0.02, 25% clipped)")


def test_what_spoils_runs_without_the_harm_explains_nothing() -> None:
    """Equal at last, but only because nothing is learned any more."""
    _, clip = explained(0.4)
    assert "which spoils the others, and whether it helps them cannot be told" in clip.split("; ")[1]


def test_as_small_a_kl_without_a_gain_is_named() -> None:
    """The KL with 1/2 and 1/8 of the clip range is that of 1/4, which alone gains: so the KL does not explain it."""
    sentences, _ = explained(0.0)
    line = next(line for line in sentences if line.startswith("Stale data: over the run most is gained by"))
    assert re.search(r"clip range 1/4, 0\.\d+ \[.*?\] at a KL of 0\.02\. At no larger a KL gain: clip range 1/2", line)
    assert "clip range 1/8 (KL 0.02)" in line
    assert "learning rate" not in line
    assert any("over the 17 settings with it, the rank correlation of KL" in line for line in sentences)


UP, DOWN, UNCLEAR = Estimate(0.3, 0.2, 0.4), Estimate(-0.3, -0.4, -0.2), Estimate(0.05, -0.1, 0.2)
UNTOLD = "by itself cannot be told from 0"


@pytest.mark.parametrize(
    ("having", "others", "more", "expected"),
    [
        (UP, UNCLEAR, UP, "explains it in part"),
        (Estimate(0.04, 0.01, 0.08), Estimate(-0.41, -0.45, -0.37), UP, "helps them, and spoils the others more"),
        (UNCLEAR, DOWN, UP, "spoils the others, and whether it helps them cannot be told"),
        (DOWN, Estimate(-0.6, -0.7, -0.5), UP, "spoils both, and explains nothing"),
        (UNCLEAR, UNCLEAR, UP, f"helps them more than the others, though their gain {UNTOLD}"),
        (DOWN, UNCLEAR, DOWN, "makes it worse"),
        (UP, Estimate(0.6, 0.5, 0.7), DOWN, "helps both, and the others more"),
        (UNCLEAR, UP, DOWN, "helps the others, and whether it harms them cannot be told"),
        (
            UNCLEAR,
            UNCLEAR,
            DOWN,
            "does them more harm than the others, though their loss by itself cannot be told from 0",
        ),
        (UP, UP, UNCLEAR, ""),
    ],
)
def test_a_change_is_judged_by_what_it_does_to_both(
    having: Estimate, others: Estimate, more: Estimate, expected: str
) -> None:
    assert meaning(having, others, more) == expected


def test_one_harm_alone_is_judged_and_drawn() -> None:
    """As with --envs, where EnvPool is not installed."""
    rows = [row for row in made_up("explain") if row["env"] == "Pendulum-v1"]
    sentences = STUDIES["explain"].verdict(rows)
    assert not any("Adam" in sentence for sentence in sentences)
    from matplotlib import pyplot

    figure = draw_changes(rows)
    assert [len(axes.get_yticks()) for axes in figure.axes] == [17, 17]
    pyplot.close(figure)


def test_a_harm_and_its_change_differ_from_the_others_in_nothing_else() -> None:
    cells = {tuple(cell.factors.values()): cell.config for cell in STUDIES["explain"].grid("laptop").cells}
    base = ("all settings", "as they are")
    fresh, stale = (cells[*base, harm] for harm in ("fresh", "stale"))
    assert stale == with_stale_objective(fresh.replace(staleness=8), "decoupled")
    assert [cells["clip range", f"1/{by}", "stale"].hypers.clip_eps * by for by in (2, 4, 8)] == [0.2] * 3
    batch = stale.geometry.iteration_batch
    by_steps, by_iterations = (
        [cells[kind, f"1/{by}", "stale"] for by in (2, 4, 8)] for kind in ("lag in steps", "lag in iterations")
    )
    assert [(one.staleness, one.geometry.iteration_batch) for one in by_steps] == [(8, batch // by) for by in (2, 4, 8)]
    assert [(one.staleness, one.geometry.iteration_batch) for one in by_iterations] == [(s, batch) for s in (4, 2, 1)]
    ruled, unruled = (cells[*base, f"{harm} Adam's rule"] for harm in ("with", "without"))
    assert unruled.hypers.learning_rate == pytest.approx(8 * ruled.hypers.learning_rate)
    assert unruled.replace(learning_rate=ruled.hypers.learning_rate) == ruled
    assert cells["learning rate", "1/8", "without Adam's rule"] == ruled, "the rule itself"
