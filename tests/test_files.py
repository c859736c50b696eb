"""Files are replaced as a whole, whoever reads, writes or plants something meanwhile."""

import os
import threading
from pathlib import Path

import pytest

from isobatch.files import draft_of, replace_file


def test_readers_see_the_old_content_or_the_new_one(tmp_path: Path) -> None:
    path, whole, done = tmp_path / "file", {letter * 50_000 for letter in "ab"}, threading.Event()
    replace_file(path, "a" * 50_000)

    def write() -> None:
        for i in range(100):
            replace_file(path, "ab"[i % 2] * 50_000)
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    while not done.is_set():
        assert path.read_text() in whole
    thread.join()
    assert os.listdir(tmp_path) == ["file"]


def test_a_draft_follows_no_planted_link(tmp_path: Path) -> None:
    precious, path = tmp_path / "precious", tmp_path / "file"
    precious.write_text("precious")
    path.with_name(f"file.{os.getpid()}.new").symlink_to(precious)
    replace_file(path, "new")
    assert precious.read_text() == "precious"
    assert path.read_text() == "new"
    assert not path.is_symlink()


def test_a_failure_leaves_the_old_file_and_no_draft(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def fail() -> None:
        with draft_of(path) as draft:
            draft.write_text("half")
            raise OSError(28, "full")

    with pytest.raises(OSError, match="full"):
        fail()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]
