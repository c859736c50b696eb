"""Command lines, files, streams and machines at their worst: one sentence and an exit code, never a traceback.

`make fuzz` draws thousands more.
"""

from __future__ import annotations

import errno
import io
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from isobatch.cli import failures, rescale
from isobatch.cli import main as command
from isobatch.cli.main import main
from isobatch.errors import RunError
from isobatch.files import write_file
from isobatch.training.trainer import stop_signals

FAULT = "a fault of isobatch"


def complaint(capsys: pytest.CaptureFixture) -> str:
    """The one line on standard error."""
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("isobatch: ")
    assert FAULT not in lines[0]
    assert lines[0].isprintable()
    return lines[0]


def nine_fold(entry: str) -> str:
    """A short text whose aliases stand for 9^9 values."""
    lines = ["a: &a " + entry]
    for before, after in zip("abcdefgh", "bcdefghi", strict=True):
        aliases = ", ".join([f"*{before}"] * 9)
        lines.append(f"{after}: &{after} " + (f"[{aliases}]" if entry.startswith("[") else f"{{<<: [{aliases}]}}"))
    return "\n".join(lines)


FILES = {
    nine_fold("[x, x]"): "repeats itself without end",
    nine_fold("[x, x]") + "\nnum_envs: *i": "repeats itself without end",
    nine_fold("{x: 1, y: 2}"): "is not valid YAML at line",
    "num_envs: &a [*a]": "repeats itself without end",
    "num_envs: " + "[" * 1200 + "]" * 1200: "is nested too deeply",
    "env_kwargs: " + "{a: " * 600 + "1" + "}" * 600: "is nested too deeply",
    "x: " + "y" * 300_000: "has 300,003 characters, more than settings need",
    "num_envs: !!int abc": "is not valid YAML (invalid literal for int() with base 10: 'abc')",
    "num_envs: !!bool 3": "is not valid YAML: use lines of",
    "num_envs: !!timestamp x": "is not valid YAML: use lines of",
    "env: 2020-13-45": "is not valid YAML (month must be in 1..12)",
    "env: 2020-01-01": "env=datetime.date(2020, 1, 1) is not valid: use a text of one line",
    "env: 5": "env=5 is not valid: use a text of one line",
    "env: [1]": "env=[1] is not valid: use a text of one line",
    'env: "\\e[2J"': r"env='\x1b[2J' is not valid",
    "algo: {}": "algo={} is not valid: use a text of one line",
    "preset: [1]": "preset=[1] is not valid: use a text of one line",
    "num_envs: 0": "num_envs=0 must be at least 1",
    "num_envs: 0x" + "f" * 5000: "holds a whole number of 20000 bits",
    "num_envs: " + "9" * 5000: "is not valid",
    "gamma: .nan": "gamma=nan is out of range",
    "self: 1": "unknown setting 'self'",
    "null: 3": "unknown setting 'None'",
    "a: \0": "is not valid YAML",
    "? [1, 2]\n: 3": "is not valid YAML",
    "!!python/object/apply:os.system ['true']": "is not valid YAML at line 1",
    "---\na: 1\n---\nb: 2": "is not valid YAML at line",
    "env_kwargs: {a: 2020-01-01}": "env_kwargs={'a': datetime.date(2020, 1, 1)} is not valid",
    "env_kwargs: {1: 2}": "env_kwargs={1: 2} is not valid: use a mapping",
    "": "is not a mapping but empty",
}


