"""What the format of a library cannot say, and what happens there instead."""

from __future__ import annotations

from isobatch.interop.keys import bare_name
from isobatch.settings.config import Config
from isobatch.settings.in_use import idle_settings
from isobatch.settings.parsing import SettingsByName

CONSEQUENCES = {
    "num_envs": "give it where the environments are made",
    "total_timesteps": "say how long to train where the training is started",
    "objective": "another loss is minimized",
    "proximal_policy": "what the clipping holds on to is as old as an iteration, so its age follows the batch size",
    "importance_policy": "stale data is corrected for otherwise",
    "advantage_norm": "mean and deviation come from other samples, so the size of a step follows how many these are",
    "optimizer": "another optimizer takes the steps, and this learning rate was not chosen for it",
    "optimizer_eps": "steps along small gradients have another size",
    "lr_schedule": "the learning rate does not fall over the run",
    "clip_schedule": "the clip range does not fall over the run",
    "value_clip_schedule": "the range of the clipped value loss does not fall over the run",
    "clip_eps_end": "the clip range ends at another width",
    "clip_value_loss": "the value loss is another one",
    "value_clip_eps": "the value loss is clipped at another range",
    "value_epochs": "policy and value are trained in the same passes",
    "policy_iterations_per_phase": "there is no auxiliary phase",
    "staleness": "data is used when it is fresh",
    "normalize_observations": "wrap the environments there",
    "normalize_rewards": "wrap the environments there",
    "hidden_sizes": "layers of other widths learn",
    "activation": "the layers have another non-linearity",
    "arrangement": "policy and value share other layers",
    "aggregation": "samples of long and short episodes have other weights",
    "complete_episodes": "rollouts end in the middle of episodes",
}


def unsaid(after: Config, there: Config) -> SettingsByName:
    """Settings in use here that differ, or have no use, in what the library will do (`there`): name -> our value."""
    ours, theirs = after.to_dict(), there.to_dict()
    same = {"algo"} | idle_settings(after)
    norms = {after.advantage_norm, there.advantage_norm}
    if after.num_minibatches == 1 and norms == {"iteration", "minibatch"}:
        same.add("advantage_norm")  # one minibatch is the whole iteration
    if abs(after.total_timesteps - there.total_timesteps) < after.geometry.iteration_batch:
        same.add("total_timesteps")  # rounded to what the library counts in
    if bare_name(after.env) == bare_name(there.env):
        same.add("env")
    idle = idle_settings(there)
    if "clip_eps_end" in idle:
        same.add("clip_eps_end")  # ranges do not fall there, which is said of them
    same |= {name for name in ("clip_schedule", "value_clip_schedule") if name in idle and ours[name] == "constant"}
    return {name: v for name, v in ours.items() if name not in same and (name in idle or v != theirs[name])}


def consequence(name: str, there: Config, *, known: bool, title: str) -> str:
    """What happens in the library `title` to a setting that it was not told; `known`: whether `there` has its value."""
    if name in idle_settings(there):
        return "without a use there"
    place = f"{there.to_dict()[name]} there" if known else f"left to {title}"
    return f"{place}: {CONSEQUENCES[name]}" if name in CONSEQUENCES else place
