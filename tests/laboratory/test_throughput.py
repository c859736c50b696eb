"""Steps per second at more and more environments, until more add hardly any."""

import pytest
from tiny import tiny

from isobatch.laboratory import throughput as module
from isobatch.laboratory.throughput import throughput


class Clock:
    """A step of all environments takes 1 ms, and 10 microseconds more for each."""

    def seconds(self, num_envs: int, num_steps: int) -> float:
        return num_steps * (1e-3 + 1e-5 * num_envs)


def test_more_environments_are_timed_until_they_add_hardly_any_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Speeds N / (1e-3 + 1e-5 N) are 99,000 at 4,096: 9 % more than at 1,024, but 37 % more than at 256."""
    monkeypatch.setattr(module, "source_of", lambda config, env, state: Clock())
    measured = throughput(tiny())
    assert [count for count, _ in measured] == [1, 4, 16, 64, 256, 1024, 4096]
    assert dict(measured)[64] == pytest.approx(64 / 1.64e-3)
    monkeypatch.setattr(Clock, "seconds", lambda self, num_envs, num_steps: num_envs * num_steps * 1e-3)
    assert [count for count, _ in throughput(tiny())] == [1, 4, 16]  # one after another: the speed does not grow


def test_what_is_measured_is_a_real_rollout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COUNTS", (1, 4))
    assert [(count, speed > 0) for count, speed in throughput(tiny())] == [(1, True), (4, True)]
