"""The page on gradients: what is measured ends up in its file, and its words follow the verdicts there."""

import functools
import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from made_up_post import around, measurements

from isobatch.laboratory.results import to_json
from isobatch.studies.blog_post_results import results_of

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(RESULTS))
    return importlib.import_module("gradients")


@pytest.fixture
def page(script: ModuleType) -> ModuleType:
    return importlib.import_module("gradients_page")


@functools.cache
def results_text(**changes: float) -> str:
    return json.dumps(to_json(results_of(measurements(**changes))))


def post(**changes: float) -> dict[str, Any]:
    return {"commands": ["isobatch study run"]} | json.loads(results_text(**changes))


def diagnosis(out: Path, worth: float) -> dict[str, Any]:
    """What `isobatch diagnose --json` prints of one checkpoint."""
    estimate = to_json(around(1.0 / 3))
    rows = [
        dict.fromkeys(("variance", "squared_bias", "error", "individual", "measured_variance"), estimate)
        | {"num_envs": 1024 // steps, "num_steps": steps, "effective_samples": to_json(around(worth, 50.0))}
        for steps in (1, 16, 256)
    ]
    checkpoint = {
        "iteration": 10,
        "env_steps": 10_240,
        "geometries": {"rows": rows, "time_limit": 200},
        "lags": {
            "correlation": [{"lag": 1, "estimate": estimate}],
            "across": estimate,
            "shares": [{"part": "single samples", "estimate": estimate}],
        },
        "sentences": ["What it means."],
    }
    return {"out": str(out), "checkpoints": [checkpoint]}


def test_the_page_and_the_readme_say_what_the_numbers_say(script: ModuleType, page: ModuleType) -> None:
    numbers = json.loads(script.NUMBERS.read_text())
    assert page.page_of(numbers) == script.PAGE.read_text()
    readme = script.README.read_text()
    assert page.HEADLINE in readme
    assert page.with_caption(readme, numbers) == readme


def test_from_what_is_measured_to_the_page(
    script: ModuleType, page: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Part by part; what is not measured now stays, and without measuring the page is made from the file."""
    here, out = tmp_path / "docs", tmp_path / "runs"
    here.mkdir()
    for name, path in (("NUMBERS", "gradients.json"), ("PAGE", "gradients.md"), ("README", "README.md")):
        monkeypatch.setattr(script, name, here / path)
    monkeypatch.setattr(script, "HERE", here)
    (here / "README.md").write_text(f"Before\n{page.HEADLINE}\nold\n{page.END}\nafter\n")

    def measured(words: list[str]) -> dict[str, Any]:
        folder = out / ("post" if "study" in words else words[2])
        folder.mkdir(parents=True, exist_ok=True)
        for name in (*page.POST_PICTURES, "000000010-geometries.png"):
            (folder / name).write_text("a picture")
        (folder / "claims.json").write_text(json.dumps(post()))
        return diagnosis(folder, 700.0)

    monkeypatch.setattr(script, "run", measured)

    def made(*words: str) -> str:
        monkeypatch.setattr("sys.argv", ["gradients.py", "--out", str(out), *words])
        script.main()
        return (here / "gradients.md").read_text()

    first = made("--only", "CartPole-v1")
    assert "The blog post" not in first
    assert "old" in (here / "README.md").read_text()
    both = made("--only", "post")
    assert "## CartPole-v1: " in both
    assert "| figure 3 | " in both
    assert "| 10,240 | 4x256 | 0.333 (0.323 to 0.343) |" in both
    assert (here / "gradients-post-geometries.png").is_file()
    assert (here / "gradients-CartPole-v1-geometries.png").is_file()
    assert len((here / "gradients.json").read_text().splitlines()) == 4
    assert "time_limit" not in (here / "gradients.json").read_text()
    assert made("--page") == both
    readme = (here / "README.md").read_text()
    assert "old" not in readme
    assert readme.startswith("Before\n")
    assert "On CartPole-v1, late in training, samples are correlated: 1,024 of 4 x 256 are worth 700" in " ".join(
        readme.split()
    )


def test_words_follow_the_verdicts(page: ModuleType) -> None:
    """Of each verdict the page has its own words, and never those of another one."""

    def words(numbers: dict[str, Any]) -> str:
        return " ".join(page.page_of({"post": numbers}).split("In plain words: ")[1].split())

    alike = words(post())
    assert "In direction: at step 399,360 they are (mean cosine +.30 at lag 1 and +.30 at lag 40, +.20 across" in alike
    assert "at step 450,560 they cannot be told to be (mean cosine +.05" in alike
    assert "the correlation of neighbors is close to zero and, with the lag, comes close to that of two" in alike
    apart = words(post(within=0.2, across=0.3, correlation=0.3))
    assert "In direction: at step 399,360 they are not (mean cosine +.20" in apart
    assert "the correlation of neighbors is not zero and, with the lag, does not come close" in apart
    assert "is +0.30 to +0.30, and above 0 by its interval at 22 of 22 checkpoints" in apart
    for name, by_verdict in {
        "longer-noisier": ("Long rollouts are noisier", "rollouts are not noisier", "Whether long rollouts"),
        "individual-grows": ("Each single sample is noisier", "samples are not noisier", "Whether single samples"),
        "effective-samples": ("is worth fewer", "is worth about as many", "Whether a rollout of 256 steps"),
        "short-biased": ("And very short rollouts", "rollouts are not more biased", "Whether very short"),
    }.items():
        for verdict, begin in zip(("holds", "does not hold", "undecided"), by_verdict, strict=True):
            numbers = post()
            for claim in numbers["claims"]:
                claim["verdict"] = verdict if claim["name"] == name else claim["verdict"]
            assert [begin in words(numbers) for begin in by_verdict] == [each == begin for each in by_verdict]


def test_the_range_of_variances_is_that_of_policies_at_which_intervals_are_apart(
    page: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "HERE", tmp_path)
    lines = ["2 x 512 9.00 [8.00, 9.50], 128 x 8 1.00 [0.90, 1.10], of something else"]
    (tmp_path / "geometry.md").write_text("\n".join(lines))
    assert page.variance_range() is None
    for short, long in (
        ("2.00 [1.80, 2.20]", "1.00 [0.90, 1.10]"),
        ("1.00 [0.90, 1.10]", "3.46 [3.00, 4.00]"),
        ("1.00 [0.90, 9.00]", "8.00 [1.00, 9.00]"),
    ):
        lines.append(f"* CartPole-v1: variance of the gradient, the least is 1: 128 x 8 {short}, 2 x 512 {long}.")
    (tmp_path / "geometry.md").write_text("\n".join(lines))
    assert page.variance_range() == ("0.5", "3.5")


def test_claims_come_from_the_file_by_their_names(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of the post in its order, but not what is not from there; without the file none."""
    claims = importlib.import_module("claims")
    claims.gradient_claims.cache_clear()
    monkeypatch.setattr(claims, "HERE", tmp_path)
    assert claims.on_gradients("short-biased") is None
    claims.gradient_claims.cache_clear()
    (tmp_path / "gradients.json").write_text(json.dumps({"post": post()}))
    expected = [claim.name for claim in results_of(measurements()).claims]
    assert list(claims.gradient_claims()) == expected
    names = [entry.found.args[0] for entry in claims.GUIDE if entry.page == "gradients"]
    assert len(names) == 2
    for name in names:
        assert claims.on_gradients(name).effect == claims.gradient_claims()[name].measured
    claims.gradient_claims.cache_clear()
