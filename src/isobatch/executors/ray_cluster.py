"""Jobs done on a cluster of Ray: each is a task, and one that is lost with its node is tried elsewhere.

Ray's own retries are not used: the head knows then what was lost, says so, and gives up after some attempts. Jobs and
results travel as objects of Ray, so that nodes need no common file system.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from isobatch.errors import RunError
from isobatch.executors.cores import available_cores
from isobatch.executors.interface import Failure, Job, ResultT, WatchAll
from isobatch.executors.ray_connection import connected, forwarded
from isobatch.executors.ray_worker import Board, Ticket, work
from isobatch.formatting import Say
from isobatch.settings.versions import versions

if TYPE_CHECKING:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

ATTEMPTS = 5  # at a job that is lost with its node
SECONDS_TO_BEGIN = 30.0  # some job, before it is said that all of them wait
SECONDS_BETWEEN = 0.5  # two looks at the cluster


@contextmanager
def ray_cluster(address: str | None = None, say: Say = lambda sentence: None) -> Iterator[RayCluster]:
    """The cluster of `ray_connection.connected`. `say` gets a sentence when a job is lost and tried again."""
    with connected(address, "--on ray", "use --on local"):
        yield RayCluster(say)


class RayCluster:
    """An `Executor` on the cluster to which this process is connected."""

    shares_files = False

    def __init__(self, say: Say) -> None:
        self.say = say

    @property
    def places(self) -> int:
        """Those of the nodes that are there now."""
        import ray

        return max(1, int(ray.cluster_resources().get("CPU", 0.0) // cpus()))

    def run(self, jobs: Sequence[Job[ResultT]], watch: WatchAll) -> Generator[tuple[int, ResultT]]:
        import ray

        tasks = Tasks(jobs, watch, self.say)
        try:
            for index in range(len(jobs)):
                tasks.submit(Ticket(index, 1))
            while tasks.running:
                for reference in ray.wait(list(tasks.running), timeout=SECONDS_BETWEEN)[0]:
                    ticket = tasks.running.pop(reference)
                    try:
                        result = ray.get(reference)
                    except ray.exceptions.RayTaskError as error:
                        raise RunError(
                            f"node {error.ip} cannot do a job ({last_line(error)}): install there what is installed "
                            "here, and run the same command again; what was finished is kept."
                        ) from None
                    except ray.exceptions.RayError as error:
                        tasks.try_again(ticket, error)
                        continue
                    if isinstance(result, Failure):
                        raise result.error
                    yield ticket.index, result
                tasks.look()
        finally:
            tasks.stop()


class Tasks:
    """The jobs that were handed to Ray and did not come back yet."""

    def __init__(self, jobs: Sequence[Job[object]], watch: WatchAll, say: Say) -> None:
        import ray

        self.jobs = jobs
        self.watch = watch
        self.say = say
        self.running: dict[ray.ObjectRef, Ticket] = {}  # by reference to the result
        self.expected = versions()
        self.board = ray.remote(Board).options(num_cpus=0, scheduling_strategy=on_this_node()).remote()
        self.asked = 0.0  # CPUs of each
        self.patience = time.monotonic() + SECONDS_TO_BEGIN
        self.said = ""

    def submit(self, ticket: Ticket) -> None:
        import ray

        self.asked = cpus()
        task = ray.remote(work).options(
            num_cpus=self.asked,
            max_retries=0,
            scheduling_strategy="SPREAD",
            runtime_env={"env_vars": forwarded()},
        )
        job = pickle.dumps(self.jobs[ticket.index])
        self.running[task.remote(ticket, job, self.expected, self.board)] = ticket

    def try_again(self, ticket: Ticket, error: Exception) -> None:
        """A job that was lost with its worker."""
        what = f"job {ticket.index + 1} of {len(self.jobs)} was lost with its process or node ({type(error).__name__})"
        if ticket.attempt == ATTEMPTS:
            raise RunError(
                f"{what} {ATTEMPTS} times, perhaps for want of memory: run the same command again to go on; what was "
                "finished is kept."
            )
        self.say(f"{what}: it is tried again.")
        time.sleep(ticket.attempt)  # until the cluster knows that the node is gone
        self.submit(Ticket(ticket.index, ticket.attempt + 1))
        self.watch(ticket.index, 0.0)

    def look(self) -> None:
        """Tell how far all of them are, or that none can begin."""
        import ray

        try:
            shares = ray.get(self.board.read.remote())
        except ray.exceptions.RayError:
            return  # progress is not worth ending for
        at_work = [ticket for ticket in self.running.values() if ticket in shares]
        for ticket in at_work:
            self.watch(ticket.index, shares[ticket])
        if at_work or not self.running:
            self.patience = time.monotonic() + SECONDS_TO_BEGIN
        elif time.monotonic() > self.patience:
            self.patience += SECONDS_TO_BEGIN
            self.wait_for_nodes()

    def wait_for_nodes(self) -> None:
        import ray

        waiting = f"waiting for a node with {cpus():g} free CPUs ..."
        if waiting != self.said:
            self.say(waiting)
            self.said = waiting
        if cpus() != self.asked:  # the nodes are others than when they were asked
            for reference in list(self.running):
                ray.cancel(reference)
                self.submit(self.running.pop(reference))

    def stop(self) -> None:
        import ray

        with suppress(ray.exceptions.RayError):
            for reference in self.running:
                ray.cancel(reference, force=True)
            ray.kill(self.board)


def on_this_node() -> NodeAffinitySchedulingStrategy:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)


def cpus() -> float:
    """What a job asks for: as many as this machine has, or all of the largest node."""
    import ray

    largest = max((node["Resources"].get("CPU", 0.0) for node in ray.nodes() if node["Alive"]), default=0.0)
    return min(len(available_cores()), largest) or len(available_cores())


def last_line(error: Exception) -> str:
    """Of a traceback that came from another process: what was raised."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
