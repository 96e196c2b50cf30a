"""Measures writing pictures beside the plainest loops that do as much.

    python scripts/bench/images.py [--scale 1.0] [--repeats 3] [--place DIR] [--output FILE]

Each case is run in turn with its loop, and the medians are compared with the bars:

* 50,000 files of 20 kB, and 2,000 of 150 kB, shuffled and split with the header check: at least
  0.7 of reading the files and writing their bytes to one file, synced as shards are.
* The decode check, and resizing to 256: at least 0.8 x cores x one thread that does the same with
  Pillow.
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from saving import save

CLASSES = 20
BASES = 20
SIDES = {20: 256, 150: 700}  # pixels a side that give about as many kB at quality 85
COPY_BAR, DECODE_BAR = 0.7, 0.8
RESIZED = 256


@dataclasses.dataclass(frozen=True)
class Case:
    """What is measured.

    Attributes:
        name: Of the case.
        files: How many.
        kilobytes: Size of each, about.
        loop: The plain loop over a directory, to a directory.
        options: Of the source.
        bar: Share of the loop's speed that is wanted, cores counted in.
    """

    name: str
    files: int
    kilobytes: int
    loop: Callable[[Path, Path], None]
    options: dict[str, Any]
    bar: float


def picture(side: int, seed: int) -> bytes:
    """Return a JPEG of smooth shapes with noise, as photographs are."""
    rng = np.random.default_rng(seed)
    shapes = Image.fromarray(rng.integers(0, 255, (side // 8, side // 8, 3), np.uint8))
    smooth = np.asarray(shapes.resize((side, side), Image.Resampling.BICUBIC), np.float64)
    noisy = np.clip(smooth + rng.normal(0, 6, smooth.shape), 0, 255).astype(np.uint8)
    out = io.BytesIO()
    Image.fromarray(noisy).save(out, "JPEG", quality=85)
    return out.getvalue()


def make_pictures(root: Path, files: int, kilobytes: int) -> None:
    """Write files in `CLASSES` folders; a comment in each makes it unlike all others."""
    bases = [picture(SIDES[kilobytes], seed) for seed in range(BASES)]
    for number in range(files):
        base, comment = bases[number % BASES], f"{number:012d}".encode()
        path = root / f"class{number % CLASSES:02d}" / f"{number:06d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base[:2] + b"\xff\xfe\x00\x0e" + comment + base[2:])


def files_of(root: Path) -> Iterator[str]:
    """Yield the paths of all files, folder after folder."""
    for folder in sorted(os.listdir(root)):
        for name in sorted(os.listdir(root / folder)):
            yield f"{root}/{folder}/{name}"


def copy_bytes(root: Path, out: Path) -> None:
    """Read every file, and write its bytes to one."""
    with (out / "all").open("wb", buffering=0) as target:
        for path in files_of(root):
            with open(path, "rb") as source:
                target.write(source.read())
        os.fsync(target.fileno())


def decode_and_copy(root: Path, out: Path) -> None:
    """Do the same, and decode every picture."""
    with (out / "all").open("wb", buffering=0) as target:
        for path in files_of(root):
            with open(path, "rb") as source:
                data = source.read()
            Image.open(io.BytesIO(data)).load()
            target.write(data)
        os.fsync(target.fileno())


def resize_and_write(root: Path, out: Path) -> None:
    """Decode every picture at a reduced scale, resize it, and write it as JPEG."""
    with (out / "all").open("wb", buffering=0) as target:
        for path in files_of(root):
            image = Image.open(path)
            size = (
                round(image.width * RESIZED / min(image.size)),
                round(image.height * RESIZED / min(image.size)),
            )
            image.draft(None, (2 * size[0], 2 * size[1]))
            small = io.BytesIO()
            image.resize(size, Image.Resampling.BICUBIC, reducing_gap=2).save(
                small, "JPEG", quality=90
            )
            target.write(small.getvalue())
        os.fsync(target.fileno())


def cases(scale: float) -> list[Case]:
    """Return what is measured, `scale` times as large as the bars ask for."""
    small, large = max(20, int(50_000 * scale)), max(20, int(2_000 * scale))
    spread = DECODE_BAR * (os.cpu_count() or 1)
    return [
        Case("20 kB, header check", small, 20, copy_bytes, {}, COPY_BAR),
        Case("150 kB, header check", large, 150, copy_bytes, {}, COPY_BAR),
        Case("150 kB, decode check", large, 150, decode_and_copy, {"check": "decode"}, spread),
        Case("150 kB, resized", large, 150, resize_and_write, {"resize": RESIZED}, spread),
    ]


def seconds_of(work: Callable[[Path], None], place: Path) -> float:
    """Return how long some work takes that writes to an empty directory."""
    out = Path(tempfile.mkdtemp(dir=place))
    try:
        os.sync()  # what was written before is not this one's to write back
        start = time.perf_counter()
        work(out)
        return time.perf_counter() - start
    finally:
        shutil.rmtree(out)


def measure(case: Case, root: Path, place: Path, repeats: int) -> dict[str, Any]:
    """Run a case and its loop in turn; return the medians and what they say."""
    import apache_beam  # noqa: F401  (its import is not what is measured)

    import beam_tfrecord as bt

    def write(out: Path) -> None:
        splits = {"train": 0.9, "test": 0.1}
        bt.write(root, out / "data", splits=splits, source_options=case.options)

    loops, ours = [], []
    for _ in range(repeats):
        loops.append(seconds_of(lambda out: case.loop(root, out), place))
        ours.append(seconds_of(write, place))
    loop_seconds, our_seconds = statistics.median(loops), statistics.median(ours)
    ratio = loop_seconds / our_seconds
    return {
        "case": case.name,
        "files": case.files,
        "loop_seconds": round(loop_seconds, 3),
        "seconds": round(our_seconds, 3),
        "files_per_second": round(case.files / our_seconds),
        "ratio": round(ratio, 2),
        "bar": case.bar,
        "met": ratio >= case.bar,
    }


def main() -> None:
    """Read the command line, measure, and tell."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--scale", type=float, default=1.0, help="share of the files")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--place", type=Path, help="directory to work in")
    arguments = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory(dir=arguments.place) as folder:
        place = Path(folder)
        for case in cases(arguments.scale):
            root = place / f"{case.kilobytes}kB"
            if not root.exists():
                make_pictures(root, case.files, case.kilobytes)
            results.append(measure(case, root, place, arguments.repeats))
            print(json.dumps(results[-1]), file=sys.stderr)
    told = {
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "scale": arguments.scale,
        "cases": results,
    }
    print(save("images", told))


if __name__ == "__main__":
    main()
