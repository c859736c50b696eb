"""The kinds of actors, and which one a run gets."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from isobatch.envs.host_interface import HostEnvironment
from isobatch.executors.process_count import check_process_count
from isobatch.rollouts.acting import Acting, Policy
from isobatch.rollouts.actors.interface import Backend, LocalBackend, Place
from isobatch.rollouts.actors.processes import ProcessChannel
from isobatch.rollouts.actors.remote import RemoteBackend
from isobatch.rollouts.actors.server import recipe
from isobatch.rollouts.collected import CollectedRollout
from isobatch.settings.options import ActorKind


def kind_for(kind: ActorKind, env: HostEnvironment) -> ActorKind:
    """What `auto` means: threads where images would have to be copied and Python has little to do; else processes,
    where neither Python nor small networks wait for the learner's."""
    if kind != "auto":
        return kind
    return "thread" if env.in_parallel and len(env.obs_shape) == 3 else "process"


def maker_of(
    kind: ActorKind,
    env: HostEnvironment,
    actors: int,
    place: Callable[[int], Place],
    acting: Acting,
    policy: Policy,
    rollout: CollectedRollout,
) -> Callable[[int], Backend]:
    """Makes the backend of each actor."""
    kind = kind_for(kind, env)
    if kind == "thread":
        return lambda index: LocalBackend(acting, place(index))
    if kind == "process":
        check_process_count(f"actors={actors}", actors)
        return lambda index: RemoteBackend(ProcessChannel(index, recipe(place(index), policy)), rollout)
    from isobatch.rollouts.actors.ray_actors import RayChannel

    make = partial(RayChannel, actors=actors)
    return lambda index: RemoteBackend(make(index, recipe(place(index), policy)), rollout)
