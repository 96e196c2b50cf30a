"""Makes pictures for the benchmark; `peers.py` measures writing photographs beside other tools."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = 20
BASES = 20
# Width and height that give about as many kB at quality 85.
SIZES = {20: (256, 256), 150: (700, 700)}


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
