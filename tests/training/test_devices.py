"""Devices and threads are chosen before JAX starts, so each in a process of its own."""

import os
import subprocess
import sys

import pytest

HERE = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(("cores", "threads"), [(None, "None"), (HERE, "None"), (HERE + 1, str(HERE + 1))])
def test_devices_are_those_of_the_machine_whose_bits_are_wanted(cores: int | None, threads: str) -> None:
    code = (
        f"import os; from isobatch.training.devices import use_cores; use_cores(cores={cores}); import jax; "
        "print(jax.device_count(), os.environ.get('PJRT_NPROC'))"
    )
    plain = {name: value for name, value in os.environ.items() if name not in ("JAX_NUM_CPU_DEVICES", "PJRT_NPROC")}
    printed = subprocess.run([sys.executable, "-c", code], env=plain, check=True, capture_output=True, text=True).stdout
    assert printed.split() == [str(cores or HERE), threads]
