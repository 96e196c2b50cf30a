"""The rows and pictures that `loaders.py` reads, and the check that a loader delivers them."""

from __future__ import annotations

import dataclasses
import functools
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

# Other imports stand in functions: each costs memory in every process that is measured.

Kind = Literal["rows", "pictures"]
# Columns by name, for a batch. Numbers are arrays or tensors, texts are lists or tensors of text.
Batch = Mapping[str, Any]

FLOATS = ("f0", "f1", "f2", "f3")
INTEGERS = ("i0", "i1", "i2", "i3")
TEXTS = ("s0", "s1")
# The number of the row or picture.
NUMBER = {"rows": "i0", "pictures": "number"}
BATCH_SIZE = {"rows": 256, "pictures": 64}
SIDE = 224


@dataclasses.dataclass(frozen=True)
class Source:
    """What is converted to the format of every loader.

    Attributes:
        place: Directory of the files.
        kind: Rows of `rows.parquet`, or JPEG files listed in `pictures.parquet`.
    """

    place: Path
    kind: Kind

    @property
    def table_path(self) -> Path:
        """Path of the table: the rows, or the paths and numbers of pictures."""
        return self.place / f"{self.kind}.parquet"

    @functools.cached_property
    def table(self) -> Any:
        """The Arrow table, in memory."""
        import pyarrow.parquet as pq

        return pq.read_table(self.table_path)

    def row_dicts(self, start: int = 0, stop: int | None = None) -> list[dict[str, Any]]:
        """Return rows as dicts of Python values."""
        rows: list[dict[str, Any]] = self.table[start:stop].to_pylist()
        return rows


def make_rows(place: Path, count: int) -> None:
    """Write rows of 4 float32, 4 int64 (the first is the row's number) and 2 short texts."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from tables import make_table

    table = make_table(count, seed=0)
    number = table.schema.get_field_index("i0")
    table = table.set_column(number, "i0", pa.array(np.arange(count)))
    pq.write_table(table, Source(place, "rows").table_path)


def make_pictures(place: Path, count: int) -> None:
    """Write JPEG files of about 39 kB, 224 x 224 pixels: smooth shapes with noise."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from PIL import Image

    paths = []
    (place / "jpeg").mkdir()
    for number in range(count):
        random = np.random.default_rng(number)
        shapes = Image.fromarray(random.integers(0, 255, (SIDE // 8, SIDE // 8, 3), np.uint8))
        smooth = np.asarray(shapes.resize((SIDE, SIDE), Image.Resampling.BICUBIC), np.float32)
        noisy = smooth + 14 * random.standard_normal(smooth.shape, np.float32)
        path = place / "jpeg" / f"{number:06d}.jpg"
        Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8)).save(path, "JPEG", quality=95)
        paths.append(str(path))
    table = pa.table({"path": paths, "number": np.arange(count)})
    pq.write_table(table, Source(place, "pictures").table_path)


def number_arrays(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return rows as columns: arrays of numbers, lists of texts."""
    columns: dict[str, Any] = {}
    for names, kind in ((FLOATS, np.float32), (INTEGERS, np.int64)):
        columns |= {name: np.array([row[name] for row in rows], kind) for name in names}
    return columns | {name: [row[name] for row in rows] for name in TEXTS}


def rgb(data: bytes) -> Any:
    """Return the pixels of a JPEG file, uint8, shape `[height, width, 3]`."""
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def stacked(images: list[Any], numbers: Any) -> dict[str, Any]:
    """Return a batch of pictures of arrays of pixels."""
    return {"image": np.stack(images), "number": np.array(numbers, np.int64)}


class Check:
    """Checks the batches of an epoch: the values of every example, and how often each came."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._seen = np.zeros(source.table.num_rows, np.int64)
        if source.kind == "rows":
            numbers = (*FLOATS, *INTEGERS)
            self._numbers = {name: source.table[name].to_numpy() for name in numbers}
            self._texts = {name: np.array(source.table[name].to_pylist()) for name in TEXTS}

    def add(self, batch: Batch) -> None:
        """Count the examples of a batch.

        Raises:
            ValueError: A value is wrong.
        """
        numbers = np.asarray(batch[NUMBER[self._source.kind]])
        self._seen += np.bincount(numbers, minlength=len(self._seen))
        if self._source.kind == "pictures":
            self._check_picture(batch, numbers)
            return
        for name, known in self._numbers.items():
            found = np.asarray(batch[name])
            if found.dtype != known.dtype or not np.array_equal(found, known[numbers]):
                raise ValueError(f"the values of column {name} are wrong")
        for name, texts in self._texts.items():
            if np.asarray(batch[name]).astype(str).tolist() != texts[numbers].tolist():
                raise ValueError(f"the values of column {name} are wrong")

    def _check_picture(self, batch: Batch, numbers: Any) -> None:
        """Compare the first picture; decoders differ by a few levels."""
        found = np.asarray(batch["image"][0], np.float32)
        if found.shape == (3, SIDE, SIDE):
            found = found.transpose(1, 2, 0)
        path = self._source.table["path"][int(numbers[0])].as_py()
        known = rgb(Path(path).read_bytes()).astype(np.float32)
        if found.shape != known.shape or np.abs(found - known).mean() > 2:
            raise ValueError(f"picture {numbers[0]} has other pixels")

    def found(self) -> dict[str, int]:
        """Return the numbers of examples that came once, never, and several times."""
        return {
            "once": int((self._seen == 1).sum()),
            "never": int((self._seen == 0).sum()),
            "several_times": int((self._seen > 1).sum()),
        }
