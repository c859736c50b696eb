"""What ended a command, as an exit code and one sentence.

Exit codes: 0 done, 1 failed, 2 bad usage, 130 interrupted, by Ctrl-C, SIGTERM or SIGHUP. ISOBATCH_TRACEBACK=1 shows
tracebacks.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import suppress

from isobatch.errors import RunError, UsageError, brief, first_line
from isobatch.files import FULL

FIXES = {
    errno.ENOSPC: "make room, and give the command again",
    errno.EDQUOT: "make room in your quota, and give the command again",
    errno.EROFS: "name a place that can be written",
    errno.EACCES: "name a place that you may read and write, or ask its owner",
    errno.EPERM: "name a place that you may read and write, or ask its owner",
    errno.ENOENT: "check the path, and that nobody removes it meanwhile",
    errno.ENOTDIR: "check the path",
    errno.EISDIR: "name a file, not a directory",
    errno.ENAMETOOLONG: "use a shorter name",
    errno.ELOOP: "check the links on the path",
    errno.EMFILE: "raise the limit of open files (ulimit -n), or lower num_envs",
    errno.ENFILE: "raise the system's limit of open files, or lower num_envs",
    errno.EAGAIN: "raise the limit of processes (ulimit -u), or lower num_envs",
}
MEMORY = "lower num_envs, num_steps, num_seeds or the sizes of the networks"
LONGEST_SENTENCE = 2000  # characters of a sentence
UNEXPECTED = "unexpected"  # the word for an error that nobody foresaw, which is a fault of this package


def outcome(error: BaseException) -> tuple[int, str]:
    """Exit code and sentence; an empty one where there is nothing to say."""
    if isinstance(error, UsageError):
        return 2, str(error)
    if isinstance(error, RunError):
        return 1, str(error)
    if isinstance(error, KeyboardInterrupt):
        return 130, "interrupted."
    if isinstance(error, BrokenPipeError):  # the reader of a pipe went away
        return 1, ""
    if isinstance(error, SystemExit):
        return 1, f"code that this command called ended it by sys.exit({printable(repr(error.code))})."
    return 1, _sentence(error)


def _sentence(error: BaseException) -> str:
    for cause in _causes(error):
        text = str(cause)
        if (isinstance(cause, OSError) and cause.errno in FULL) or "No space left on device" in text:
            return f"the disk is full{_where(cause)}: {FIXES[errno.ENOSPC]}."
        if isinstance(cause, MemoryError) or getattr(cause, "errno", None) == errno.ENOMEM:
            return f"there is not enough memory{_detail(text)}: {MEMORY}."
        if "RESOURCE_EXHAUSTED" in text:  # XLA's
            return (
                f"there is not enough memory{_detail(first_line(cause).split('RESOURCE_EXHAUSTED: ')[-1])}: {MEMORY}."
            )
        if _is_of("wandb", cause):
            return (
                f"Weights & Biases cannot be used ({first_line(cause).rstrip('.')}): `wandb login`, set "
                "WANDB_MODE=offline, or leave --wandb-project out."
            )
    if isinstance(error, OSError) and error.errno is not None:
        fix = FIXES.get(error.errno, "check the path")
        return f"{error.strerror or type(error).__name__}{_where(error)}: {fix}."
    return (
        f"{UNEXPECTED} {type(error).__name__}{_detail(first_line(error))}: this is a fault of isobatch; please report "
        "it with what ISOBATCH_TRACEBACK=1 prints."
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    for _ in range(10):  # chains of errors may be circular
        if cause is None:
            return
        yield cause
        cause = cause.__cause__ or cause.__context__


def _is_of(package: str, error: BaseException) -> bool:
    """Whether an error was raised by a package, or by what it called."""
    modules = [type(error).__module__]
    frame = error.__traceback__
    while frame is not None:
        modules.append(frame.tb_frame.f_globals.get("__name__", ""))
        frame = frame.tb_next
    return any(module.partition(".")[0] == package for module in modules)


def _where(error: BaseException) -> str:
    name = getattr(error, "filename", None)
    return f" ({brief(os.fsdecode(name))})" if isinstance(name, (str, bytes)) else ""


def _detail(text: str) -> str:
    return f" ({text.rstrip('.')})" if text else ""


def printable(text: str) -> str:
    """One line without characters that steer a terminal, and without the middle if it is very long."""
    if len(text) > LONGEST_SENTENCE:
        text = f"{text[: LONGEST_SENTENCE // 2]} ... {text[-LONGEST_SENTENCE // 2 :]}"
    return "".join(c if c.isprintable() else " " if c in "\n\t" else ascii(c)[1:-1] for c in text)


def report(error: BaseException) -> int:
    """Say what ended the command on standard error, and return the exit code."""
    code, sentence = outcome(error)
    if os.environ.get("ISOBATCH_TRACEBACK") and code == 1:
        import traceback

        with suppress(OSError, ValueError):
            traceback.print_exception(error)
    with suppress(OSError, ValueError):  # standard error is full or closed too
        if sentence:
            print(f"isobatch: {printable(sentence)}", file=sys.stderr, flush=True)
    return code
