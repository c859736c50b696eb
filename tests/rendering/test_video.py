"""Videos hold every frame."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from needs import one_more_case
from PIL import Image
from trained import Runs

import isobatch as ib
from isobatch.cli.main import main
from isobatch.rendering.scenes import END_SECONDS
from isobatch.rendering.video import find_ffmpeg

pytestmark = pytest.mark.xdist_group("trained")


def test_gif(runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    out = tmp_path / "new" / "episode.gif"
    assert (
        main(["eval", str(runs("CartPole-v1")), "--episodes", "2", "--video", str(out), "--video-episodes", "2"]) == 0
    )
    said = capsys.readouterr().out
    first, second = (float(v) for v in re.search(r"filmed: .* \(seed 0, return ([\d.]+), ([\d.]+)\)", said).groups())
    with Image.open(out) as gif:
        assert gif.n_frames == first + second + 2  # the pauses are longer frames
        assert gif.size[0] == 600
        assert gif.info["duration"] == 20
    assert [path.name for path in out.parent.iterdir()] == ["episode.gif"]


@one_more_case
def test_mp4(runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    try:
        ffmpeg = find_ffmpeg()
    except ib.UsageError as missing:
        pytest.skip(str(missing))
    out = tmp_path / "episode.mp4"
    words = ["--episodes", "2", "--video", str(out), "--policy-seed", "1", "--json"]
    assert main(["eval", str(runs("CartPole-v1")), *words]) == 0
    found = json.loads(capsys.readouterr().out)["video"]
    assert found["policy_seed"] == 1
    # Every frame again, as bytes.
    command = [ffmpeg, "-i", str(out), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    read = subprocess.run(command, capture_output=True, check=True)
    assert b"h264" in read.stderr
    assert b"50 fps" in read.stderr
    width, height = (int(n) for n in re.search(rb", (\d+)x(\d+)", read.stderr).groups())
    count = found["returns"][0] + 1 + 50 * END_SECONDS
    assert len(read.stdout) == width * height * 3 * count
    assert [path.name for path in tmp_path.iterdir()] == ["episode.mp4"]
