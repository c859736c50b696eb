"""The page of a study as a file: what it says, that it needs nothing else, and that it depends on nothing else."""

import dataclasses
import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import made_up_study
import pytest

from isobatch.studies import html_data
from isobatch.studies.charts import seed_lines
from isobatch.studies.claims import STUDIES
from isobatch.studies.html_data import short
from isobatch.studies.report import PAGE, amount, duration, make_report

pytestmark = pytest.mark.xdist_group("study-page")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = made_up_study.write_study(tmp_path_factory.mktemp("page") / "made-up")
    report(path)
    return path


def report(path: Path, study: Any = made_up_study.STUDY) -> dict[str, Any]:
    """The page without the pictures, which take longer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(STUDIES, study.name, study)
        patch.setattr("isobatch.studies.report.draw_study", lambda *rest: [])
        return make_report(path)


def text_of(path: Path) -> str:
    return (path / PAGE).read_text(encoding="utf-8")


def data_of(path: Path) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text_of(path), re.DOTALL)
    assert found
    return json.loads(found.group(1))


def test_it_says_what_was_run_and_what_came_out(made: Path) -> None:
    text = unescape(re.sub("<[^>]*>", "", text_of(made)))
    info = json.loads((made / "study.json").read_text())
    for words in (
        "Learning does not depend on the batch size <if all rules hold>.",
        "The smallest batch minus the largest: ",
        "isobatch study run made-up --scale quick",
        "CartPole-v1, Acrobot-v1, Breakout-MinAtar",
        "27 settings x 3 seeds",
        "1 min 52 s, compilation included",  # nine parts of 12.5 s
        f"jax {info['versions']['jax'][0]}",
        f"python {info['versions']['python'][0]}",
        "all environments",
    ):
        assert words in text
    assert "Not finished" not in text


def test_it_loads_nothing(made: Path) -> None:
    text = text_of(made)
    assert re.findall(r"https?://[^\"'\s)]+", text) == ["http://www.w3.org/2000/svg"]  # a name, not an address
    assert re.findall(r'(?:src|href)\s*=\s*"([^"]*)"', text) == ["data:,"]
    assert "default-src 'none'" in text
    assert "@import" not in text
    assert "fetch(" not in text


def test_names_cannot_end_the_script(made: Path) -> None:
    text = text_of(made)
    assert text.count("<script") == text.count("</script>") == 2
    assert any("betas </script> too" in line["label"] for view in data_of(made)["views"] for line in view["lines"])


def test_the_same_files_give_the_same_bytes(made: Path) -> None:
    before = (made / PAGE).read_bytes()
    report(made)
    assert (made / PAGE).read_bytes() == before
    assert not list(made.glob("*.new"))


def test_curves_are_those_of_the_files(made: Path) -> None:
    from isobatch.studies.study_directory import StudyDirectory
    from isobatch.training.metrics import RETURN

    data, curves = data_of(made), StudyDirectory.read(made).curves()
    last = {env["name"]: env["last"] for env in data["environments"]}
    for view in data["views"]:
        for line in view["lines"]:
            for env, cell in line["cells"].items():
                _, wanted = seed_lines(curves[cell], RETURN, data["points"], last[env])
                assert data["cells"][cell]["lines"][RETURN] == [[short(value) for value in seed] for seed in wanted]


def test_views_are_those_of_the_pictures_and_everything(made: Path) -> None:
    views = {view["title"]: [line["label"] for line in view["lines"]] for view in data_of(made)["views"]}
    assert list(views) == [*made_up_study.RULES, "everything"]
    assert views["all rules"] == ["c = 1 (base)", "c = 4", "c = 16"]
    assert views["no Adam rule"] == ["c = 1 (base)", "c = 4", "c = 16"]
    assert len(views["everything"]) == 9


def test_runs_without_values_are_there(made: Path) -> None:
    data = data_of(made)
    everything = {line["label"]: line["cells"] for line in data["views"][-1]["lines"]}
    lost = data["cells"][everything["no Adam rule, c = 16"]["CartPole-v1"]]
    assert lost["diverged"] == {"0": 40960, "1": 61440}
    ends = [max(i for i, value in enumerate(seed) if value is not None) for seed in lost["lines"][html_data.RETURN]]
    assert ends[0] < ends[1] < ends[2] == data["points"] - 1
    silent = data["cells"][everything[f"{made_up_study.LONG}, c = 16"]["Acrobot-v1"]]
    assert all(value is None for seed in silent["lines"][html_data.RETURN] for value in seed)
    assert any(value is not None for seed in silent["lines"][html_data.KL] for value in seed)


def test_large_studies_have_fewer_points(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert data_of(made)["points"] == 62  # lines of a run
    monkeypatch.setattr(html_data, "CURVE_NUMBERS", 50 * 81 * 3)
    report(made)
    assert data_of(made)["points"] == 50
    monkeypatch.setattr(html_data, "CURVE_NUMBERS", 1)
    report(made)
    assert data_of(made)["points"] == html_data.FEWEST_POINTS
    monkeypatch.undo()
    report(made)


def test_half_a_study_says_so(tmp_path: Path) -> None:
    path = made_up_study.write_study(tmp_path / "half", without=8)
    found = report(path)
    text = text_of(path)
    assert not found["finished"]
    assert "Not finished." in text
    assert "What it shows" not in text
    assert data_of(path)["gaps"] is None


def test_without_divisors_pictures_and_known_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = dataclasses.replace(made_up_study.STUDY, name="plain", pictures="", everywhere={}, divisor="")
    path = made_up_study.write_study(tmp_path / "plain", study=study)
    monkeypatch.setattr(html_data, "known_range", lambda study, env: None)
    report(path, study)
    data = data_of(path)
    assert [view["title"] for view in data["views"]] == [""]
    assert data["gaps"] is None
    assert [label for _, label in data["metrics"]] == ["episodic return", "episode length", "KL to the behavior policy"]


def test_settings_that_differ_and_that_do_not(made: Path) -> None:
    differ, shared = re.findall(r"<details.*?</details>", text_of(made), re.DOTALL)
    assert "num_envs" in differ
    assert "num_envs" not in shared
    assert "gamma" in differ + shared
    assert "num_steps" in shared


def test_words_for_numbers() -> None:
    assert [duration(s) for s in (0.4, 48, 125, 11_040)] == ["0 s", "48 s", "2 min 5 s", "3 h 4 min"]
    assert [amount(n) for n in (12, 4500, 11_182_080, 2e9)] == ["12", "4.5k", "11.2M", "2G"]
    assert [short(x) for x in (float("nan"), float("inf"), 500.0, 0.0123456)] == [None, None, 500, 0.01235]
