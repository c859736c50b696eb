"""A study that was run, and the same study among those that the command line knows."""

from pathlib import Path

import fake_study
import pytest

from isobatch.studies.claims import STUDIES
from isobatch.studies.runner import run_study


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("studies") / "fake"
    run_study(fake_study.STUDY, "quick", path)
    return path


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STUDIES, "fake", fake_study.STUDY)
