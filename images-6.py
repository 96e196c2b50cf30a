




import pathlib

import numpy as np
from PIL import Image

random = np.random.default_rng(0)
for species in ("cat", "dog"):
    pathlib.Path("photos", species).mkdir(parents=True)
    for number in range(40):
        pixels = random.integers(0, 255, (32 + number, 48, 3), np.uint8)
        Image.fromarray(pixels).save(f"photos/{species}/{number}.jpg")
# One that is damaged: only its first half.
half = pathlib.Path("photos/cat/0.jpg").read_bytes()[:1000]
pathlib.Path("photos/cat/damaged.jpg").write_bytes(half)
