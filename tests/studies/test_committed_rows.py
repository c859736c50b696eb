"""The pages of docs/results say what their committed rows say."""

import json
import re
import runpy
from pathlib import Path

import pytest
from needs import needs_envpool, needs_sb3

from isobatch.rescaling import MINIBATCH_SIZE
from isobatch.rescaling.evidence import measurements
from isobatch.settings.presets import ENVIRONMENTS, preset
from isobatch.statistics.bootstrap import Estimate
from isobatch.studies.claims import study_of

RESULTS = Path(__file__).parents[2] / "docs" / "results"


SCRIPT = runpy.run_path(str(RESULTS / "studies.py"))


@pytest.mark.parametrize("name", SCRIPT["PICTURES"])
def test_a_page_has_the_verdict_of_its_rows(name: str) -> None:
    page = (RESULTS / f"{name}.md").read_text()
    assert SCRIPT["with_verdict"](page, name, SCRIPT["committed_rows"](name)) == page


@pytest.mark.parametrize("name", SCRIPT["PICTURES"])
def test_the_list_of_studies_has_the_minutes_of_the_page(name: str) -> None:
    page = (RESULTS / f"{name}.md").read_text()
    parts = re.findall(r"--scale laptop`: .*?, (\d+) minutes? of training|They took (\d+) minutes? more", page)
    assert study_of(name).minutes == (sum(int(first or more) for first, more in parts) or None)


def test_rescale_and_the_readme_tell_what_the_rows_of_transfer_say() -> None:
    rows, readme = SCRIPT["committed_rows"]("transfer"), SCRIPT["README"].read_text()
    assert SCRIPT["EVIDENCE"].read_text() == SCRIPT["evidence_text"](rows)
    assert SCRIPT["HEADLINE"] in readme
    assert SCRIPT["with_headline"](readme, rows) == readme
    both = [one for one in measurements() if one.way != MINIBATCH_SIZE]  # `unchanged` has tasks of other libraries too
    assert [str(one) for one in both if f" {one} |" not in readme] == []  # also after rounding


def test_the_page_of_critical_batches_keeps_what_was_measured_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(RESULTS))  # the script begins with the runs of gradients.py there
    script = runpy.run_path(str(RESULTS / "critical_batch.py"))
    page = (RESULTS / "critical-batch.md").read_text()
    parts = script["parts_of"](page)
    assert list(parts) == [env for env in script["STAGES"] if f"## {env}\n" in page]
    assert all(len(part.rows) == len(script["STAGES"][env][0]) for env, part in parts.items())
    assert script["page_of"](parts) == page


@pytest.mark.parametrize("name", ["bases", "presets"])
def test_the_page_of_a_search_has_what_was_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(RESULTS))  # where the script has a neighbor that it imports
    script = runpy.run_path(str(RESULTS / f"{name}.py"))
    page = (RESULTS / f"{name}.md").read_text()
    assert script["with_table"](page, json.loads(script["FOUND"].read_text())) == page


def test_the_page_of_proximal_policies_has_its_numbers_and_those_of_the_study() -> None:
    script = runpy.run_path(str(RESULTS / "proximal.py"))
    numbers = json.loads((RESULTS / "proximal.json").read_text())
    assert script["page_of"](numbers) == (RESULTS / "proximal.md").read_text()
    other = numbers | {"runs": numbers["runs"] | {"behavior-8": numbers["runs"]["recent-8"]}}
    assert "is 0.00 [" in script["page_of"](other)


def test_the_page_of_training_returns_has_its_numbers() -> None:
    script = runpy.run_path(str(RESULTS / "training_returns.py"))
    page = script["PAGE"].read_text()
    assert script["with_table"](page, json.loads(script["NUMBERS"].read_text())) == page


@needs_envpool
@needs_sb3
def test_the_page_of_the_drop_in_class_has_its_rows() -> None:
    script = runpy.run_path(str(RESULTS / "sb3_returns.py"))
    page = (RESULTS / "sb3-returns.md").read_text()
    assert script["with_table"](page, script["rows_in"](script["ROWS"])) == page


def test_presets_have_what_their_search_found() -> None:
    """Those of environments on which nothing was learned are no presets."""
    found = json.loads((RESULTS / "presets.json").read_text())
    learned = {env: one["settings"] for env, one in found.items() if env in ENVIRONMENTS}
    assert len(learned) > 5
    for env, settings in learned.items():
        config = preset("ppo", env)
        has = {**vars(config), **vars(config.hypers)}
        assert {name: has[name] for name in settings} == settings, env


def test_the_table_of_all_claims_is_that_of_the_rows() -> None:
    """Every number and verdict of docs/results/README.md; links and words are the script's too."""
    claims = runpy.run_path(str(RESULTS / "claims.py"))
    assert claims["page"]() == (RESULTS / "README.md").read_text()


def test_verdicts_of_the_table_follow_from_intervals() -> None:
    claims, ends = runpy.run_path(str(RESULTS / "claims.py")), ((0.01, 0.2), (-0.02, 0.03), (-0.02, 0.2), (-0.2, -0.1))
    expected = {
        "above": ["holds", "does not hold", "undecided", "does not hold"],
        "improves": ["holds", "undecided", "undecided", "does not hold"],
        "none": ["does not hold", "holds", "undecided", "does not hold"],
        "differs": ["holds", "does not hold", "undecided", "holds"],
        "no_loss": ["holds", "holds", "holds", "does not hold"],
    }
    for name, verdicts in expected.items():
        assert [claims[name](Estimate(0.0, *each)) for each in ends] == verdicts, name
