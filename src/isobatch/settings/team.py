"""One of several processes that train a run together: which one it is, and where they meet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from isobatch.errors import UsageError
from isobatch.settings.fields import COUNT, COUNT_OR_0, POSITIVE, check_ranges

AUTO = "auto"


@dataclass(frozen=True)
class Team:
    """Which of how many processes this is, and where they meet."""

    coordinator: Annotated[
        str | None,
        "HOST:PORT of process 0, where several processes meet to train one run; auto: as the scheduler says (Slurm, "
        "Open MPI, Kubernetes, TPU). `isobatch launch` starts several on one machine.",
    ] = None
    num_processes: Annotated[int, COUNT, "How many processes train the run together."] = 1
    process_id: Annotated[int, COUNT_OR_0, "Which of them this is, from 0."] = 0
    process_timeout: Annotated[
        float, POSITIVE, "Seconds that processes wait for each other to begin, and for a sign of life after that."
    ] = 60.0

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.num_processes > 1 and self.coordinator is None:
            raise UsageError(
                f"num_processes={self.num_processes} need a place to meet: --coordinator HOST:PORT of process 0, "
                "--coordinator auto under a scheduler, or isobatch launch on one machine."
            )
        if self.process_id >= self.num_processes and self.coordinator != AUTO:
            raise UsageError(
                f"process_id={self.process_id} is not one of num_processes={self.num_processes}: they count from 0."
            )
        if self.coordinator not in (None, AUTO):
            self.address  # noqa: B018  # which is checked

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = str(self.coordinator).rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise UsageError(
                f"coordinator={self.coordinator!r} is no HOST:PORT: use one such as 10.0.0.1:1234, or auto."
            )
        return host.strip("[]"), int(port)
