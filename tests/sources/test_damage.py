"""Files with changed bytes or a cut end: as many rows as before, or one clear line."""

import random

import pyarrow as pa
import pytest

from beam_tfrecord.errors import DataError
from beam_tfrecord.sources.json import Json
from beam_tfrecord.sources.tfrecord import Tfrecord
from beam_tfrecord.sources.webdataset import WebDataset
from beam_tfrecord.testing import some_rows
from tests.helpers.effort import examples
from tests.helpers.formats import write_file
from tests.sources.behaviour import CASES

ROWS = 60


def _rows(source):
    return sum(batch.num_rows for batch in source.batches())


def _flip(data, draw):
    """Change a byte, half of the time near the end, where the footers are."""
    at = (
        draw.randrange(len(data))
        if draw.random() < 0.5
        else -1 - draw.randrange(min(300, len(data)))
    )
    data[at] = draw.choice((data[at] ^ 1 << draw.randrange(8), 0, 0x7F, 0x80, 0xFF))


def _swap(data, draw):
    """Exchange two pieces."""
    one, other = sorted(draw.sample(range(0, len(data) - 40, 8), 2))
    data[one : one + 8], data[other : other + 8] = data[other : other + 8], data[one : one + 8]


def _cut(data, draw):
    """Cut the end off."""
    del data[draw.randrange(len(data)) :]


def _zero(data, draw):
    """Zero a piece, as a disk may that lost a block."""
    at = draw.randrange(len(data))
    stop = min(at + draw.choice((1, 64, 512)), len(data))
    data[at:stop] = bytes(stop - at)


def _made(kind, path):
    """Write a file of `ROWS` rows; return what opens it."""
    if kind in CASES:
        CASES[kind].write(path, some_rows(ROWS))
        return CASES[kind].open
    numbers = range(ROWS)
    if kind == "webdataset":
        # One file a sample: of two, one whose name is damaged would be a sample of its own.
        write_file(path, pa.table({"txt": [f"text {row}" for row in numbers]}))
        return WebDataset
    start, source = ("né", Json) if kind.startswith("json") else ("n", Tfrecord)
    # Columns that damage cannot turn into others of another type.
    write_file(path, pa.table({"id": numbers, "name": [f"{start}{row}" for row in numbers]}))
    return source


SUFFIXES = {
    **{kind: CASES[kind].suffix for kind in ("arrow", "arrow stream", "orc", "avro", "excel")},
    "json": ".jsonl",
    "json array": ".json",
    "json.gz": ".jsonl.gz",
    "json.bz2": ".jsonl.bz2",
    "json.xz": ".jsonl.xz",
    "webdataset": ".tar",
    "others": ".tfrecord",
    "others.gz": ".tfrecord.gz",
    "tfrecord": ".tfrecord",
}

# openpyxl is slow.
SEEDS = {"excel": 20}


@pytest.mark.parametrize("damage", [_flip, _swap, _zero])
@pytest.mark.parametrize("kind", SUFFIXES)
def test_damage_loses_no_row_in_silence(tmp_path, kind, damage):
    path = tmp_path / f"x{SUFFIXES[kind]}"
    open_ = _made(kind, path)
    data = path.read_bytes()
    messages = []
    for seed in range(examples(SEEDS.get(kind, 60))):
        changed = bytearray(data)
        damage(changed, random.Random(seed))
        path.write_bytes(changed)
        try:
            assert _rows(open_(path)) == ROWS, seed
        except DataError as error:
            messages.append(str(error))
    assert messages
    assert all(path.name in message and "\n" not in message for message in messages)


@pytest.mark.parametrize("kind", SUFFIXES)
def test_a_file_that_is_cut_off_has_all_rows_before_the_cut_or_is_refused(tmp_path, kind):
    path = tmp_path / f"x{SUFFIXES[kind]}"
    open_ = _made(kind, path)
    data = path.read_bytes()
    for seed in range(examples(SEEDS.get(kind, 40))):
        changed = bytearray(data)
        _cut(changed, random.Random(seed))
        path.write_bytes(changed)
        found = message = None
        try:
            found = _rows(open_(path))
        except DataError as error:
            message = str(error)
        if message is None:
            # Not all formats need the bytes that fill their end.
            assert found in (ROWS, _complete_rows(kind, data, len(changed))), seed
        else:
            assert path.name in message
            assert "\n" not in message


def _complete_rows(kind, data, size):
    """Return the rows of a part of a file, if its format has no mark of the end."""
    if kind == "json" and b"\n" in data[size - 1 : size + 1]:
        return data[: size + 1].count(b"\n")
    return None if size or kind == "avro" else 0
