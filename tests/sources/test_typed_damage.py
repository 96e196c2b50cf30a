"""Arrow, ORC and Avro files with changed bytes: as many rows as before, or one clear line."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from beam_tfrecord.errors import DataError
from beam_tfrecord.sources.base import Source
from beam_tfrecord.testing import some_rows
from tests.sources.behaviour import CASES

ROWS = 60


def _rows(source: Source) -> int:
    return sum(batch.num_rows for batch in source.batches())


def _flip(data: bytearray, draw: random.Random) -> None:
    """Change a byte, half of the time near the end, where the footers are."""
    at = draw.randrange(len(data)) if draw.random() < 0.5 else -1 - draw.randrange(300)
    data[at] = draw.choice((data[at] ^ 1 << draw.randrange(8), 0, 0x7F, 0x80, 0xFF))


def _swap(data: bytearray, draw: random.Random) -> None:
    """Exchange two pieces."""
    one, other = sorted(draw.sample(range(0, len(data) - 40, 8), 2))
    data[one : one + 8], data[other : other + 8] = data[other : other + 8], data[one : one + 8]


@pytest.mark.parametrize("damage", [_flip, _swap])
@pytest.mark.parametrize("kind", ["arrow", "arrow stream", "orc", "avro"])
def test_damage_loses_no_row_in_silence(
    tmp_path: Path, kind: str, damage: Callable[[bytearray, random.Random], None]
) -> None:
    case = CASES[kind]
    path = tmp_path / f"x{case.suffix}"
    case.write(path, some_rows(ROWS))
    data = path.read_bytes()
    messages = []
    for seed in range(120):
        changed = bytearray(data)
        damage(changed, random.Random(seed))
        path.write_bytes(changed)
        try:
            assert _rows(case.open(path)) == ROWS, seed
        except DataError as error:
            messages.append(str(error))
    assert messages
    assert all(path.name in message and "\n" not in message for message in messages)
