"""Cores of this machine, and of systems that do not tell which ones a process may use."""

import os

import pytest

from isobatch.executors.cores import available_cores, stay_on


def test_those_that_the_process_may_use() -> None:
    before = available_cores()
    assert set(before) == os.sched_getaffinity(0)
    try:
        stay_on(before[:1])
        assert available_cores() == before[:1]
    finally:
        stay_on(before)


def test_all_where_the_system_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.delattr(os, "sched_setaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert available_cores() == [0, 1, 2]
    stay_on([0])  # nothing happens
