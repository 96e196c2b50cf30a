"""One flipped bit at random places of datasets, and sound datasets of random schemas."""

from __future__ import annotations

import collections
import itertools
import random
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import beam_tfrecord as bt
from tests.dataset.flipping import classes_of, flipped
from tests.whole.type_families import FAMILIES, Column

_SPLITS = {"train": 0.5, "dev": 0.2, "test": 0.3}


def prove(*, flips: int = 1000, datasets: int = 100, seed: int = 0) -> dict[str, Any]:
    """Return how many flips were found, by class of byte, and how many sound datasets were quiet.

    A flip that is not found, or a false alarm, ends the proof.
    """
    with tempfile.TemporaryDirectory() as scratch:
        found = _flip(Path(scratch), flips, seed)
    alarms = _sound(datasets)
    return {
        "flips": {"tried": flips, "found": sum(found.values()), "seed": seed, "by class": found},
        "sound datasets": alarms,
    }


def _datasets(scratch: Path) -> list[Path]:
    """Write a plain and a compressed dataset of several splits and shards, with rejects."""
    rows = np.random.default_rng(0)
    count = 400
    doubles = rows.standard_normal(count)
    doubles[::50] = 1e300
    table = pa.table(
        {
            "id": np.arange(count),
            "x": doubles,
            "name": [f"row {row}" * (row % 5) for row in range(count)],
            "tags": [list(range(row % 4)) for row in range(count)],
        }
    )
    pq.write_table(table, scratch / "in.parquet")
    made = []
    for compression in ("none", "gzip"):
        out = scratch / compression
        bt.write(
            scratch / "in.parquet",
            out,
            splits=_SPLITS,
            shards=6,
            max_rejects="any",
            compression=compression,
        )
        made.append(out)
    return made


def _flip(scratch: Path, flips: int, seed: int) -> dict[str, int]:
    draw = random.Random(seed)
    made = _datasets(scratch)
    # Every class of bytes in turn, since most bytes by far are payload.
    turns = [(dataset, *pair) for dataset in made for pair in sorted(classes_of(dataset).items())]
    found: collections.Counter[str] = collections.Counter()
    for dataset, name, ranges in itertools.islice(itertools.cycle(turns), flips):
        path, start, stop = draw.choice(ranges)
        position, bit = draw.randrange(start, stop), draw.randrange(8)
        with flipped(path, position, bit):
            named = {Path(fault.path).name for fault in bt.verify(dataset).faults}
        if path.name not in named:
            raise SystemExit(f"bit {bit} of byte {position} of {path.name} ({name}) is not found")
        found[name] += 1
    for dataset in made:
        _must_be_quiet(dataset)
    return dict(sorted(found.items()))


def _must_be_quiet(dataset: Path) -> None:
    found = bt.verify(dataset)
    if not found.ok:
        raise SystemExit(f"a false alarm: {found.faults[0]}")


def _parquet_table(columns: list[Column]) -> pa.Table:
    """Return the columns that Parquet can hold, as long as the longest of them."""
    rows = max(len(column.array) for column in columns)
    kept = {}
    for number, (array, _) in enumerate(columns):
        long = pa.concat_arrays([array, pa.nulls(rows - len(array), array.type)])
        sink = pa.BufferOutputStream()
        try:
            pq.write_table(pa.table({"c": long}), sink)
            pq.read_table(pa.BufferReader(sink.getvalue()))
        except (OSError, pa.ArrowException):
            # Not every type has a form in Parquet, and null lists of a fixed size are not read.
            continue
        kept[f"c{number}"] = long
    return pa.table(kept)


def _sound(datasets: int) -> dict[str, int]:
    counts = {"written": 0, "columns": 0, "false alarms": 0}
    every = st.one_of(*FAMILIES.values())

    @settings(
        max_examples=datasets * 2,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(
        columns=st.lists(every, min_size=1, max_size=6),
        has_splits=st.booleans(),
        compression=st.sampled_from(["none", "gzip"]),
        shuffle=st.booleans(),
    )
    def check(columns: list[Column], has_splits: bool, compression: str, shuffle: bool) -> None:
        table = _parquet_table(columns)
        if counts["written"] >= datasets or not table.num_columns:
            return
        with tempfile.TemporaryDirectory() as scratch:
            source, out = Path(scratch, "in.parquet"), Path(scratch, "out")
            pq.write_table(table, source)
            bt.write(
                source,
                out,
                splits=_SPLITS if has_splits else None,
                shuffle=shuffle,
                compression=compression,
                max_rejects="any",
            )
            _must_be_quiet(out)
        counts["written"] += 1
        counts["columns"] += table.num_columns

    check()
    if counts["written"] < datasets:
        raise SystemExit(f"only {counts['written']} datasets were written")
    return counts
