"""What people see while a command runs, and at its end."""

from __future__ import annotations

import math
import re
import time
from types import SimpleNamespace

import pytest

from isobatch.cli import console
from isobatch.cli.main import main
from isobatch.settings.accounting import batch_accounting
from isobatch.settings.presets import preset


def test_progress_is_what_is_done(capsys: pytest.CaptureFixture) -> None:
    """8 of 9 iterations are 88 %, not the tenth below it."""
    with console.training_bar(9, quiet=False) as watch:
        for steps in range(1, 10):
            watch(SimpleNamespace(env_steps=steps, steps_per_second=1, seconds_left=9 - steps, episodic_return=0.04))
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[0] for line in lines] == ["11", "22", "33", "44", "55", "66", "77", "88", "100"]
    assert "return 0.04 " in lines[0]


def test_what_takes_long_is_said_again(capsys: pytest.CaptureFixture) -> None:
    """A line that is new at once; the newest of the others after some silence, and not before."""
    with console.progress_lines(silence=600) as show:
        show("compiling", True)
        show("half of it", False)
    assert capsys.readouterr().err == "compiling\n"
    said, end = "", time.monotonic() + 60
    with console.progress_lines(silence=0.05) as show:
        show("half of it", False)
        while said.count("half") < 2 and time.monotonic() < end:
            time.sleep(0.01)
            said += capsys.readouterr().err
    assert re.fullmatch(r"(starting, \d+ s so far\n)*(half of it, \d+ s so far\n){2,}", said)


def test_one_of_a_thing_has_no_plural() -> None:
    config = preset("ppo-ewma", num_envs=1, num_minibatches=1, update_epochs=1, beta_prox=4095 / 4096)
    text = "\n".join(sentence for _, sentence in batch_accounting(config))
    assert "1 environment x 128 steps = 128 steps" in text
    assert "1 minibatch x 1 epoch =" in text
    assert "center of mass 4,095 gradient steps" in text


def test_the_accounting_of_whole_episodes_counts_what_is_surely_used() -> None:
    """2 x (2,000 - 500 + 1) of 4,000; cut in two, half of it in the mean."""
    config = preset("reinforce")
    assert dict(batch_accounting(config, 500))["optimization batch"] == (
        "4,000 / 1 minibatch = at least 3,002 of 4,000 samples"
    )
    assert "= up to 4,000 of 4,000 samples" in dict(batch_accounting(config))["optimization batch"]
    halves = preset("ppo", complete_episodes=True, num_envs=2, num_steps=2000, num_minibatches=2)
    assert dict(batch_accounting(halves, 500))["optimization batch"] == (
        "4,000 / 2 minibatches = at least 1,501 of 2,000 samples in the mean"
    )


@pytest.mark.parametrize(
    ("aggregation", "mean", "alike"),
    [
        ("trajectory", "sum over each trajectory", "timestep times that length"),
        ("trajectory-mean", "mean over each trajectory", "the same as timestep"),
        ("constant", "1/1000 of the sum over each trajectory", "timestep times that length / 1000"),
    ],
)
def test_the_accounting_names_an_aggregation_that_is_not_the_usual_one(aggregation: str, mean: str, alike: str) -> None:
    line = dict(batch_accounting(preset("ppo", aggregation=aggregation)))["aggregation"]
    assert line == (
        f"{aggregation}: {mean} (an episode or its piece in the rollout), then the mean of these; where all have one "
        f"length, {alike}"
    )
    whole = dict(batch_accounting(preset("reinforce", aggregation=aggregation)))["aggregation"]
    assert "each trajectory (a whole episode), then" in whole
    assert "aggregation" not in dict(batch_accounting(preset("ppo")))


@pytest.mark.parametrize("words", [["rescale", "--to-num-envs", "1"], ["advise", "--num-envs", "1"], ["study", "list"]])
def test_no_trailing_blanks_and_no_wrong_plurals(words: list[str], capsys: pytest.CaptureFixture) -> None:
    assert main(words) == 0
    out = capsys.readouterr().out
    assert all(line == line.rstrip() for line in out.splitlines())
    assert "e+0" not in out
    assert " 1 environments" not in out


def test_a_missing_target_is_asked_for_by_its_flags(capsys: pytest.CaptureFixture) -> None:
    assert main(["rescale"]) == 2
    assert "use one of --to-num-envs, --to-num-steps, --to-optimization-batch, --to-devices or --factor" in (
        capsys.readouterr().err
    )


def test_tables_show_text_as_it_is(capsys: pytest.CaptureFixture) -> None:
    console.out.print(console.table("[/title]", ["[bold]a"], [["[/x] :smile:"], [console.number(math.nan)]]))
    out = capsys.readouterr().out
    assert "[/title]" in out
    assert "[bold]a" in out
    assert "[/x] :smile:" in out
