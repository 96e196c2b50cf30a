"""`Layout`: every setting that decides the bytes of a dataset, as one value."""

from __future__ import annotations

import dataclasses

from beam_tfrecord.errors import UsageError
from beam_tfrecord.shards import ShardNames, ShardSpec
from beam_tfrecord.splits import Splits

COMPRESSIONS = {"none": "", "": "", "uncompressed": "", "gzip": "GZIP"}


@dataclasses.dataclass(frozen=True)
class Layout:
    """How rows are split, ordered, cut into shards and stored.

    Attributes:
        splits: Which split a row belongs to.
        shards: How many shards a split has.
        shuffle: False keeps the order of the source.
        key: Columns whose values decide the place of a row; empty: where it was read.
        seed: Of every hash.
        compression: ``""`` or ``GZIP``.
        names: Of the shards.
    """

    splits: Splits = Splits()
    shards: ShardSpec = ShardSpec()
    shuffle: bool = True
    key: tuple[str, ...] = ()
    seed: int = 0
    compression: str = ""
    names: ShardNames = ShardNames()

    def __post_init__(self) -> None:
        if self.key and not self.shuffle:
            raise UsageError("a key decides the shuffled order: it cannot go with source order")
        if not 0 <= self.seed < 2**64:
            raise UsageError(f"seed {self.seed} is not in the range from 0 to 2^64-1")

    @property
    def group(self) -> tuple[str, ...]:
        """Columns that decide the split: by default those of the key."""
        return self.splits.group or self.key

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column a setting names."""
        named = (self.splits.column,) if self.splits.column else ()
        return tuple(dict.fromkeys((*self.key, *self.splits.group, *named)))


def parse_compression(compression: str | None) -> str:
    """Return ``""`` or ``GZIP``.

    Raises:
        UsageError: It is neither ``none`` nor ``gzip``.
    """
    try:
        return COMPRESSIONS[(compression or "none").lower()]
    except KeyError:
        raise UsageError(f"compression {compression!r} is not none or gzip") from None
