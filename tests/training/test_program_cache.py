"""Programs kept from one run to the next: same bits, no crash by damage, nothing where nothing can be written."""

import os
import subprocess
import sys
import zlib
from pathlib import Path

import jax
import numpy as np
import pytest
from needs import needs_envpool, one_more_case

from isobatch.cli.main import main
from isobatch.training.program_cache import DIRECTORY, ENTRIES, keep_programs, sweep

SIZES = "--num-envs 2 --num-steps 4 --num-minibatches 1 --update-epochs 1 --total-timesteps 16 --hidden-sizes 4"
COUNTING = """
import sys, jax
from isobatch.cli.main import main
events = []
jax.monitoring.register_event_listener(lambda name, **_: events.append(name.rpartition("/")[2]))
status = main(sys.argv[1:])
print(events.count("compile_requests_use_cache") - events.count("cache_hits"), file=sys.stderr)
sys.exit(status)
"""


def train(run: Path, cache: str, *flags: str, env: str = "Probe-Constant") -> tuple[str, int]:
    """The metrics of a short run of the command line, and how many programs were looked for in vain."""
    words = ["train", "--env", env, *SIZES.split(), *flags, "--run-dir", str(run), "--quiet"]
    environment = os.environ | {DIRECTORY: cache}
    done = subprocess.run(
        [sys.executable, "-c", COUNTING, *words], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    *said, missed = done.stderr.splitlines()
    assert not any("cache" in line or "Warning" in line for line in said)
    return (run / "metrics.csv").read_text(), int(missed)


@pytest.fixture(scope="module")
def first_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A cache that one run filled, and the metrics of that run."""
    home = tmp_path_factory.mktemp("programs")
    metrics, missed = train(home / "run", str(home / "cache"))
    assert missed == len(list((home / "cache").glob(ENTRIES))) > 0
    return home / "cache", metrics


def test_the_second_run_compiles_nothing_and_has_the_same_bits(first_run, tmp_path):
    cache, metrics = first_run
    assert train(tmp_path / "again", str(cache)) == (metrics, 0)
    other, missed = train(tmp_path / "other", str(cache), "--seed", "3", "--learning-rate", "1e-3")
    assert missed == 0
    assert other != metrics


@one_more_case
def test_without_a_cache_a_run_has_the_same_bits(first_run, tmp_path):
    """`first_run` compiled all of its programs as well; that the flag turns the cache off is checked below."""
    cache, metrics = first_run
    without, missed = train(tmp_path / "without", str(cache), "--no-compile-cache")
    assert without == metrics
    assert missed


@one_more_case
def test_damaged_programs_are_replaced(first_run, tmp_path):
    cache, metrics = first_run
    entries = list(cache.glob(ENTRIES))
    for number, path in enumerate(entries):
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2] if number % 2 else b"")
    assert train(tmp_path / "damaged", str(cache)) == (metrics, len(entries))


@needs_envpool
def test_programs_that_hold_addresses_of_environments_are_not_kept(tmp_path):
    _, missed = train(tmp_path / "run", str(tmp_path / "cache"), "--num-envs", "4", env="envpool/CartPole-v1")
    assert len(list((tmp_path / "cache").glob(ENTRIES))) == missed - 1


def test_what_is_compiled_as_not_kept_is_not_written(tmp_path):
    code = (
        "import jax, numpy as np\nfrom isobatch.rollouts.compiling import not_kept\n"
        "from isobatch.training.program_cache import keep_programs\nkeep_programs()\nwith not_kept():\n"
        "    jax.jit(lambda x: x + 1)(np.ones(3))\njax.jit(lambda x: x + 2)(np.ones(3))"
    )
    subprocess.run([sys.executable, "-c", code], env=os.environ | {DIRECTORY: str(tmp_path / "cache")}, check=True)
    assert len(list((tmp_path / "cache").glob(ENTRIES))) == 1


@pytest.fixture
def no_cache_yet():
    """As in a process that has not looked for programs."""
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", None)
    yield
    jax.config.update("jax_compilation_cache_dir", before)


@pytest.mark.usefixtures("no_cache_yet")
def test_a_directory_that_cannot_be_used_is_not(tmp_path, monkeypatch):
    """One that cannot be made, and one that others can write to: its programs are run."""
    (tmp_path / "file").touch()
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    for place in (tmp_path / "file", tmp_path / "file" / "below", open_to_all):
        monkeypatch.setenv(DIRECTORY, str(place))
        keep_programs()
        assert jax.config.jax_compilation_cache_dir is None


def test_the_command_line_names_the_users_cache_directory(tmp_path, monkeypatch):
    monkeypatch.delenv(DIRECTORY)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert main(["train", "--env", "Nowhere-v0"]) == 2
    assert os.environ[DIRECTORY] == str(tmp_path / "isobatch" / "programs")
    assert main(["train", "--env", "Nowhere-v0", "--no-compile-cache"]) == 2
    assert os.environ[DIRECTORY] == "0"


def test_what_is_not_whole_is_removed(tmp_path):
    whole = zlib.compress(bytes(1000))
    (tmp_path / "machine").mkdir()
    for name, content in {"whole": whole, "half": whole[: len(whole) // 2], "none": b""}.items():
        (tmp_path / "machine" / f"{name}-cache").write_bytes(content)
    sweep(tmp_path)
    assert [path.name for path in (tmp_path / "machine").iterdir()] == ["whole-cache"]


def test_the_cache_is_bounded_and_what_was_used_last_stays(tmp_path):
    folder = tmp_path / "machine"
    folder.mkdir()
    for age in range(5):
        path = folder / f"{age}-cache"
        path.write_bytes(zlib.compress(np.random.default_rng(age).bytes(1000)))
        os.utime(path, (1000 - age, 1000 - age))
    sweep(tmp_path)
    assert len(list(folder.iterdir())) == 5
    sweep(tmp_path, 2500)
    assert sorted(path.name for path in folder.iterdir()) == ["0-cache", "1-cache"]
