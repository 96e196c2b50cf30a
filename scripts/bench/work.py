"""What each case of the benchmark gets (`Bench`) and returns (`Work`)."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from tables import Inputs


@dataclasses.dataclass(frozen=True)
class Bench:
    """The surroundings of one run of a case.

    Attributes:
        inputs: The tables.
        out: An empty folder for the output, on the filesystem the case asks for.
        scratch: Another empty folder beside it, for what lies between input and output.
        workers: Threads or processes to work with.
        batch_rows: Rows of a batch where the case cuts batches itself.
    """

    inputs: Inputs
    out: Path
    scratch: Path
    workers: int
    batch_rows: int = 16_384


@dataclasses.dataclass(frozen=True)
class Work:
    """What was done: rows in, bytes out."""

    rows: int
    output_bytes: int


Measured = Callable[[], Work]


def bytes_below(folder: Path) -> int:
    """Return the size of all files below `folder`."""
    return sum(
        os.path.getsize(os.path.join(place, name))
        for place, _, names in os.walk(folder)
        for name in names
    )


def shards_of(dataset: str) -> list[Path]:
    """Return the shards of a dataset."""
    return sorted(Path(dataset).glob("*.tfrecord"))


def forget(files: Sequence[Path]) -> None:
    """Have no file in the page cache."""
    os.sync()  # what is not on the disk yet stays
    for path in files:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
