"""Settings of others at other numbers of environments: the entries are theirs, the moves as by hand."""

import importlib.metadata
from typing import Any

import pytest
from made_up_rows import made_up

from isobatch.interop import stable_baselines3, yaml_text
from isobatch.settings.presets import bare_id
from isobatch.studies.claims import STUDIES
from isobatch.studies.claims.transfer import AVERAGED, BY_RULES, KEEP, UNCHANGED, WAYS, verdict
from isobatch.studies.grid import Cell
from isobatch.studies.kept_figures import draw_kept, draw_kept_by_task
from isobatch.studies.kept_returns import BASE, kept_at, tasks
from isobatch.studies.scores import FINAL
from isobatch.studies.tuned_settings import CLEANRL, ENTRIES, ZOO, ZOO_SETTINGS

GRID = STUDIES["transfer"].grid("laptop")


def moved(env: str, way: str, times: float) -> Any:
    """Sizes and learning rate of a cell: N, T, minibatches, their size, rate."""
    (cell,) = [cell for cell in GRID.cells if cell.config.env == env and cell.factors == {"way": way, "times": times}]
    config = cell.config
    sizes = (config.num_envs, config.num_steps, config.num_minibatches, config.geometry.optimization_batch)
    return (*sizes, pytest.approx(config.hypers.learning_rate))


def test_the_zoo_entries_are_those_of_the_installed_file() -> None:
    try:
        files = importlib.metadata.files("rl_zoo3") or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("rl_zoo3 is not installed")
    (path,) = [file for file in files if str(file).endswith("hyperparams/ppo.yml")]
    text = path.read_text()
    for env, ours in ZOO_SETTINGS.items():
        theirs, _ = stable_baselines3.parse(text, env)
        assert ours == {name: value for name, value in theirs.items() if name not in ("policy", "n_timesteps")}, env
    assert yaml_text.mapping_of(text)["Pendulum-v1"]["n_timesteps"] == 1e5


def test_each_entry_is_a_task_of_its_own_with_whole_iterations_at_every_size() -> None:
    assert len({entry.env for entry in ENTRIES}) == len(ENTRIES)
    assert len([entry for entry in ENTRIES if "laptop" in entry.steps]) >= 8
    for entry in ENTRIES:
        for scale, steps in entry.steps.items():
            assert steps % (16 * entry.config(scale).geometry.iteration_batch) == 0
        assert entry.source != ZOO or bare_id(entry.env) in ZOO_SETTINGS


def test_the_moves_by_hand() -> None:
    """LunarLander: 16 x 1,024 in 256 minibatches of 64, at 3e-4. At 1/16 a rule divides the rate by sqrt(16)."""
    lander = "envpool/LunarLander-v3"
    assert moved(lander, BASE, 1) == (16, 1024, 256, 64, 3e-4)
    assert moved(lander, UNCHANGED, 1 / 16) == (1, 1024, 16, 64, 3e-4)
    assert moved(lander, KEEP, 1 / 16) == (1, 16384, 256, 64, 3e-4)
    assert moved(lander, BY_RULES, 1 / 16) == (1, 1024, 256, 4, 7.5e-5)
    assert moved(lander, AVERAGED, 1 / 16) == (1, 1024, 256, 4, 7.5e-5)
    assert moved(lander, UNCHANGED, 4) == (64, 1024, 1024, 64, 3e-4)
    assert moved(lander, KEEP, 4) == (64, 256, 256, 64, 3e-4)
    assert moved(lander, BY_RULES, 4) == (64, 1024, 256, 256, 6e-4)


def test_a_library_holds_the_count_or_the_size_of_minibatches() -> None:
    """CleanRL has 32 minibatches, so they grow; 64 samples of the zoo's CartPole are one of at most 256."""
    assert moved("envpool/Hopper-v4", UNCHANGED, 4) == (4, 2048, 32, 256, 3e-4)
    assert moved("CartPole-v1", UNCHANGED, 4) == (32, 32, 4, 256, 1e-3)
    assert moved("CartPole-v1", UNCHANGED, 1 / 4) == (2, 32, 1, 64, 1e-3)


def test_an_average_is_equally_old_at_every_size() -> None:
    def age(cell: Cell) -> float:
        return cell.config.geometry.proximal_age(cell.config.hypers.beta_prox)

    for env in {cell.config.env for cell in GRID.cells}:
        averages = [cell for cell in GRID.cells if cell.config.env == env and cell.factors["way"] == AVERAGED]
        assert all(cell.config.algo == "ppo-ewma" for cell in averages)
        assert {round(age(cell) / age(averages[0]), 6) for cell in averages} == {1.0}


def test_moves_that_do_not_exist_are_left_out() -> None:
    """CartPole has 8 environments and no sixteenth of them, CleanRL's one can only grow."""
    for entry in (entry for entry in ENTRIES if "laptop" in entry.steps):
        times = {cell.factors["times"] for cell in GRID.cells if cell.config.env == entry.env}
        expected = {1, 4, 16} | {t for t in (1 / 4, 1 / 16) if entry.config("laptop").num_envs * t >= 1}
        assert times == expected
        assert entry.source != CLEANRL or times == {1, 4, 16}


def test_a_verdict_ranks_the_ways() -> None:
    """Made-up rows: 0.9 for one way, 0.5 for the base and the others, so it keeps 180 %."""
    found = verdict(made_up("transfer", {"way": KEEP}))
    short = found[0]
    assert short.startswith(
        "In short, final return kept with fewer environments (1/16 and 1/4 times, mean over 6 tasks) "
    )
    assert "4 and 16 times, mean over 9 tasks) keep N x T 18" in short.replace("17", "18")
    assert short.index(KEEP) < min(short.index(way) for way in WAYS if way != KEEP)
    assert any(line.startswith("envpool/Hopper-v4, base 1.0, final return kept at 4 / 16 times: ") for line in found)
    assert any("keep N x T minus unchanged" in line and "which is above 0" in line for line in found)
    assert not any(line.startswith("Left out") for line in found)


def test_a_base_that_learned_nothing_is_left_out() -> None:
    rows = made_up("transfer")
    for row in rows:
        if row["env"] == "MountainCar-v0":
            row["normalized_final"] = 0.0
    assert "MountainCar-v0" not in tasks(rows, FINAL)
    left = [line for line in verdict(rows) if line.startswith("Left out")]
    assert left == [
        "Left out of the final return kept, since the base cannot be told from random actions: MountainCar-v0."
    ]
    assert kept_at([row for row in rows if row["env"] == "MountainCar-v0"], FINAL, KEEP, [4]) is None


def test_pictures_have_a_line_for_each_way() -> None:
    from matplotlib import pyplot

    rows = made_up("transfer")
    for figure, panels in ((draw_kept(rows), 2), (draw_kept_by_task(rows), 9)):
        drawn = [axes for axes in figure.axes if axes.get_lines()]
        assert len(drawn) == panels
        assert {text.get_text() for text in figure.legends[0].get_texts()} == set(WAYS)
        assert [label.get_text() for label in drawn[0].get_xticklabels()] == ["1/16", "1/4", "1", "4", "16"]
        pyplot.close(figure)
