"""What `import isobatch as ib` offers: all of it is documented with examples that run, and listed in docs/api.md."""

import doctest
import inspect
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from planned_by_hand import clock_by_hand

import isobatch as ib

API = Path(__file__).resolve().parent.parent / "docs" / "api.md"
ERRORS = ("RunError", "UsageError")
# Classes that hold settings or answers: their fields are documented one by one, and other examples show them.
WITHOUT_EXAMPLE = {"Advice", "Config", "Diagnosis", "Evaluation", "Geometry", "Hypers", "LabOptions", "PolicyFunction"}
WITHOUT_EXAMPLE |= {"Plan", "Rescaled", "Step", "Tuned", *ERRORS}
LOSSES = [f"losses.{name}" for name, f in vars(ib.losses).items() if getattr(f, "__module__", "") == ib.losses.__name__]
# Functions of the public modules; those of the laboratory and of gradients compute a formula, of which these do not.
IN_MODULES = [
    f"{module.__name__.removeprefix('isobatch.')}.{name}"
    for module in (ib.gradients, ib.interop, ib.laboratory)
    for name in module.__all__
    if inspect.isfunction(inspect.unwrap(getattr(module, name)))
]
WITHOUT_SOURCE = {
    *("gradients.gram_of", "gradients.pair_sums", "gradients.pair_sums_of", "gradients.cosine_matrix"),
    *("gradients.cosine_with_mean", "laboratory.full", "laboratory.per_sample_gradients"),
}


def public(name: str) -> Any:
    """An object by its dotted name."""
    value: Any = ib
    for part in name.split("."):
        value = getattr(value, part)
    return inspect.unwrap(value)


def modules() -> list[str]:
    return [name for name in ib.__all__ if isinstance(getattr(ib, name), ModuleType)]


def test_everything_is_there_and_nothing_loads_jax_before_it_is_needed() -> None:
    assert all(hasattr(ib, name) for name in ib.__all__)
    assert dir(ib) == ib.__all__
    with pytest.raises(AttributeError, match="module 'isobatch' has no attribute 'tain'"):
        ib.tain  # noqa: B018
    code = "import sys, isobatch as ib; ib.rescale(ib.preset(), factor=2), ib.Advice, ib.gradients, ib.interop"
    subprocess.run([sys.executable, "-c", f"{code}; assert 'jax' not in sys.modules"], check=True)


@pytest.mark.parametrize("name", sorted({*ib.__all__} - {*modules()}))
def test_examples_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "plan":  # which compiles ten programs to time them
        clock_by_hand(monkeypatch)
    run_examples(public(name), name, required=name not in WITHOUT_EXAMPLE)


@pytest.mark.parametrize("name", [*LOSSES, *IN_MODULES, "gradients.Layout"])
def test_examples_in_modules_run(name: str) -> None:
    run_examples(public(name), name, required=True)


def run_examples(documented: Any, name: str, required: bool) -> None:
    assert inspect.getdoc(documented), f"{name} has no docstring"
    tests = [t for t in doctest.DocTestFinder(recurse=False).find(documented, name, globs={}) if t.examples]
    assert tests or not required, f"{name} has no example"
    output: list[str] = []
    for test in tests:
        failed = doctest.DocTestRunner(optionflags=doctest.IGNORE_EXCEPTION_DETAIL).run(test, out=output.append).failed
        assert not failed, "".join(output)


@pytest.mark.parametrize("name", [n for n in ib.__all__ if inspect.isfunction(getattr(ib, n))] + LOSSES + IN_MODULES)
def test_functions_say_what_they_take_and_give(name: str) -> None:
    text, signature = inspect.getdoc(public(name)) or "", inspect.signature(public(name))
    if signature.parameters:
        assert "Returns:" in text
        for argument in signature.parameters:
            assert re.search(rf"\b{argument}\b", text.split("Args:")[1]), f"{name}: {argument}"


@pytest.mark.parametrize("name", ["Ewma", "Moments", "gae", "rescale", "sample_weights", *LOSSES, *IN_MODULES])
def test_formulas_link_their_sources(name: str) -> None:
    """Or refer to a formula beside them, which does."""
    text = inspect.getdoc(public(name)) or ""
    refers = re.search(rf"`({'|'.join(each.rpartition('.')[2] for each in IN_MODULES)})`", text)
    assert "https://" in text or refers or name in WITHOUT_SOURCE or name.startswith("interop.")


def test_the_page_lists_the_surface() -> None:
    listed = re.findall(r"^\| `ib\.([\w.]+)` \|", API.read_text(), re.MULTILINE)
    assert sorted(listed) == ib.__all__


def test_python_of_the_page_runs() -> None:
    """With fewer steps."""
    for block in re.findall(r"```python\n(.*?)```", API.read_text(), re.DOTALL):
        exec(re.sub(r"total_timesteps=[\d_]+", "total_timesteps=2_048", block), {})


@pytest.mark.parametrize(
    ("keywords", "sentence"),
    [
        (dict(resum=True), "unknown option 'resum'; did you mean resume"),
        (dict(log_intervall=3), "unknown option 'log_intervall'; did you mean log_interval"),
        (dict(num_envs=8), "'num_envs' is a setting of the config, not an option of a run: use config.replace("),
        (dict(num_seeds=0), "num_seeds=0 must be at least 1."),
    ],
)
def test_wrong_keywords_are_one_sentence(keywords: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ib.UsageError) as caught:
        ib.train(ib.preset(), **keywords)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("name", "keyword", "meant"),
    [
        ("rescale", "num_env", "num_envs"), ("advise", "fact", "facts"), ("evaluate", "episode", "episodes"),
        ("diagnose", "option", "options"), ("plan", "scor", "score"), ("tune", "budgt", "budget"),
        ("run_study", "scle", "scale"), ("make_train", "netwrks", "networks"), ("plot", "metrics", "metric"),
        ("load_agent", "chekpoint", "checkpoint"), ("from_sb3", "num_envs", "n_envs"),
        ("Config", "num_env", "num_envs"), ("Hypers", "learning_rat", "learning_rate"),
        ("LabOptions", "budge", "budget"),
    ],
)  # fmt: skip
def test_wrong_arguments_have_the_nearest_names(name: str, keyword: str, meant: str) -> None:
    with pytest.raises(ib.UsageError, match=rf"unknown argument '{keyword}'; did you mean.* {meant}\b"):
        getattr(ib, name)(**{keyword: 1})
