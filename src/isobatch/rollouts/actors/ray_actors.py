"""Actors that are actors of a Ray cluster: on this machine, or on others."""

from __future__ import annotations

import platform
from contextlib import suppress
from typing import TYPE_CHECKING

from isobatch.errors import RunError
from isobatch.executors.ray_connection import forwarded
from isobatch.rollouts.actors.processes import environment
from isobatch.settings.versions import difference, versions

if TYPE_CHECKING:
    from isobatch.rollouts.actors.server import ActorServer

START_SECONDS = 120.0  # that the cluster may take to find a place for an actor


class RayServer:
    """What runs on a node: an `ActorServer`, once the versions are known to be the same."""

    def __init__(self, made_from: bytes, expected: dict[str, str]) -> None:
        self._made_from = made_from
        self._server: ActorServer | None = None
        self._differ = difference(expected, versions())

    def answer(self, method: str, message: bytes) -> bytes:
        from isobatch.rollouts.actors.server import ActorServer
        from isobatch.rollouts.actors.wire import to_bytes

        if self._differ:
            where = f"node {platform.node()} has {self._differ}"
            return to_bytes([], fault=f"{where}: install the same versions on all nodes.")
        if self._server is None:
            self._server = ActorServer(self._made_from)
        return self._server.open(message) if method == "open" else self._server.collect(message)


class RayChannel:
    """The way to one of K of them (`remote.Channel`)."""

    def __init__(self, index: int, made_from: bytes, actors: int) -> None:
        import ray

        self._index = index
        cpus = min(1.0, int(100 * ray.cluster_resources().get("CPU", 1.0) / (actors + 1)) / 100)
        options: dict[str, object] = {
            "num_cpus": cpus,
            "max_restarts": 0,
            "scheduling_strategy": "SPREAD",
            "runtime_env": {"env_vars": forwarded() | environment()},
        }
        self._actor = ray.remote(RayServer).options(**options).remote(made_from, versions())
        self._is_placed = False

    def call(self, method: str, message: bytes) -> bytes:
        import ray

        answer = self._actor.answer.remote(method, message)
        try:
            if not self._is_placed and not ray.wait([answer], timeout=START_SECONDS)[0]:
                raise RunError(f"Ray found no place for actor {self._index} within {START_SECONDS:g} seconds.")
            self._is_placed = True
            return ray.get(answer)
        except ray.exceptions.RayActorError:
            raise RunError(f"actor {self._index} was lost with its process or node of the Ray cluster.") from None
        except ray.exceptions.RayError as error:
            last = [line for line in str(error).splitlines() if line.strip()][-1:]
            raise RunError(f"actor {self._index} failed on the Ray cluster ({' '.join(last)}).") from None

    def close(self) -> None:
        import ray

        with suppress(Exception):
            ray.kill(self._actor)
