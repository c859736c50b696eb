"""The geometry of a run as a picture."""

from __future__ import annotations

from pathlib import Path

import pytest
from rollout_settings import BASE, PPG

from isobatch.advice.geometry_figure import lengths, plot_geometry
from isobatch.errors import UsageError
from isobatch.settings.presets import preset


def test_lengths_on_the_ruler() -> None:
    config = PPG.replace(proximal_policy="ewma", beta_prox=0.5, advantage_norm="ewma", adv_norm_decay=0.6)
    assert lengths(config) == [
        ("gradient step = proximal age", 256),
        ("iteration", 8192),
        ("advantage moments = phase", 32768),
        ("run", 262144),
    ]


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_picture_is_written(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"geometry.{ending}"
    plot_geometry(PPG.replace(minibatch_scheme="envs"), path)
    head = path.read_bytes()[:200]
    assert head.startswith(b"\x89PNG") if ending == "png" else b"<?xml" in head
    assert path.stat().st_size > 10_000
    if ending == "svg":
        assert "iteration batch  8,192" in path.read_text()


def test_picture_of_whole_episodes_has_the_samples_in_use(tmp_path: Path) -> None:
    path = tmp_path / "geometry.svg"
    plot_geometry(preset("reinforce"), path, time_limit=500)
    text = path.read_text()
    assert "of which whole episodes use at least 3,002" in text
    assert "optimization batch  at least 3,002" in text


def test_picture_with_a_wrong_ending(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="picture's ending"):
        plot_geometry(BASE, tmp_path / "geometry.bmp")
