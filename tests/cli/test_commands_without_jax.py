"""Commands that merely compute numbers answer at once and load no JAX."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest
from command_words import BASE, SAMPLE

PROBE = """
import sys
from isobatch.cli.main import main
try:
    code = main(sys.argv[1:])
except SystemExit as help_was_printed:
    code = help_was_printed.code
loaded = {"jax", "numpy", "matplotlib", "equinox"} & set(sys.modules)
sys.exit(f"loaded {sorted(loaded)}" if loaded else code)
"""


@pytest.mark.parametrize(
    "words",
    [
        ["rescale", "--help"],
        ["rescale", *BASE, "--to-num-envs", "4"],
        ["rescale", "--from-zoo", str(SAMPLE), "--algo", "ppo", "--env", "Inherited-v0", "--factor", "2"],
    ],
)
def test_instant_and_without_jax(words: list[str]) -> None:
    """No JAX is loaded, and the whole command takes less than half a second of processor time, the best of three."""
    seconds = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([sys.executable, "-c", PROBE, *words], capture_output=True, text=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert done.returncode == 0, done.stderr
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(seconds) < 0.5, seconds


def test_a_search_that_cannot_be_made_is_refused_before_jax_is_loaded() -> None:
    lines = ["import sys", "from isobatch.cli.main import main", "code = main(sys.argv[1:])"]
    lines.append("sys.exit(code + 10 * ('jax' in sys.modules))")
    words = [sys.executable, "-c", "\n".join(lines), "tune", "--budget", "1000"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert "budget=1,000 is below one trial" in done.stderr
    assert done.returncode == 2
