"""Frames of episodes in a file: gif through Pillow, mp4 through ffmpeg."""

from __future__ import annotations

import contextlib
import io
import itertools
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from isobatch.errors import RunError, UsageError
from isobatch.files import check_writable, draft_of, unwritable
from isobatch.rendering.canvas import Size, captioned
from isobatch.rendering.scenes import END_SECONDS, Frame

ENDINGS = (".gif", ".mp4")
VIDEO_SIZE: Size = (600, 400)
GIF_FPS = 50.0  # browsers show faster ones slower


def check_video(path: Path) -> None:
    """UsageError if such a file cannot be written, before anything is computed for it."""
    if path.suffix not in ENDINGS:
        raise UsageError(f"video={str(path)!r} has no video's ending: use {' or '.join(ENDINGS)}.")
    if path.suffix == ".mp4":
        find_ffmpeg()
    check_writable(path, f"video={str(path)!r}")


def find_ffmpeg() -> str:
    """The program: the system's, or the one that a package brings along."""
    installed = shutil.which("ffmpeg")
    if installed:
        return installed
    try:
        from imageio_ffmpeg import get_ffmpeg_exe

        return get_ffmpeg_exe()
    except (ImportError, RuntimeError):
        raise UsageError(
            "an .mp4 needs ffmpeg, which is not installed: pip install 'isobatch[video]', or use .gif."
        ) from None


def record(path: Path, frames: Iterable[Frame], title: str) -> list[float]:
    """Write the episodes into a file, all at once; their returns."""
    returns: list[float] = []
    rest = iter(frames)
    first = next(rest)
    fps = first.scene.fps

    def pictures() -> Iterator[np.ndarray]:
        for frame in itertools.chain([first], rest):
            picture = captioned(frame.scene.draw(VIDEO_SIZE), title, frame.facts, frame.scene.legend)
            yield picture
            if frame.over:
                returns.append(frame.episode_return)
                yield from itertools.repeat(picture, round(END_SECONDS * fps))

    write: Callable[..., None] = write_gif if path.suffix == ".gif" else write_mp4
    try:
        with draft_of(path) as draft:
            write(draft, pictures(), fps)
    except OSError as error:
        raise unwritable(f"video={str(path)!r}", error) from None
    return returns


def write_gif(path: Path, pictures: Iterator[np.ndarray], fps: float) -> None:
    images = (Image.fromarray(picture) for picture in pictures)
    buffer = io.BytesIO()
    duration = round(100 / min(fps, GIF_FPS)) * 10  # milliseconds; the format counts hundredths of seconds
    next(images).save(buffer, "GIF", save_all=True, append_images=images, duration=duration, loop=0)
    path.write_bytes(buffer.getvalue())


def write_mp4(path: Path, pictures: Iterator[np.ndarray], fps: float) -> None:
    first = next(pictures)
    height, width = first.shape[:2]
    source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", str(fps), "-i", "-"]
    # Every player shows yuv420p, which wants even sizes.
    target = ["-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-pix_fmt", "yuv420p", "-crf", "18", "-f", "mp4"]
    command = [find_ffmpeg(), "-y", "-loglevel", "error", *source, "-c:v", "libx264", *target, f"file:{path}"]
    with tempfile.TemporaryFile() as complaints:
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=complaints) as ffmpeg:
            assert ffmpeg.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # it gave up, and says why
                for picture in itertools.chain([first], pictures):
                    ffmpeg.stdin.write(picture.tobytes())
        if ffmpeg.returncode:
            complaints.seek(0)
            raise RunError(f"ffmpeg failed: {complaints.read().decode(errors='replace').strip().splitlines()[-1:]}")
