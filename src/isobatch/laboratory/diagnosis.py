"""Measure the policies of a run, checkpoint by checkpoint and section by section, and keep what was measured.

A diagnosis that was interrupted goes on where it stopped, and one that is repeated is read from its files.
"""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import jax
import jax.numpy as jnp

from isobatch.envs.registry import environment_of
from isobatch.errors import UsageError, check_keywords
from isobatch.formatting import Say, html_list, html_table
from isobatch.laboratory.branch_costs import branch_sentence
from isobatch.laboratory.costs import MeasurementPlan, plan
from isobatch.laboratory.options import LabOptions
from isobatch.laboratory.partial_results import PartialResults, remove_partial_results
from isobatch.laboratory.result_key import key_of
from isobatch.laboratory.results import load, store, to_json
from isobatch.laboratory.sections import section_class
from isobatch.laboratory.sections.section import Section, TextTable
from isobatch.laboratory.sources import source_of
from isobatch.laboratory.subject import NotMeasurableError, Subject
from isobatch.settings.options import Options
from isobatch.training.loading import LoadedRun, checkpoint_numbers, load_run

Watch = Callable[[str, float], None]  # of what is measured, and of the part of everything that is done
S = TypeVar("S")
STANDARD_OPTIONS = LabOptions()


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """What was measured of the policy of one checkpoint."""

    iteration: int
    env_steps: int
    title: str  # algorithm and environment
    sections: Mapping[str, Section]  # by name, in order; without those that this run cannot have

    def get(self, kind: type[S]) -> S:
        """The section of this type."""
        return next(section for section in self.sections.values() if isinstance(section, kind))

    def sentences(self) -> list[str]:
        """What it means."""
        return [sentence for section in self.sections.values() for sentence in section.interpret()]

    def tables(self) -> list[TextTable]:
        return [table for section in self.sections.values() for table in section.tables()]

    @property
    def _heading(self) -> str:
        return f"{self.title} after {self.env_steps:,} steps"

    def __repr__(self) -> str:
        return "\n".join([self._heading, *(f"- {sentence}" for sentence in self.sentences())])

    def _repr_html_(self) -> str:
        tables = "".join(html_table(table.title, table.columns, table.rows) for table in self.tables())
        return f"<p><b>{html.escape(self._heading)}</b></p>{html_list(self.sentences())}{tables}"

    def draw(self, folder: Path) -> list[Path]:
        """One picture for each section, into `folder`."""
        paths = []
        for name, section in self.sections.items():
            paths.append(folder / f"{self.iteration:09d}-{name}.png")
            section.draw(paths[-1], f"{self.title}, {self.env_steps:,} steps")
        return paths

    def to_json(self) -> dict[str, object]:
        """{iteration, env_steps, section: {...}, ..., sentences}: estimates as {value, low, high}, see `results`."""
        measured = {name: to_json(section) for name, section in self.sections.items()}
        return {"iteration": self.iteration, "env_steps": self.env_steps, **measured, "sentences": self.sentences()}


Ready = Callable[[Diagnosis], None]


@check_keywords
def diagnose(
    run_dir: str | Path,
    options: LabOptions = STANDARD_OPTIONS,
    checkpoints: str = "newest",
    policy_seed: int | None = None,
    out: str | Path | None = None,
    changes: Mapping[str, object] = MappingProxyType({}),
    watch: Watch = lambda what, done: None,
    say: Say = lambda sentence: None,
    env_timeout: float = Options.env_timeout,
    minutes: float | None = None,
    ready: Ready = lambda diagnosis: None,
) -> list[Diagnosis]:
    """Measure how noisy, biased and correlated the policy gradient of a run is: what `isobatch diagnose` does.

    Of a batch of N x T samples with gradients g_it, Var(G_B) is the mean squared distance of their mean from its
    expectation; `isobatch.gradients` has the formulas. The critical batch size is tr(S) / |G|^2 of McCandlish et al.
    (2018), https://arxiv.org/abs/1812.06162. A section that this run cannot have is left out, with a sentence that says
    why, unless it was asked for by name.

    Args:
        run_dir: directory of a run.
        options: what to measure, and how well.
        checkpoints: newest, best, all, or iterations separated by commas.
        policy_seed: one of the seeds of the run, by default the first.
        out: where results are kept, by default `diagnosis` in the run directory; what is there is not measured again.
        changes: settings of the run that are other while it is measured.
        watch: is told what is measured and the part of everything that is done.
        say: gets sentences meant for a person.
        env_timeout: seconds that a step of an environment outside JAX may take.
        minutes: say first what it will take, and measure less where that is longer than so many minutes, all
            checkpoints together; 0: no limit, None: no estimate either.
        ready: gets each section as soon as it is measured, as a diagnosis that has this one alone.

    Returns:
        One diagnosis for each checkpoint.

    Example:
        >>> import isobatch as ib, tempfile
        >>> run_dir = tempfile.mkdtemp() + "/run"
        >>> config = ib.preset("ppo", "Probe-Action", num_envs=4, num_steps=8, hidden_sizes=(8,), total_timesteps=64)
        >>> result = ib.train(config, run_dir=run_dir)
        >>> diagnosis, = ib.diagnose(run_dir, ib.LabOptions(sections="cosines"))
        >>> list(diagnosis.sections), diagnosis.env_steps
        (['cosines'], 64)
    """
    run_dir = Path(run_dir)
    out = run_dir / "diagnosis" if out is None else Path(out)
    wanted = checkpoint_numbers(run_dir, checkpoints)
    progress = DiagnosisProgress(watch)
    diagnoses = []
    for i, checkpoint in enumerate(wanted):
        loaded = load_run(run_dir, checkpoint, say)
        subject = subject_of(loaded, options, policy_seed, changes, env_timeout, progress.tell)
        if minutes is not None:
            subject = _planned(subject, loaded.iteration, minutes / len(wanted), out, say)
        progress.part = (i / len(wanted), 1 / len(wanted))
        env_steps = loaded.iteration * loaded.config.geometry.iteration_batch
        empty = Diagnosis(loaded.iteration, env_steps, f"{loaded.config.algo} on {loaded.config.env}", {})
        diagnoses.append(measure_sections(subject, empty, out, progress, say, ready))
    watch("done", 1.0)
    return diagnoses


