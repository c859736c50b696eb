"""What a run shows of itself: one line where somebody watches, nothing elsewhere; results that can be read."""

import io
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas
import pytest
from tiny import tiny

import isobatch as ib
from isobatch.training import display


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    ib.train(tiny())
    written = sys.stderr.getvalue()
    assert "ppo on Probe-ActionObserved: compiling ..." in written
    assert "100 %  384 steps" in written
    assert written.endswith("\r\x1b[K")
    assert written.startswith("\r\x1b[K")


@pytest.mark.parametrize("keywords", [dict(quiet=True), dict(watch=lambda progress: None)])
def test_a_terminal_sees_no_line(keywords: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    said: list[str] = []
    ib.train(tiny(), say=said.append, **keywords)
    assert sys.stderr.getvalue() == ""
    assert any(sentence.startswith("explained-variance") for sentence in said)


def test_remarks_stand_above_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    display.print_remark("a remark")
    assert sys.stderr.getvalue() == "\r\x1b[Ka remark\n"


def test_a_file_sees_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    ib.train(tiny())
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("config", "expected"), [({"IPKernelApp": {}}, True), ({"TerminalIPythonApp": {}}, False)])
def test_a_notebook_is_a_kernel(config: dict[str, Any], expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = SimpleNamespace(get_ipython=lambda: SimpleNamespace(config=config))
    monkeypatch.setitem(sys.modules, "IPython", shell)
    assert display.is_notebook() is expected


def test_results_can_be_read() -> None:
    result = ib.train(tiny(), num_seeds=2)
    head, columns, *rows = repr(result).splitlines()
    assert head == "ppo on Probe-ActionObserved, 384 steps per seed"
    assert columns.split() == ["seed", "final", "return"]
    assert [row.split()[0] for row in rows] == ["0", "1"]
    html = result._repr_html_()
    assert html.count("<polyline") == 2
    assert "nan" not in html
    frame = result.to_pandas()
    assert frame.equals(pandas.DataFrame(result.metrics))
    assert len(frame) == 24


def test_a_run_without_episodes_has_no_curve() -> None:
    result = ib.train(tiny(env="CartPole-v1", num_steps=2, num_envs=2, num_minibatches=1, total_timesteps=4))
    assert np.isnan(result.metrics["charts/episodic_return"]).all()
    assert "<svg" not in result._repr_html_()
    assert repr(result).endswith("-")


def test_an_agent_needs_no_directory() -> None:
    result = ib.train(tiny(), num_seeds=2)
    agent = result.agent(seed=1)
    np.testing.assert_array_equal(ib.evaluate(agent, 8).returns[0], ib.evaluate(result, 8).returns[1])
    assert (result.agent().learned.seed, agent.learned.iteration) == (0, 12)
    with pytest.raises(ib.UsageError, match="policy_seed=7 is not in this run: use 0 or 1"):
        result.agent(seed=7)


def test_answers_can_be_read() -> None:
    rescaled = ib.rescale(ib.preset("ppo", "CartPole-v1"), factor=2)
    assert repr(rescaled).startswith("ppo on CartPole-v1, iteration batch / 2\nsetting")
    assert "<td>learning_rate</td>" in rescaled._repr_html_()
    advice = ib.advise(rescaled.after)
    assert repr(advice).startswith("ppo on CartPole-v1\n")
    assert str(advice.checks[0]).split()[0] in ("pass", "warn", "note")
    assert "<script" not in advice._repr_html_()