@pytest.mark.parametrize("text", FILES, ids=lambda text: repr(text[:20]))
def test_files(text: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(text)
    assert main(["rescale", "--config", str(path), "--factor", "2"]) == 2
    assert FILES[text] in complaint(capsys)


LINES = {
    ("rescale", "--factor", "nan"): "factor=nan is not a target",
    ("rescale", "--actors", "ray", "--factor", "2"): "actors='ray' says where and not how many: use ray:2.",
    ("rescale", "--factor", "1e309"): "factor=inf is not a target",
    ("rescale", "--to-num-envs", "9" * 5000): "to_num_envs='999",
    ("rescale", "--num-envs", "1e300", "--factor", "2"): "num_envs=1000",
    ("rescale", "--num-envs", "\N{SUPERSCRIPT TWO}", "--factor", "2"): "num_envs=",
    ("rescale", "--config", "/dev/zero", "--factor", "2"): "--config '/dev/zero' is larger than",
    ("rescale", "--config", ".", "--factor", "2"): "cannot be read (Is a directory)",
    ("rescale", "--config", "\udcff", "--factor", "2"): r"--config '\udcff' cannot be read (No such file",
    ("rescale", "--config", "x" * 300, "--factor", "2"): "cannot be read (File name too long)",
    ("rescale", "--from-zoo", "/dev/zero", "--algo", "ppo", "--env", "x", "--factor", "2"): "is larger than",
    ("rescale", "--factor", "2", "--out", "/dev/null"): "'/dev/null' is there and is not a file",
    ("rescale", "--noise-scale", "perhaps", "--factor", "2"): "noise_scale='perhaps' is not valid: use true or false",
    ("rescale", "x" * 10_000, "--factor", "2"): "File name too long ('xxx",
    ("train", "--env", "[/x]"): "env='[/x]' is unknown",
    ("train", "--env", ""): "env='' is unknown",
    ("train", "--env", "\x1b[2J"): r"env='\x1b[2J' is not valid",
    (
        "train",
        "--env",
        ":Id",
    ): "env=':Id' names a module that fails while it is imported (ValueError: Empty module name)",
    ("train", "--env", "no_such_module:Id"): "cannot be imported (No module named 'no_such_module')",
    ("train", "--seed", str(2**31)): f"seed={2**31} must be at most {2**31 - 1}",
    ("train", "--seed", str(2**63)): f"seed={2**63} must be at most {2**31 - 1}",
    ("train", "--num-seeds", str(2**31 - 1)): "must be at most 100000",
    ("train", "--num-envs", "100000000000000000", "--total-timesteps", "1e19"): "must be at most",
    ("advise", "--action-dim", "-1"): "action_dim=-1 is out of range",
    ("eval", "[/x]"): "run_dir='[/x]' holds no run",
    ("study", "report", "\N{PILE OF POO}"): "holds no study",
    ("\x1b[2J",): r"command '\x1b[2J' is unknown",
    ("a" * 10_000,): " ... ",
}


@pytest.mark.parametrize("words", LINES, ids=lambda words: ascii(" ".join(words))[:40])
def test_command_lines(words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(list(words)) in (1, 2)
    captured = capsys.readouterr()
    assert captured.err.splitlines()[-1].startswith("isobatch: ")
    assert FAULT not in captured.err
    assert LINES[words] in captured.err
    assert len(captured.err) < 4000


def test_text_is_not_markup_and_flags_to_paste_are_quoted(capsys: pytest.CaptureFixture) -> None:
    assert main(["rescale", "--env", "[/x] $(id)", "--to-num-envs", "4"]) == 0
    out = capsys.readouterr().out
    assert "ppo on [/x] $(id), batches" in out
    assert "--env '[/x] $(id)'" in out


def test_a_module_that_exits_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    (tmp_path / "exits_at_once.py").write_text("import sys\nsys.exit(3)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["train", "--env", "exits_at_once:Id", "--run-dir", str(tmp_path / "run")]) == 2
    assert "names a module that fails while it is imported (SystemExit: 3)" in capsys.readouterr().err


class XlaRuntimeError(RuntimeError):
    pass


class CommError(Exception):
    __module__ = "wandb.errors"


def wrapped(cause: BaseException) -> BaseException:
    error = ValueError("writing failed")
    error.__cause__ = cause
    return error


ERRORS = [
    (OSError(errno.ENOSPC, "No space left on device", "metrics.csv"), "the disk is full ('metrics.csv'): make room"),
    (ValueError("INTERNAL: [OS error 28: No space left on device]"), "the disk is full: make room"),
    (wrapped(OSError(errno.EDQUOT, "Disk quota exceeded")), "the disk is full: make room"),
    (OSError(errno.EROFS, "Read-only file system", "runs"), "Read-only file system ('runs'): name a place"),
    (PermissionError(errno.EACCES, "Permission denied", "runs"), "Permission denied ('runs'): name a place"),
    (FileNotFoundError(errno.ENOENT, "No such file or directory", "run/x"), "'run/x'): check the path"),
    (OSError(errno.EMFILE, "Too many open files"), "Too many open files: raise the limit of open files (ulimit -n)"),
    (MemoryError(), "there is not enough memory: lower num_envs"),
    (XlaRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes."), "(Out of memory allocating 8 bytes): "),
    (CommError("api_key not configured (no-tty)."), "Weights & Biases cannot be used (api_key not configured"),
    (SystemExit(7), "ended it by sys.exit(7)"),
    (RunError("one\ntwo\x1b[2J"), r"isobatch: one two\x1b[2J"),
]  # fmt: skip


@pytest.mark.parametrize(("error", "sentence"), ERRORS, ids=lambda x: type(x).__name__)
def test_errors(error: BaseException, sentence: str, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    def fails(args: object) -> int:
        raise error

    monkeypatch.setattr(rescale, "run", fails)
    assert main(["rescale"]) == 1
    assert sentence in complaint(capsys)


def test_what_nobody_foresaw_asks_for_a_report(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(rescale, "run", lambda args: {}["x"])
    assert main(["rescale"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("isobatch: unexpected KeyError ('x')")
    assert FAULT in err
    assert "Traceback" not in err
    monkeypatch.setenv("ISOBATCH_TRACEBACK", "1")
    assert main(["rescale"]) == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [[], ["--batch-schedule", "0:8,0.5:16", "--lr-schedule", "constant"]])
def test_a_disk_without_room_for_a_run(
    flags: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """The fix is to make room, and the exit code that of a failure, as when it fills up later."""

    def full(*args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "mkdir", full)
    assert main(["train", "--run-dir", str(tmp_path / "run"), "--total-timesteps", "4096", "--json", *flags]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(f"isobatch: run_dir='{tmp_path / 'run'}' cannot be written (No space left on device)")
    assert "make room" in said


def test_broken_pipes_say_nothing() -> None:
    assert failures.outcome(BrokenPipeError()) == (1, "")


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_asked_to_end_says_so(sent: int, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """As after Ctrl-C; also where SIGTERM comes twice, as from `timeout`, and the second one while things are put
    away; and where the terminal is closed."""

    def asked(args: object) -> int:
        try:
            os.kill(os.getpid(), sent)
            time.sleep(60)
        finally:
            os.kill(os.getpid(), sent)
            put_away.append(True)
        return 0

    put_away: list[bool] = []
    before = signal.getsignal(sent)
    monkeypatch.setattr(rescale, "run", asked)
    assert main(["rescale"]) == 130
    assert complaint(capsys) == "isobatch: interrupted."
    assert put_away
    assert signal.getsignal(sent) == before


def test_the_end_of_a_terminal_changes_nothing_where_it_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `nohup` has it, whatever a command and training do about other signals."""

    def closed(args: object) -> int:
        os.kill(os.getpid(), signal.SIGHUP)
        with stop_signals(lambda sentence: None) as stopped:
            os.kill(os.getpid(), signal.SIGHUP)
            return int(stopped.is_set())

    monkeypatch.setattr(rescale, "run", closed)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert main(["rescale"]) == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_drafts_do_not_follow_planted_links(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / f"new.yaml.{os.getpid()}.new").symlink_to(victim)
    write_file(tmp_path / "new.yaml", "text")
    assert victim.read_text() == "mine"
    assert (tmp_path / "new.yaml").read_text() == "text"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_terminals_that_lack_characters(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    streams = [io.TextIOWrapper(io.BytesIO(), encoding=encoding) for _ in range(2)]
    monkeypatch.setattr(sys, "stdout", streams[0])
    monkeypatch.setattr(sys, "stderr", streams[1])
    assert main(["rescale", "--env", "\N{GREEK SMALL LETTER PI}", "--to-num-envs", "4"]) == 0
    assert main(["advise"]) == 0  # which draws
    assert main(["train", "--env", "\N{GREEK SMALL LETTER PI}"]) == 2
    assert b"\\u03c0" in streams[0].buffer.getvalue()
    assert b"\\u03c0" in streams[1].buffer.getvalue()


SHELL = [
    ("{} rescale --to-num-envs 4 > /dev/full", 1, "standard output cannot be written (No space left on device)"),
    ("{} rescale --to-num-envs 4 --json > /dev/full", 1, "standard output cannot be written (No space left on device)"),
    ("{} --help > /dev/full", 1, "standard output cannot be written"),
    ("{} rescale --to-num-envs 4 >&-", 0, ""),
    ("{} rescale --to-num-envs 4 <&- >&- 2>&-", 0, ""),
    ("{} rescale --to-num-envs 0 2> /dev/full", 2, ""),
    ("{} rescale --to-num-envs 0 2>&-", 2, ""),
    ("set -o pipefail; {} rescale --help-all | true", 1, ""),
    ("mkdir gone && cd gone && rmdir ../gone && {} rescale --to-num-envs 4 > /dev/null", 0, ""),
    ("mkdir gone; cd gone; rmdir ../gone; {} rescale --factor 2 --out x.yaml > /dev/null", 2, "cannot be written"),
]  # fmt: skip


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(("script", "code", "says"), SHELL, ids=[script[:60] for script, *_ in SHELL])
def test_streams_and_directories(script: str, code: int, says: str, unbuffered: str, tmp_path: Path) -> None:
    source = Path(command.__file__).parents[2]
    env = os.environ | {"PYTHONPATH": str(source), "PYTHONUNBUFFERED": unbuffered, "PYTHONSAFEPATH": "1"}
    done = subprocess.run(
        ["bash", "-c", script.format(f"{shlex.quote(sys.executable)} -m isobatch")],
        cwd=tmp_path, env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr.count("\n")) == (code, 1 if says else 0), done.stderr
    assert says in done.stderr


def test_progress_that_nobody_takes_does_not_end_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from isobatch.cli import console

    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sys, "stderr", Full())
    console.say("a remark")
    with console.training_bar(2, quiet=False) as watch:
        watch(SimpleNamespace(env_steps=2, steps_per_second=1, seconds_left=0, episodic_return=1.0))