class DiagnosisProgress:
    """How far a diagnosis is, in words and as the part of everything that is done."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self.part = (0.0, 1.0)  # where the checkpoint that is measured begins, and how much of everything it is
        self.name, self._reached = "", 0.0

    def note(self, done: float) -> None:
        """So much of this checkpoint."""
        self._reached = self.part[0] + done * self.part[1]
        self._watch(self.name, self._reached)

    def tell(self, detail: str) -> None:
        self._watch(f"{self.name}, {detail}", self._reached)


def measure_sections(
    subject: Subject, empty: Diagnosis, out: Path, progress: DiagnosisProgress, say: Say, ready: Ready
) -> Diagnosis:
    """With the sections that were asked for, measured or read from `out`; without those that it cannot have."""
    options, iteration, sections = subject.options, empty.iteration, dict[str, Section]()
    chains = out / f"{iteration:09d}-chains.json"
    subject = dataclasses.replace(subject, collected=PartialResults(chains, key_of(subject, iteration, "chains")))
    for place, section in enumerate(options.chosen):
        before, share = place / len(options.chosen), 1 / len(options.chosen)
        progress.name = f"iteration {iteration}: {section}"
        progress.note(before)
        path = out / f"{iteration:09d}-{section}.json"
        key, kind = key_of(subject, iteration, section), section_class(section)
        result = load(path, key, kind)
        if result is None:
            try:
                parts = PartialResults(path, key)
                measured = kind.measure(subject, parts, lambda done: progress.note(before + done * share))  # noqa: B023
            except NotMeasurableError as error:
                if options.sections != "all":
                    raise
                say(f"{section}: left out. {error}")
                remove_partial_results(path)
                continue
            result = store(path, key, measured)
        remove_partial_results(path)
        sections[section] = result
        ready(dataclasses.replace(empty, sections={section: result}))
    remove_partial_results(chains)
    return dataclasses.replace(empty, sections=sections)


def _planned(subject: Subject, iteration: int, minutes: float, out: Path, say: Say) -> Subject:
    """With what there is time for. The plan is kept: a diagnosis that goes on keeps to it, however fast it is now."""
    options, path = subject.options, out / f"{iteration:09d}-plan.json"
    key = key_of(subject, iteration, "plan") | {"minutes": minutes, "sections": options.sections}
    made = load(path, key, MeasurementPlan)
    if made is None:
        made = store(path, key, plan(subject, minutes))
        say(f"iteration {iteration}: {made.sentence(options, minutes, subject.own_geometry)}")
        if "branches" in options.chosen:
            say(f"iteration {iteration}: {branch_sentence(dataclasses.replace(subject, options=made.options))}")
    return dataclasses.replace(subject, options=made.options)


def subject_of(
    loaded: LoadedRun,
    options: LabOptions,
    policy_seed: int | None = None,
    changes: Mapping[str, object] = MappingProxyType({}),
    env_timeout: float = Options.env_timeout,
    tell: Say = lambda detail: None,
) -> Subject:
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
    config = loaded.config.replace(**changes, num_shards=1)  # a gradient is that of all environments
    return Subject(config, source_of(config, env, state, env_timeout, tell), state, options, env_timeout)
