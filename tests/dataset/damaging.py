"""Random damage to the shards of datasets, which records it has left intact, what repair tells.

What is intact is worked out from the damage itself: a record is, where all of its bytes are still
there, one after the other. The package's own readers take no part in it.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from pathlib import Path

import pyarrow as pa

from beam_tfrecord.check.repair import repair
from beam_tfrecord.features.schema import Schema
from tests.helpers.made_datasets import encoded, write_examples
from tests.helpers.records import framed

# The bytes of a damaged stream, each as its position in the sound one; None for any other byte.
Origins = list[int | None]

_SCHEMA = pa.schema([("blob", pa.binary()), ("id", pa.int64()), ("text", pa.string())])


@dataclasses.dataclass(frozen=True)
class Damage:
    """A damaged stream.

    Attributes:
        data: Its bytes.
        origins: Where each of them was before.
    """

    data: bytes
    origins: Origins


def flip(data, draw):
    """Flip one bit."""
    return _flipped(data, draw, 1)


def flips(data, draw):
    """Flip several bits anywhere."""
    return _flipped(data, draw, draw.randint(2, 9))


def _flipped(data, draw, count):
    new, origins = bytearray(data), list[int | None](range(len(data)))
    for position in draw.sample(range(len(data)), count):
        new[position] ^= 1 << draw.randrange(8)
        origins[position] = None
    return Damage(bytes(new), origins)


def zero(data, draw):
    """Fill a range with zeros."""
    start, stop = _range(data, draw)
    origins = [
        None if start <= position < stop and byte else position
        for position, byte in enumerate(data)
    ]
    return Damage(data[:start] + bytes(stop - start) + data[stop:], origins)


def cut(data, draw):
    """Cut off the end."""
    at = draw.randrange(len(data))
    return Damage(data[:at], list(range(at)))


def insert(data, draw):
    """Insert random bytes."""
    at, new = draw.randrange(len(data) + 1), draw.randbytes(_size(data, draw))
    origins = [*range(at), *[None] * len(new), *range(at, len(data))]
    return Damage(data[:at] + new + data[at:], origins)


def delete(data, draw):
    """Take a range out."""
    start, stop = _range(data, draw)
    return Damage(data[:start] + data[stop:], [*range(start), *range(stop, len(data))])


def double(data, draw):
    """Write a range twice."""
    start, stop = _range(data, draw)
    return Damage(data[:stop] + data[start:], [*range(stop), *range(start, len(data))])


def misdirect(data, draw):
    """Write a block of the file over another place of it."""
    size = draw.randint(1, len(data) // 3)
    start, other = (draw.randrange(len(data) - size + 1) for _ in range(2))
    new = data[:start] + data[other : other + size] + data[start + size :]
    return Damage(new, [at if one == data[at] else None for at, one in enumerate(new)])


def copy_records(data, draw):
    """Write whole records once more at any place, or over as many others."""
    ends = [0, *_record_ends(data)]
    count = draw.randint(1, 10)
    first, at = (draw.randrange(len(ends) - count) for _ in range(2))
    over = draw.choice((0, count))
    rows = [*range(at), *range(first, first + count), *range(at + over, len(ends) - 1)]
    places = [place for row in rows for place in range(ends[row], ends[row + 1])]
    return Damage(bytes(data[place] for place in places), list(places))


def _both(first, second):
    def both(data, draw):
        one = first(data, draw)
        other = second(one.data, draw)
        origins = [None if place is None else one.origins[place] for place in other.origins]
        return Damage(other.data, origins)

    both.__name__ = f"{first.__name__} and {second.__name__}"
    return both


# One place is damaged, or single bits are: all that is intact comes out, and nothing else if values
# hold no framed records.
KINDS = {one.__name__: one for one in (flip, flips, zero, cut, insert, delete)}
# Blocks are where they do not belong, or many places are damaged: bytes alone do not tell what
# the records were, but what is told of them is right.
HARD_KINDS = {
    one.__name__: one
    for one in (
        double,
        misdirect,
        copy_records,
        _both(double, flip),
        _both(copy_records, flip),
        _both(delete, delete),
    )
}


def _size(data, draw):
    return min(len(data), draw.choice((1, draw.randint(1, 16), draw.randint(1, len(data) // 8))))


def _range(data, draw):
    size = _size(data, draw)
    start = draw.randrange(len(data) - size + 1)
    return start, start + size


def intact(damage, payloads):
    """Return the payloads of the records of which all bytes are there in a row."""
    found, at = [], 0
    whole = _runs(damage.origins)
    for payload in payloads:
        end = at + len(payload) + 16
        if any(start <= at and end <= stop for start, stop in whole):
            found.append(payload)
        at = end
    return found


def _record_ends(data):
    ends = [0]
    while ends[-1] < len(data):
        at = ends[-1]
        ends.append(at + 16 + int.from_bytes(data[at : at + 8], "little"))
    return ends[1:]


def _runs(origins):
    """Return the ranges of positions of the sound stream that are there in a row."""
    runs = []
    start = stop = -1
    for origin in (*origins, None):
        if origin is None or origin != stop:
            if start >= 0:
                runs.append((start, stop))
            start, stop = (-1, -1) if origin is None else (origin, origin + 1)
        else:
            stop += 1
    return runs


def tables(draw):
    """Return the examples of datasets by the kind of their values, some 60 each."""

    def rows(blobs: list[bytes], first_id: int = 0) -> list[bytes]:
        table = pa.table(
            {
                "blob": blobs,
                "id": list(range(first_id, first_id + len(blobs))),
                "text": ["x" * draw.randrange(40) for _ in blobs],
            },
            schema=_SCHEMA,
        )
        return encoded(table, Schema.from_arrow(_SCHEMA))

    plain = rows([draw.randbytes(draw.randrange(120)) for _ in range(60)])

    def frames_of(payloads, count):
        return b"".join(framed(draw.choice(payloads)) for _ in range(count))

    small = [draw.randbytes(draw.randrange(20)) for _ in range(20)]
    # Records that no type tells from the dataset's own.
    others = rows([draw.randbytes(draw.randrange(60)) for _ in range(20)], 1000)
    framed_bytes = rows([frames_of(small, draw.randrange(9)) for _ in range(60)])
    framed_examples = rows([frames_of(others, draw.randrange(6)) for _ in range(60)])
    spaced = rows(
        [
            b"".join(draw.randbytes(draw.randrange(9)) + framed(draw.choice(others)) for _ in "abc")
            for _ in range(60)
        ]
    )
    return {
        "plain": plain,
        "framed bytes": framed_bytes,
        "framed examples": framed_examples,
        "frames between bytes": spaced,
    }


@dataclasses.dataclass
class Repaired:
    """What a repair did to the records of a damaged shard.

    Attributes:
        lost: Intact records that are not in the repaired dataset.
        invented: Records in it that were not in the sound one, or not as often.
        listed: True where it lists every loss.
        honest: True where no count or line of it denies a loss.
    """

    lost: int
    invented: int
    listed: bool
    honest: bool


def damage_and_repair(directory, payloads, kind, draw):
    """Write a dataset of two shards, damage one, and look at what repair makes of it."""
    source, target = directory / "in", directory / "out"
    shards = [payloads[: len(payloads) // 2], payloads[len(payloads) // 2 :]]
    schema = Schema.from_arrow(_SCHEMA)
    write_examples(source, {"data": shards}, schema)
    number = draw.randrange(2)
    path = sorted(source.glob("*.tfrecord"))[number]
    damage = (KINDS | HARD_KINDS)[kind](path.read_bytes(), draw)
    path.write_bytes(damage.data)
    done = repair(source, target)
    sound = collections.Counter(itertools.chain(*shards))
    kept = intact(damage, shards[number])
    still = collections.Counter(kept) + collections.Counter(shards[1 - number])
    found = collections.Counter(_records(target))
    missing = (sound - found).total()
    least, most = sum(done.lost_examples.values()), sum(one.most_records for one in done.lost)
    return Repaired(
        lost=(still - found).total(),
        invented=(found - sound).total(),
        listed=missing == least,
        honest=least <= missing <= most and done.has_all_examples == (found == sound),
    )


def _records(directory: Path) -> list[bytes]:
    found = []
    for path in sorted(directory.glob("*.tfrecord")):
        data, at = path.read_bytes(), 0
        while at < len(data):
            end = at + 12 + int.from_bytes(data[at : at + 8], "little")
            found.append(data[at + 12 : end])
            at = end + 4
    return found
