"""Splits: which part of the dataset (train, test, …) an example belongs to."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from beam_tfrecord.errors import UsageError

UInt64Array = npt.NDArray[np.uint64]

ONLY_SPLIT = "data"
_SPLIT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")

LOST_SPLITS = (
    "rows lost the split that AssignSplits gave them when they came out of their batches: use "
    "MapRows in place of ToRows, leave EncodeExamples out, or name the split in a column of the "
    "rows and pass split_column"
)

SPLIT_TWICE = (
    "rows come with the split that AssignSplits gave them: leave out splits, split_column and "
    "group here, or leave AssignSplits out"
)
SPLIT_IN_PART = (
    "some rows come with the split that AssignSplits gave them and some with none: apply "
    "AssignSplits to all of them, such as behind the Flatten"
)


def is_split_name(name: str) -> bool:
    """Tell whether `name` can begin a shard's file name."""
    return bool(_SPLIT_NAME.fullmatch(name)) and len(name) <= 100


@dataclasses.dataclass(frozen=True)
class Splits:
    """How rows are divided.

    Attributes:
        fractions: Share of each split, by name, summing to 1; empty with `column`.
        column: The column that names each row's split.
        group: Columns whose equal values share a split; empty: equal examples do.
    """

    fractions: tuple[tuple[str, float], ...] = ((ONLY_SPLIT, 1.0),)
    column: str | None = None
    group: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.column is not None:
            return
        for name, share in self.fractions:
            if not is_split_name(name):
                raise UsageError(f"split name {name!r} cannot be part of a file name: rename it")
            if not 0 <= share <= 1:
                raise UsageError(f"split {name!r} has share {share}: give a fraction from 0 to 1")
        total = math.fsum(share for _, share in self.fractions)
        if abs(total - 1) > 1e-9:
            shares = ", ".join(f"{name}={share:g}" for name, share in self.fractions)
            raise UsageError(f"splits sum to {total:g}, not to 1: {shares}")

    @property
    def are_given(self) -> bool:
        """True where anything says which split rows belong to."""
        return self != Splits()

    @property
    def is_single(self) -> bool:
        """True where every row is in the same split."""
        return self.column is None and len(self.fractions) == 1

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the splits in order; empty where a column gives them."""
        return () if self.column is not None else tuple(name for name, _ in self.fractions)

    @property
    def filled_names(self) -> tuple[str, ...]:
        """Names of the splits that rows go to; empty where a column gives them."""
        return tuple(name for name, share in self.fractions if share > 0)

    def buckets(self) -> UInt64Array:
        """Return the upper bound of every split but the last, as hashes, shape `[splits - 1]`.

        Bounds depend on the cumulated shares alone, so a row moves only when they do.
        """
        shares = [share for _, share in self.fractions]
        sums = [math.fsum(shares[: i + 1]) for i in range(len(shares) - 1)]
        return np.array([min(int(total * 2**64), 2**64 - 1) for total in sums], dtype=np.uint64)

    def assign(self, hashes: UInt64Array) -> npt.NDArray[np.uint16]:
        """Return the number of the split of every hash, shape `[n]`."""
        return np.searchsorted(self.buckets(), hashes, side="right").astype(np.uint16)


def make_splits(
    splits: Mapping[str, float] | str | None,
    *,
    column: str | None = None,
    group: Sequence[str] | str | None = (),
) -> Splits:
    """Build `Splits` from what a user gives.

    Args:
        splits: ``{"train": .9, "test": .1}`` or ``"train=0.9,test=0.1"``.
        column: Name of the column that names the split of each row.
        group: Columns whose equal values share a split, or one of them.

    Raises:
        UsageError: The shares do not sum to 1, a name cannot be a file name, or both are given.
    """
    if column is not None:
        if splits or group:
            raise UsageError(
                "a split column already says where rows go: drop the other split flags"
            )
        return Splits(fractions=(), column=column)
    if not splits:
        return Splits(group=as_columns(group))
    if isinstance(splits, str):
        splits = parse_shares(splits)
    shares = tuple((name, float(share)) for name, share in splits.items())
    return Splits(shares, None, as_columns(group))


def as_columns(columns: Sequence[str] | str | None) -> tuple[str, ...]:
    """Return names of columns as a tuple; a lone text is one name, not its letters."""
    return (columns,) if isinstance(columns, str) else tuple(columns or ())


def parse_shares(text: str) -> dict[str, float]:
    """Parse ``train=0.9,test=0.1``.

    Raises:
        UsageError: It is of another form.
    """
    shares: dict[str, float] = {}
    for part in text.split(","):
        name, equals, share = part.partition("=")
        try:
            if not equals or name.strip() in shares:
                raise ValueError
            shares[name.strip()] = float(share)
        except ValueError:
            raise UsageError(f"cannot read splits {text!r}: write train=0.9,test=0.1") from None
    return shares
