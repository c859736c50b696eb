"""A finished run of twelve iterations, shared by tests, which copy it before they harm it."""

import shutil
from pathlib import Path

import pytest
from tiny import OPTIONS, tiny


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from isobatch.training.trainer import train

    run_dir = tmp_path_factory.mktemp("runs") / "finished"
    train(tiny(), run_dir=run_dir, **OPTIONS)
    return run_dir


@pytest.fixture
def run_dir(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))
