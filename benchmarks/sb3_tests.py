"""Stable-Baselines3's own tests, with PPOEWMA in the place of PPO.

    git clone --branch v2.9.2 https://github.com/DLR-RM/stable-baselines3
    python benchmarks/sb3_tests.py stable-baselines3/tests

Nothing is fetched: the path is that of the tests of the release that is installed. Every test that makes a PPO counts,
those that make none do not. `--with-ppo` runs them with SB3's own PPO, to see what a machine lacks.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest
import stable_baselines3
import stable_baselines3.ppo
from stable_baselines3.common.base_class import BaseAlgorithm

from isobatch.torch import PPOEWMA


class InPlaceOfPPO:
    """A plugin of pytest that replaces PPO before tests are imported, and counts the tests that make one."""

    def __init__(self, kind: type[stable_baselines3.PPO]) -> None:
        self.making: set[str] = set()
        self.outcomes: dict[str, str] = {}
        self.running = ""
        plugin, made = self, kind.__init__

        class Counted(kind):  # type: ignore[misc, valid-type]
            def __init__(self, *args: object, **kwargs: object) -> None:
                plugin.making.add(plugin.running)
                made(self, *args, **kwargs)

        Counted.__name__ = Counted.__qualname__ = "PPO"  # which messages have in them
        self.counted = Counted

    def put(self) -> None:
        stable_baselines3.PPO = stable_baselines3.ppo.PPO = self.counted

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Without those that are parametrized with another algorithm."""
        items[:] = [item for item in items if not self._of_another(item)]

    def _of_another(self, item: pytest.Item) -> bool:
        values = vars(item)["callspec"].params.values() if "callspec" in vars(item) else ()
        kinds = [value for value in values if isinstance(value, type) and issubclass(value, BaseAlgorithm)]
        return bool(kinds) and self.counted not in kinds

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self.running = item.nodeid

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome == "failed":
            self.outcomes[report.nodeid] = report.outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tests", type=Path, help="folder of SB3's tests")
    parser.add_argument("--with-ppo", action="store_true", help="SB3's own PPO instead, to see what this machine lacks")
    args, rest = parser.parse_known_args()  # the rest is pytest's
    kind = stable_baselines3.PPO if args.with_ppo else PPOEWMA
    files = [str(p) for p in sorted(args.tests.glob("test_*.py")) if "PPO" in p.read_text()]
    plugin = InPlaceOfPPO(kind)
    plugin.put()
    options = ["-q", "-p", "no:cacheprovider", "-c", "/dev/null", f"--rootdir={args.tests.parent}"]
    pytest.main([*files, *options, *rest], plugins=[plugin])
    made = {name: plugin.outcomes[name] for name in sorted(plugin.making) if name in plugin.outcomes}
    failed = [name for name, outcome in made.items() if outcome == "failed"]
    print(f"{kind.__name__}: {len(made)} tests make one, {len(made) - len(failed)} pass, {len(failed)} fail")
    for name in failed:
        print(f"  {name}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
