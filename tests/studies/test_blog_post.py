"""The blog post as a study: what it keeps can be read back, and flags that mean nothing to it are refused."""

import json

import pytest

from isobatch.cli.main import main
from isobatch.laboratory.results import from_json, to_json
from isobatch.laboratory.sections.cosines import CosineMeans, Histogram, SampleCosines
from isobatch.statistics.bootstrap import Estimate
from isobatch.studies.blog_post import LATE, BatchNumbers, FigureNumbers, post_config


def test_what_its_figures_show_is_read_back() -> None:
    means = CosineMeans(Estimate(0.1, 0.0, 0.2), Estimate(0.3, 0.2, 0.4))
    histogram = Histogram((0.5, 0.5), means)
    cosines = SampleCosines(
        edges=(-1.0, 0.0, 1.0), within={1: histogram}, across=histogram, excess={1: means}, with_mean=histogram
    )
    batches = BatchNumbers(((1.0, 0.5), (0.5, 1.0)), Estimate(2.0, 1.0, 3.0), Estimate(0.5, 0.4, 0.6))
    for numbers in (
        FigureNumbers({0.95: cosines}),
        FigureNumbers({0.0: cosines}, {"4x256, 0": batches}),
    ):
        assert from_json(FigureNumbers, json.loads(json.dumps(to_json(numbers)))) == numbers


def test_it_trains_as_the_post_does() -> None:
    config = post_config()
    assert (config.env, config.num_envs, config.num_steps) == ("Pendulum-v1", 4, 256)
    assert config.num_iterations == LATE


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["geometry", "--measure-seed", "1"], "measure_seed=1 is for pendulum-post alone: leave it out"),
        (["pendulum-post", "--envs", "CartPole-v1"], "pendulum-post has one environment: leave it out"),
    ],
)
def test_bad_usage(words: list[str], sentence: str, capsys: pytest.CaptureFixture) -> None:
    assert main(["study", "run", *words]) == 2
    assert sentence in capsys.readouterr().err
