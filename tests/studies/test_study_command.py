"""The command `study`: list, run, report, and what it complains about."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import fake_study
import pytest

from isobatch.cli.main import main
from isobatch.cli.study import BLOG_POST_MINUTES
from isobatch.errors import RunError
from isobatch.studies import runner
from isobatch.studies.claims import STUDIES
from isobatch.studies.report import make_report
from isobatch.studies.runner import parts_of
from isobatch.studies.study_directory import StudyDirectory

pytestmark = pytest.mark.xdist_group("studies")


PAGES = Path(__file__).parents[2] / "docs"
FAKE = fake_study.STUDY


def test_list_needs_no_jax() -> None:
    code = "import sys; from isobatch.cli.main import main; main(['study', 'list']); sys.exit('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0
    assert all(name in done.stdout for name in STUDIES)


@pytest.mark.usefixtures("registered")
def test_the_command_runs_reports_and_lists(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    out = tmp_path / "fake"
    assert main(["study", "run", "fake", "--out", str(out)]) == 0
    printed, progress = capsys.readouterr()
    assert "What it shows" in printed
    assert "Fast minus slow" in printed
    assert "Probe-Delay" in printed
    assert "part 3 of 3" in progress
    assert f"Report, to open in a browser: {out / 'report.html'}" in printed.replace("\n", "")
    pictures = sorted(path.name for path in out.glob("*.png"))
    assert pictures == ["curves-4.png", "curves-8.png", "scores.png"]  # no average: one setting is on both environments
    assert {path.with_suffix(".svg") for path in out.glob("*.png")} == set(out.glob("*.svg"))
    for path in (*out.glob("*.png"), *out.glob("*.svg")):
        path.unlink()
    assert main(["study", "report", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["finished"]
    assert found["study"] == "fake"
    assert len(found["table"]) == 5 + 1
    assert all(Path(path).stat().st_size > 5000 for path in found["pictures"])
    assert Path(found["page"]) == out / "report.html"
    assert main(["study", "list", "--json"]) == 0
    assert {study["name"] for study in json.loads(capsys.readouterr().out)["studies"]} == {*STUDIES, "pendulum-post"}


def test_the_list_sums_its_minutes(capsys: pytest.CaptureFixture) -> None:
    """The hours of `transfer` are those of its page."""
    assert main(["study", "list"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    total = BLOG_POST_MINUTES + sum(study.minutes for study in STUDIES.values() if study.minutes)
    (hours,) = re.findall(
        r"all of it takes ([\d.]+) hours on two cores", (PAGES / "results" / "transfer.md").read_text()
    )
    assert f"minutes of all: {total}; transfer, which is not in it: {hours} hours, one run after the other" in said
    assert "with `--processes 2` (asynchrony without)" in said
    alone = [name for name in STUDIES if "--processes" not in text_of(name) and name != "transfer"]
    assert alone == ["asynchrony"]


def text_of(study: str) -> str:
    return (PAGES / "results" / f"{study}.md").read_text()


def test_the_page_names_every_study_with_its_seeds() -> None:
    page = (PAGES / "studies.md").read_text()
    asked, results = page.split("## What they ask")[1].split("## Scales")
    results = results.split("## Files")[0]
    quick, laptop = (re.findall(rf"\| `{scale}` \| (.*) \|\n", results)[0] for scale in ("quick", "laptop"))
    for name, study in STUDIES.items():
        assert f"| `{name}` |" in asked
        assert f"(results/{name}.md)" in results
        sizes = {scale: study.grid(scale).sizes() for scale in ("quick", "laptop")}
        if (seeds := sizes["quick"]["seeds"]) != 4:
            assert seeds == 3
            assert re.search(rf"4 seeds \(.*`{name}`.* 3\)", quick)
        if (seeds := sizes["laptop"]["seeds"]) != 6:
            assert re.search(rf"6 seeds \(.*`{name}` {seeds}\b", laptop)
        if not any("CartPole" in env for env in sizes["quick"]["environments"]):
            (env,) = (env.removesuffix("-v1") for env in sizes["quick"]["environments"])
            assert f"`{name}` has {env} alone" in quick


@pytest.mark.usefixtures("registered")
def test_a_report_on_half_a_study(finished: Path, tmp_path: Path) -> None:
    path = tmp_path / "fake"
    shutil.copytree(finished, path)
    results, parts = StudyDirectory.read(path), parts_of(FAKE.grid("quick"))
    results.part(parts[2], ".json").unlink()
    results.collect(parts)
    found = make_report(path)
    assert found["verdict"] == ["4 of 5 settings are finished: run the study again to go on, then there is a verdict."]
    assert len(found["table"]) == 4
    (path / "rows.csv").unlink()
    with pytest.raises(RunError, match="has no finished part yet"):
        make_report(path)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["run", "invarianc"], "study 'invarianc' is unknown; did you mean invariance?"),
        (["run", "staleness", "--scale", "labtop"], "scale='labtop' is unknown; did you mean laptop?"),
        (["run", "staleness", "--preset", "laptop"], "use --scale laptop."),
        (["run"], "needs the name of a study"),
        (["report"], "needs the directory of a study"),
        (["report", "/nowhere"], "holds no study"),
        (["list", "ewma"], "takes no name"),
        (["run", "pendulum-post", "--scale", "laptop"], "scale='laptop': pendulum-post has one size: leave it out."),
        (["run", "pendulum-post", "--envs", "Acrobot-v1"], "pendulum-post has one environment: leave it out."),
        (["rum", "ewma"], "action 'rum' is unknown; did you mean run?"),
    ],
)
def test_bad_usage(words: list[str], sentence: str, capsys: pytest.CaptureFixture) -> None:
    assert main(["study", *words]) == 2
    captured = capsys.readouterr()
    assert sentence in captured.err
    assert captured.out == ""


def test_an_interrupted_study_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    def interrupt(*args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "run_study", interrupt)
    assert main(["study", "run", "ewma", "--out", str(tmp_path / "out")]) == 130
    assert "the same command goes on from there" in capsys.readouterr().err
