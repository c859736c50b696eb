"""Change the batch size of a config and let the other hyperparameters follow, each with its reason.

`rescale(config, factor=c)` divides the iteration and the optimization batch by c and applies the rules of `rules`, by
name. T and the number of minibatches stay; E, gamma, lambda, the clip range and all other settings too. Asked for a
number of environments alone, it keeps N T instead where that was measured to be better (`evidence`).

With the rules, c = 1 is the identity, a and then b is ab, and 1/c undoes c, as long as the advantage span does not have
to stop at one iteration and N_pi does not have to be rounded (a caution says so). Advantages normalized per iteration
come back as an EWMA with decay 0, which is the same computation.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from isobatch.errors import UsageError, check_keywords, unknown_name
from isobatch.formatting import counted, html_list, html_table, plain_table, rounded, setting_text
from isobatch.rescaling.cautions import cautions
from isobatch.rescaling.evidence import better_than
from isobatch.rescaling.rules import RULES, Move, Rule, rounded_phase
from isobatch.rescaling.targets import Target, resolve, same_iteration_batch
from isobatch.settings.accounting import surely_used
from isobatch.settings.config import Config
from isobatch.settings.fields import COUNT
from isobatch.settings.parsing import SettingsByName, inf_as_text

ASKED_BOTH = "both asked for"
HOLDS = MINIBATCH_COUNT, MINIBATCH_SIZE, ITERATION_BATCH = ("minibatch-count", "minibatch-size", "iteration-batch")
"""What can stay beside the target of a change."""
HOLD_MINIBATCH = "iteration-batch-only"  # the rule by which minibatches keep their size
MEASURED = "measured"
KEEPS = (MEASURED, *HOLDS)
"""What can be asked to stay: one of these, or the one that evidence is for."""
SAMPLES_USED = "samples used, at least"


@dataclass(frozen=True)
class Change:
    """One quantity that is not what it was."""

    name: str
    before: object
    after: object
    rule: str
    """Name of the rule, or `target` for what was asked for and what follows from it by arithmetic."""
    reason: str


@dataclass(frozen=True, repr=False)
class Rescaled:
    """The answer of `rescale`."""

    factor: float
    """c = iteration batch before / after."""
    before: Config
    after: Config
    changes: tuple[Change, ...]
    warnings: tuple[str, ...]
    keep: str
    """What stayed beside the target, one of `HOLDS`."""
    evidence: str = ""
    """Why `measured` chose that, in a sentence; nothing where it was asked for or where nothing speaks against the
    rules."""

    @property
    def _title(self) -> str:
        return f"{self.before.algo} on {self.before.env}, iteration batch / {self.factor:g}"

    def _rows(self) -> list[list[str]]:
        return [[c.name, setting_text(c.before), setting_text(c.after), c.rule] for c in self.changes]

    def __repr__(self) -> str:
        table = plain_table(["setting", "before", "after", "rule"], self._rows())
        evidence = [self.evidence] if self.evidence else []
        return "\n".join([self._title, table, *evidence, *(f"caution: {warning}" for warning in self.warnings)])

    def _repr_html_(self) -> str:
        rows = [[*row, change.reason] for row, change in zip(self._rows(), self.changes, strict=True)]
        columns = ["setting", "before", "after", "rule", "reason"]
        evidence = [self.evidence] if self.evidence else []
        return html_table(self._title, columns, rows) + html_list([*evidence, *self.warnings])

    def to_json(self) -> dict[str, object]:
        """{"factor", "keep", "evidence", "before", "after", "changes", "rules", "warnings"}; a change is {"name",
        "before", "after", "rule", "reason"}, and rules are {"equation", "source"} by name."""
        used = [RULES[name] for name in dict.fromkeys(change.rule for change in self.changes) if name in RULES]
        return {
            "factor": self.factor,
            "keep": self.keep,
            "evidence": self.evidence,
            "before": describe(self.before),
            "after": describe(self.after),
            "changes": [{name: inf_as_text(value) for name, value in vars(change).items()} for change in self.changes],
            "rules": {rule.name: {"equation": rule.equation, "source": rule.source} for rule in used},
            "warnings": list(self.warnings),
        }


@check_keywords
def rescale(
    config: Config,
    *,
    num_envs: int | None = None,
    num_steps: int | None = None,
    optimization_batch: int | None = None,
    devices: int | None = None,
    factor: float | None = None,
    devices_before: int = 1,
    keep: str = MEASURED,
    use: Iterable[str] = (),
    without: Iterable[str] = (),
    critical_batch: float | None = None,
    time_limit: int | None = None,
) -> Rescaled:
    """`config` at another batch size, the other hyperparameters changed so that training stays the same.

    With c = iteration batch before / after: Adam's step size / sqrt(c), SGD's / c, beta_prox and the decay of advantage
    moments such that their centers of mass stay put in environment steps (Hilton, Cobbe & Schulman 2021, sections 3
    and 4, https://arxiv.org/abs/2110.00641). `docs/rescaling.md` has all rules.

    Args:
        config: the settings to start from.
        num_envs, num_steps, optimization_batch, devices, factor: give one target: `num_envs`, `num_steps` (N stays and
            T changes), both of these, `optimization_batch`, `devices` (every device keeps its environments;
            `config.num_envs` counts those of all `devices_before` devices), or `factor`, which divides N.
        keep: what stays beside the target: `minibatch-count` (and with it T; minibatches grow and shrink),
            `minibatch-size` (T, and gradient steps of the same size, more or fewer of them: the rule
            `iteration-batch-only`), `iteration-batch` (N T: T follows N, and nothing else changes), or `measured`:
            `iteration-batch` where a number of environments alone is asked for, no rule is named, and tuned settings
            were measured to keep more of their return by it than by the rules (docs/results/transfer.md); else
            `minibatch-count`.
        use: rules by name, in place of the defaults that set the same field.
        without: rules to switch off.
        critical_batch: the optimization batch at which noise and signal of the gradient are equal; the rule `surge`
            needs it, `clip-noise` and the warnings use it.
        time_limit: steps of the longest episode; with it the answer says how many samples are used, where only whole
            episodes are (`complete_episodes`).

    Returns:
        The config before and after, every change with its rule and reason, and warnings.

    Example:
        >>> import isobatch as ib
        >>> rescaled = ib.rescale(ib.preset("ppo-ewma", "CartPole-v1", num_envs=32), num_envs=8)
        >>> rescaled.factor, rescaled.after.num_envs
        (4.0, 8)
    """
    target = asked = Target(num_envs, num_steps, optimization_batch, devices, factor, devices_before)
    if keep not in KEEPS:
        raise unknown_name(f"keep={keep!r}", keep, KEEPS)
    evidence = ""
    if keep == MEASURED:
        keep, evidence = (MINIBATCH_COUNT, "") if use or without else measured_choice(config, target)
    if keep == ITERATION_BATCH:
        target = same_iteration_batch(config, target)
    if keep == MINIBATCH_SIZE:
        use = (*use, HOLD_MINIBATCH)
    if critical_batch is not None and not 0 < critical_batch < math.inf:
        raise UsageError(f"critical_batch={critical_batch:g} is not a batch size: use a positive number of samples.")
    if time_limit is not None:
        COUNT.check("time_limit", time_limit)
    rules = choose_rules(config, tuple(use), tuple(without))
    for rule in rules:
        if rule.needs_critical_batch and critical_batch is None:
            raise UsageError(
                f"rule {rule.name} goes by the critical batch size, and none was given: pass critical_batch, a number "
                "of samples or a run that measured it with --noise-scale, or drop the rule."
            )
    names = [rule.name for rule in rules]
    hold_minibatch = HOLD_MINIBATCH in names
    keep = MINIBATCH_SIZE if hold_minibatch else keep
    new_envs, new_steps = resolve(config, target, hold_minibatch=hold_minibatch)
    c = config.geometry.iteration_batch / (new_envs * new_steps)
    factors = {"iteration": c, "optimization": 1.0 if hold_minibatch else c}
    settings: SettingsByName = {"num_envs": new_envs, "num_steps": new_steps}
    origin: dict[str, Rule] = {}
    for rule in rules:
        if factors[rule.follows] != 1:
            new = rule.apply(config, Move(factors[rule.follows], critical_batch))
            settings |= new
            origin |= dict.fromkeys(new, rule)
    if config.policy_iterations_per_phase and c != 1:
        held = "policy_iterations_per_phase" in settings
        phase = rounded_phase(config, c) if held else config.policy_iterations_per_phase
        settings["total_timesteps"] = _whole_phases(config, new_envs * new_steps, phase)
    if config.max_lag:  # in environment steps it stays, but for less than one iteration
        settings["max_lag"] = max(config.max_lag, new_envs * new_steps)
    after = config.replace(**settings)
    changes = _changes(config, after, origin, _target_reason(config, asked), time_limit)
    warnings = cautions(config, after, names, critical_batch, time_limit)
    return Rescaled(c, config, after, changes, warnings, keep, evidence)


def measured_choice(config: Config, target: Target) -> tuple[str, str]:
    """What to hold according to what was measured, and why, in a sentence; the rules where nothing is known."""
    if target.num_envs is None or target.num_steps is not None:
        return MINIBATCH_COUNT, ""
    pair = better_than(MINIBATCH_COUNT, ITERATION_BATCH, config, target.num_envs)
    if pair is None:
        return MINIBATCH_COUNT, ""
    rules, better = pair
    figures = f"with {better.size} their environments settings that others tuned kept {better} of their final return"
    others = f"{rules} by the rules (keep={MINIBATCH_COUNT}; docs/results/transfer.md)"
    try:
        same_iteration_batch(config, target)
    except UsageError as error:
        return MINIBATCH_COUNT, f"these are the rules, though {figures} with N x T kept and {others}: {error}"
    return ITERATION_BATCH, f"N x T is kept, so that nothing else changes: {figures} this way, {others}."


def choose_rules(config: Config, use: Sequence[str], without: Sequence[str]) -> list[Rule]:
    """The defaults for this optimizer, with `use` in place of those that set the same field, minus `without`."""
    for name in (*use, *without):
        if name not in RULES:
            raise unknown_name(f"rule {name!r}", name, RULES)
    for name in use:
        if config.optimizer not in RULES[name].optimizers:
            fit = " or ".join(RULES[name].optimizers)
            raise UsageError(
                f"rule {name} is for optimizer {fit}, but optimizer={config.optimizer}; drop the rule or change it."
            )
    chosen: dict[str, Rule] = {}
    for rule in (RULES[name] for name in dict.fromkeys(use)):
        clash = [r.name for r in chosen.values() if set(r.fields) & set(rule.fields)]
        if clash:
            raise UsageError(f"rules {clash[0]} and {rule.name} set the same field; use one of them.")
        chosen[rule.name] = rule
    taken = {name for rule in chosen.values() for name in rule.fields}
    defaults = [r for r in RULES.values() if r.default and config.optimizer in r.optimizers]
    active = [r for r in defaults if not taken & set(r.fields)] + list(chosen.values())
    names = [rule.name for rule in active]
    for name in without:
        if name not in names:
            raise UsageError(f"rule {name} is not in use here, so it cannot be left out; in use: {', '.join(names)}.")
    return [rule for rule in active if rule.name not in without]


def _whole_phases(config: Config, iteration_batch: int, phase: int) -> int:
    """Environment steps of the whole phases that come nearest to the run's; iterations that only collect stay."""
    updates = config.env_steps / iteration_batch - config.staleness
    return (max(1, round(updates / phase)) * phase + config.staleness) * iteration_batch


def describe(config: Config) -> SettingsByName:
    """Every setting and the batches that follow from them, fit for JSON."""
    geometry = config.geometry
    flat = config.to_dict() | {
        "iteration_batch": geometry.iteration_batch,
        "optimization_batch": geometry.optimization_batch,
        "phase_batch": geometry.phase_batch,
    }
    return {name: inf_as_text(value) for name, value in flat.items()}


def _changes(
    before: Config, after: Config, origin: dict[str, Rule], reason: str, time_limit: int | None
) -> tuple[Change, ...]:
    old, new = before.geometry, after.geometry
    derived = {
        "iteration_batch": (old.iteration_batch, new.iteration_batch, "num_envs x num_steps"),
        "optimization_batch": (old.optimization_batch, new.optimization_batch, "iteration batch / num_minibatches"),
        "phase_batch": (old.phase_batch, new.phase_batch, "iteration batch x policy_iterations_per_phase"),
    }
    if after.complete_episodes and time_limit is not None:
        was_used, is_used = surely_used(before, time_limit), surely_used(after, time_limit)
        why = "num_envs x (num_steps - time limit + 1): whole episodes, however long"
        derived[SAMPLES_USED] = (was_used, is_used, why)
    was, now = before.to_dict(), after.to_dict()
    follows = old.iteration_batch == new.iteration_batch and reason != ASKED_BOTH
    reasons = {"num_envs": reason, "num_steps": "so that num_envs x num_steps stays" if follows else reason}
    rows = [Change(name, was[name], now[name], "target", why) for name, why in reasons.items()]
    rows.append(Change("total_timesteps", was["total_timesteps"], now["total_timesteps"], "target", "whole phases"))
    rows += [Change(name, *values[:2], "target", values[2]) for name, values in derived.items()]
    rows += [Change(n, was[n], now[n], rule.name, rule.reason(before, after)) for n, rule in origin.items()]
    return tuple(row for row in rows if row.before != row.after)


def _target_reason(config: Config, target: Target) -> str:
    if target.devices is not None:
        each = config.num_envs / target.devices_before
        now = f"{counted(target.devices, 'device')} of {rounded(each, 6)} environments"
        return f"{now}, {target.devices_before} before"
    if len(target.given) == 2:
        return ASKED_BOTH
    return "asked for" if target.given.keys() & {"num_envs", "num_steps"} else "to reach the target"
