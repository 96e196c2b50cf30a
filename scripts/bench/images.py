"""Measures writing pictures beside the plainest loops that do as much.

    python scripts/bench/images.py [--scale 1.0] [--repeats 3] [--place DIR] [--output FILE]

Each case is run in turn with its loop, and the medians are compared with the bars:

* 50,000 files of 20 kB, and 2,000 of 150 kB, shuffled and split with the header check: at least
  0.7 of reading the files and writing their bytes to one file, synced as shards are. Once with the
  files in the page cache, as whoever has just made them finds them, and once without.
* The decode check, and resizing to 256: at least 0.8 x cores x one thread that does the same with
  Pillow. What a pool of threads makes of that loop on this machine is told beside it.
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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from saving import save

CLASSES = 20
BASES = 20
# Width and height that give about as many kB at quality 85.
SIZES = {20: (256, 256), 150: (700, 700)}
COPY_BAR, DECODE_BAR = 0.7, 0.8
RESIZED = 256


@dataclasses.dataclass(frozen=True)
class Case:
    """What is measured.

    Attributes:
        name: Of the case.
        files: How many.
        kilobytes: Size of each, about.
        work: What the plain loop does with a file; gives what is to be written.
        options: Of the source.
        bar: Share of the loop's speed that is wanted, cores counted in.
        is_cold: The files are not in the page cache.
        has_pool: The loop is measured in a pool of threads, too.
    """

    name: str
    files: int
    kilobytes: int
    work: Callable[[str], bytes]
    options: dict[str, Any]
    bar: float
    is_cold: bool = False
    has_pool: bool = False


def picture(size: tuple[int, int], seed: int) -> bytes:
    """Return a JPEG of smooth shapes with noise, as photographs are, given width and height."""
    rng = np.random.default_rng(seed)
    shapes = Image.fromarray(rng.integers(0, 255, (size[1] // 8, size[0] // 8, 3), np.uint8))
    smooth = np.asarray(shapes.resize(size, Image.Resampling.BICUBIC), np.float64)
    noisy = np.clip(smooth + rng.normal(0, 6, smooth.shape), 0, 255).astype(np.uint8)
    out = io.BytesIO()
    Image.fromarray(noisy).save(out, "JPEG", quality=85)
    return out.getvalue()


def make_pictures(root: Path, files: int, size: tuple[int, int]) -> None:
    """Write files in `CLASSES` folders; a comment in each makes it unlike all others."""
    bases = [picture(size, seed) for seed in range(BASES)]
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


def read(path: str) -> bytes:
    """Return the bytes of a file."""
    with open(path, "rb") as source:
        return source.read()


def decoded(path: str) -> bytes:
    """Return the bytes of a file, and decode it."""
    data = read(path)
    Image.open(io.BytesIO(data)).load()
    return data


def resized(path: str) -> bytes:
    """Decode a file at a reduced scale, and return it resized as JPEG."""
    image = Image.open(path)
    width, height = (round(side * RESIZED / min(image.size)) for side in image.size)
    image.draft(None, (2 * width, 2 * height))
    small = io.BytesIO()
    smaller = image.resize((width, height), Image.Resampling.BICUBIC, reducing_gap=2)
    smaller.save(small, "JPEG", quality=90)
    return small.getvalue()


def loop(work: Callable[[str], bytes], root: Path, out: Path, threads: int = 1) -> None:
    """Write what becomes of every file of a directory to one file."""
    with (out / "all").open("wb", buffering=0) as target, ThreadPoolExecutor(threads) as pool:
        run = map if threads == 1 else pool.map
        for data in run(work, files_of(root)):
            target.write(data)
        os.fsync(target.fileno())


def cases(scale: float) -> list[Case]:
    """Return what is measured, `scale` times as large as the bars ask for."""
    small, large, many = (max(20, int(count * scale)) for count in (50_000, 2_000, 5_000))
    spread = DECODE_BAR * (os.cpu_count() or 1)
    copied = [
        Case(f"{size} kB{', cold' if cold else ''}", files, size, read, {}, COPY_BAR, is_cold=cold)
        for cold in (False, True)
        for size, files in ((20, small), (150, large))
    ]
    resize = {"resize": RESIZED}
    return [
        *copied,
        Case("decode check", many, 150, decoded, {"check": "decode"}, spread, has_pool=True),
        Case("resized", many, 150, resized, resize, spread, has_pool=True),
    ]


def forget(root: Path) -> None:
    """Have no file of a directory in the page cache."""
    for path in files_of(root):
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


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

    cores = os.cpu_count() or 1
    ways: dict[str, Callable[[Path], None]] = {
        "loop_seconds": lambda out: loop(case.work, root, out),
        "seconds": write,
    }
    if case.has_pool:
        ways["pool_seconds"] = lambda out: loop(case.work, root, out, cores)
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, way in ways.items():
            if case.is_cold:
                os.sync()
                forget(root)
            taken[name].append(seconds_of(way, place))
    medians = {name: round(statistics.median(seconds), 3) for name, seconds in taken.items()}
    loop_seconds, our_seconds = medians["loop_seconds"], medians["seconds"]
    ratio = loop_seconds / our_seconds
    return {
        "case": case.name,
        "files": case.files,
        **medians,
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
            root = place / f"{case.files}x{case.kilobytes}kB"
            if not root.exists():
                make_pictures(root, case.files, SIZES[case.kilobytes])
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
