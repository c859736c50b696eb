"""Measure the policies of a run, checkpoint by checkpoint and section by section, and keep what was measured.

Each section is one JSON file, written when it is complete: a diagnosis that was interrupted goes on where it stopped,
and one that is repeated is read from its files.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from isobatch.envs.host_interface import HostEnvironment
from isobatch.envs.registry import environment_of
from isobatch.errors import UsageError
from isobatch.files import replace_file
from isobatch.laboratory.host_source import HostSource
from isobatch.laboratory.jax_source import JaxSource
from isobatch.laboratory.options import LabOptions
from isobatch.laboratory.sections_old import RUN, NotHereError, Policy
from isobatch.settings.options import Options
from isobatch.settings.parsing import plain_json
from isobatch.training.loading import LoadedRun, checkpoint_numbers, load_run

FORMAT = 7  # of the files; what another version measured is measured again
Watch = Callable[[str, float], None]
Say = Callable[[str], None]


def diagnose(
    run_dir: Path,
    options: LabOptions,
    checkpoints: str = "newest",
    policy_seed: int | None = None,
    out: Path | None = None,
    changes: Mapping[str, Any] = MappingProxyType({}),
    watch: Watch = lambda what, done: None,
    say: Say = lambda sentence: None,
    env_timeout: float = Options.env_timeout,
) -> list[dict[str, Any]]:
    """One result per checkpoint: {iteration, env_steps, section: {...}, ...}; `changes` are made to the run's settings.

    A section that this run cannot have is left out, with a sentence that says why, unless it was asked for by name.
    """
    out = out or run_dir / "diagnosis"
    wanted = checkpoint_numbers(run_dir, checkpoints)
    results = []
    name, now = "", 0.0

    def note(what: str, done: float) -> None:
        nonlocal now
        now = done
        watch(what, done)

    def tell(detail: str) -> None:
        watch(f"{name}, {detail}", now)

    for at, checkpoint in enumerate(wanted):
        loaded = load_run(run_dir, checkpoint, say)
        about = policy_of(loaded, options, policy_seed, changes, env_timeout, tell)
        result: dict[str, Any] = {
            "iteration": loaded.iteration,
            "env_steps": loaded.iteration * loaded.config.geometry.iteration_batch,
        }
        for place, section in enumerate(options.chosen):
            before = (at + place / len(options.chosen)) / len(wanted)
            share = 1 / len(options.chosen) / len(wanted)
            name = f"iteration {loaded.iteration}: {section}"
            note(name, before)
            path = out / f"{loaded.iteration:09d}-{section}.json"
            key = key_of(about, loaded.iteration, section)
            found = stored(path, key)
            if found is None:
                inner = partial(_within, note, name, before, share)
                try:
                    found = plain_json(RUN[section](about, inner))
                except NotHereError as error:
                    if options.sections != "all":
                        raise
                    say(f"{section}: left out. {error}")
                    continue
                store(path, key, found)
            result[section] = found
        results.append(result)
    watch("done", 1.0)
    return results


def policy_of(
    loaded: LoadedRun,
    options: LabOptions,
    policy_seed: int | None,
    changes: Mapping[str, Any],
    env_timeout: float = Options.env_timeout,
    tell: Say = lambda detail: None,
) -> Policy:
    """The policy of one of the run's seeds; the first unless another one is named."""
    env = environment_of(loaded.config)
    if policy_seed is not None and policy_seed not in loaded.seeds:
        raise UsageError(f"policy_seed={policy_seed} was not trained in this run: use one of {loaded.seeds}.")
    place = 0 if policy_seed is None else loaded.seeds.index(policy_seed)
    state = jax.tree.map(lambda leaf: leaf[place], loaded.states)
    if not all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(state.networks)):
        raise UsageError(
            f"checkpoint={loaded.iteration} of seed {loaded.seeds[place]} has weights that are not finite: the run has "
            "diverged; measure an earlier checkpoint."
        )
    config = loaded.config.replace(**changes)
    source = (
        HostSource(config, env, state, env_timeout, tell)
        if isinstance(env, HostEnvironment)
        else JaxSource(config, env, state)
    )
    return Policy(config, source, state, options)


def key_of(about: Policy, iteration: int, section: str) -> dict[str, Any]:
    """All that the numbers of a section depend on."""
    options = dataclasses.asdict(about.options)
    options.pop("sections")
    settings = about.config.to_dict() | {"iteration": iteration, "weights": fingerprint(about)}
    return {"format": FORMAT, "section": section, "settings": settings, "options": plain_json(options)}


def fingerprint(about: Policy) -> str:
    """Of the networks' weights: two runs that differ in their seed alone may be measured into one directory."""
    leaves = jax.tree.leaves(about.state.networks)
    return hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in leaves)).hexdigest()[:16]


def _within(watch: Watch, name: str, before: float, share: float, done: float) -> None:
    """The progress of a section as that of the whole."""
    watch(name, before + share * done)


def stored(path: Path, key: dict[str, Any]) -> Any:
    """What a file holds, if it was measured with the same settings."""
    try:
        content = json.loads(path.read_text())
    except (OSError, json.JSONDecodeError):
        return None
    return content["found"] if content.get("key") == key else None


def store(path: Path, key: dict[str, Any], found: Any) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, json.dumps({"key": key, "found": found}, indent=1) + "\n")
    except OSError as error:
        raise UsageError(
            f"out={str(path.parent)!r} cannot be written ({error.strerror}): name another place."
        ) from None
