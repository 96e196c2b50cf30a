"""`Layout`: the settings of splits, shards, order and compression of a dataset, and their checks.

This module also parses these settings from user input, chooses the number of shards of each split,
and divides records among shards.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord.base.text import counted, parse_size
from beam_tfrecord.errors import UsageError
from beam_tfrecord.native.kernel_types import Int64Array, UInt64Array

T = TypeVar("T")

COMPRESSIONS = {"none": "", "": "", "uncompressed": "", "gzip": "GZIP"}
DEFAULT_SHARD_BYTES = 128 * 10**6
ONLY_SPLIT = "data"

NO_SPLIT = (
    "some rows have no split, though AssignSplits gave rows one: apply it to all rows, such as "
    "after the Flatten. Rows that leave their batches lose their split: use MapRows in place of "
    "ToRows, leave EncodeExamples out, or name the split in a column and pass split_column"
)
SPLIT_TWICE = (
    "rows come with the split that AssignSplits gave them: leave out splits, split_column and "
    "group here, or leave AssignSplits out"
)

_SPLIT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")


def is_split_name(name: str) -> bool:
    """Return whether `name` is valid as the name of a split, with which shard file names begin."""
    return bool(_SPLIT_NAME.fullmatch(name)) and len(name) <= 100


@dataclasses.dataclass(frozen=True)
class Stratum:
    """A class of rows: its value as text, its number of rows when they were counted, its limits.

    The value is None for null, and if all rows are one class.
    """

    value: str | None
    rows: int
    limits: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Strata:
    """Limits of the hashes of splits, class by class, which come from counts of all rows.

    A limit is the exclusive upper bound of the hashes of a split; the last split has none.

    Attributes:
        column: Column whose values are the classes; None if all rows are one class.
        splits: Names of the splits.
        others: Limits of rows of other classes, which follow from the shares alone.
        classes: The classes, sorted by value.
    """

    column: str | None
    splits: tuple[str, ...]
    others: tuple[int, ...]
    classes: tuple[Stratum, ...]

    def __post_init__(self) -> None:
        if {len(self.others), *(len(one.limits) for one in self.classes)} != {len(self.splits) - 1}:
            raise ValueError("strata have a number of limits that does not fit their splits")

    @functools.cached_property
    def _numbers(self) -> dict[str | None, int]:
        return {one.value: number for number, one in enumerate(self.classes)}

    @functools.cached_property
    def _limits(self) -> UInt64Array:
        return np.array([*(one.limits for one in self.classes), self.others], np.uint64)

    def assign(self, hashes: UInt64Array, values: pa.StringArray) -> npt.NDArray[np.uint16]:
        """Return the number of the split of each row by its hash and its class, shape `[n]`."""
        encoded = pc.dictionary_encode(values, null_encoding="encode")
        found = [self._numbers.get(value, -1) for value in encoded.dictionary.to_pylist()]
        limits = self._limits[np.array(found, np.int64)[encoded.indices.to_numpy()]]
        found_splits: npt.NDArray[np.int64] = (limits <= hashes[:, np.newaxis]).sum(axis=1)
        return found_splits.astype(np.uint16)


@dataclasses.dataclass(frozen=True)
class Splits:
    """The division of rows into splits: by shares, by a column, by numbers of rows, or conditions.

    Attributes:
        fractions: Shares by name.
        column: Column that names the split.
        group: Columns whose equal values share a split.
        rows: Numbers of rows by name; None for the last split, which takes the rest.
        conditions: Conditions by name, of which the first that holds decides; None for the last
            split, which takes the rest.
        stratify: Column of whose classes each split has its share.
        strata: Limits by class, once the rows are counted.
    """

    fractions: tuple[tuple[str, float], ...] = ((ONLY_SPLIT, 1.0),)
    column: str | None = None
    group: tuple[str, ...] = ()
    rows: tuple[tuple[str, int | None], ...] = ()
    conditions: tuple[tuple[str, Any], ...] = ()
    stratify: str | None = None
    strata: Strata | None = None

    def __post_init__(self) -> None:
        if self.conditions and self.group:
            raise UsageError("the conditions of --split say where rows go: leave out --group")
        if self.stratify and (self.is_single or not self.fractions):
            raise UsageError("--stratify needs shares, as in --split train=0.8,test=0.2")
        for name in self.names:
            if not is_split_name(name):
                raise UsageError(f"split name {name!r} cannot be part of a file name: rename it")
        if not self.fractions:
            return
        for name, share in self.fractions:
            if not 0 <= share <= 1:
                raise UsageError(f"split {name!r} has share {share:g}: give a fraction from 0 to 1")
        total = math.fsum(share for _, share in self.fractions)
        if abs(total - 1) > 1e-9:
            shares = ", ".join(f"{name}={share:g}" for name, share in self.fractions)
            raise UsageError(
                f"splits sum to {total:g}, not to 1: {shares}: change one by {abs(total - 1):.3g}"
            )

    @property
    def are_given(self) -> bool:
        """Whether any setting determines the split of a row."""
        return self != Splits()

    @property
    def is_single(self) -> bool:
        """Whether all rows are in the same split."""
        return len(self.names) == 1

    @property
    def by_values(self) -> bool:
        """Whether values of columns say the split of a row, and not a hash."""
        return self.column is not None or bool(self.conditions)

    @property
    def needs_counts(self) -> bool:
        """Whether all rows have to be counted before any of them has a split."""
        return bool(self.stratify or self.rows) and self.strata is None

    @property
    def columns(self) -> dict[str, str]:
        """The columns that decide the split, and the flag that names each."""
        named = {name: "--split" for _, one in self.conditions if one for name in one.columns}
        named |= {name: "--split-column" for name in (self.column,) if name}
        named |= {name: "--stratify" for name in (self.stratify,) if name}
        return named | dict.fromkeys(self.group, "--group")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the splits, in order; empty if a column names them."""
        return tuple(name for name, _ in self.fractions or self.rows or self.conditions)

    @property
    def filled_names(self) -> tuple[str, ...]:
        """Names of the splits but those of share 0; empty if a column names them."""
        return tuple(name for name in self.names if dict(self.fractions).get(name, 1) > 0)

    def buckets(self) -> UInt64Array:
        """Return the exclusive upper bound of the hashes of each split but the last.

        Bounds depend only on the cumulated shares. So a row changes its split only if a change of
        shares moves a bound across its hash.
        """
        shares = [share for _, share in self.fractions]
        sums = [math.fsum(shares[: i + 1]) for i in range(len(shares) - 1)]
        return np.array([min(int(total * 2**64), 2**64 - 1) for total in sums], dtype=np.uint64)

    def assign(
        self, hashes: UInt64Array, values: pa.StringArray | None = None
    ) -> npt.NDArray[np.uint16]:
        """Return the number of the split of each row, shape `[n]`.

        Args:
            hashes: The hash of each row, shape `[n]`.
            values: The class of each row, if there are strata.
        """
        if self.strata is not None:
            return self.strata.assign(hashes, values)
        return np.searchsorted(self.buckets(), hashes, side="right").astype(np.uint16)


def refuse_counted(splits: Splits) -> Splits:
    """Return splits of a step, which cannot count all rows before."""
    if splits.needs_counts:
        raise UsageError(
            "numbers of rows in splits need a pass over all rows before: call beam_tfrecord.write, "
            "or give shares, such as train=0.8,test=0.2"
        )
    return splits


def as_columns(columns: Sequence[str] | str | None) -> tuple[str, ...]:
    """Return names of columns as a tuple; a string is a single name."""
    return (columns,) if isinstance(columns, str) else tuple(columns or ())


def named_values(parts: Sequence[str], parse: Callable[[str], T]) -> dict[str, T]:
    """Parse parts ``name=value``; raise ValueError for other text or a repeated name."""
    pairs = [part.partition("=") for part in parts]
    values = {name.strip(): parse(value.strip()) for name, sign, value in pairs if sign}
    if len(values) < len(pairs):
        raise ValueError
    return values


@dataclasses.dataclass(frozen=True)
class ShardSpec:
    """The number of shards to write, or their size."""

    shard_bytes: int | None = DEFAULT_SHARD_BYTES
    total: int | None = None
    per_split: tuple[tuple[str, int], ...] = ()

    def check(self, splits: Iterable[str]) -> None:
        """Check that each split can have a shard, before the sizes of the splits are known."""
        self.counts(dict.fromkeys(splits, 1))

    def counts(self, split_bytes: Mapping[str, int]) -> dict[str, int]:
        """Return the number of shards of each split that has bytes."""
        filled = {name: nbytes for name, nbytes in split_bytes.items() if nbytes > 0}
        if self.per_split:
            given = dict(self.per_split)
            if missing := [name for name in filled if name not in given]:
                raise UsageError(
                    f"split {missing[0]!r} has no number of shards: "
                    f"{_shards_hint(missing[0], sorted(set(given).difference(split_bytes)))}"
                )
            return {name: given[name] for name in filled}
        if self.total is not None:
            return apportion(self.total, filled)
        size = self.shard_bytes or DEFAULT_SHARD_BYTES
        return {name: max(1, round(nbytes / size)) for name, nbytes in filled.items()}


def _shards_hint(missing: str, unknown: Sequence[str]) -> str:
    """Return what to do about a split without a number of shards."""
    if missing == ONLY_SPLIT:
        return "pass --split to name the splits, or one number to --shards"
    if unknown:
        return f"--shards names {unknown[0]!r}, which is not a split"
    return "add it to --shards"


def make_shard_spec(
    shards: int | str | Mapping[str, int] | None, shard_size: int | str | None
) -> ShardSpec:
    """Return the `ShardSpec` for the arguments of a user."""
    if shards is None:
        return ShardSpec(parse_size(shard_size) if shard_size else DEFAULT_SHARD_BYTES)
    if shard_size is not None:
        raise UsageError("a number of shards and a shard size exclude each other: give one")
    if isinstance(shards, str):
        shards = _parse_shards(shards)
    if isinstance(shards, Mapping):
        counts = tuple((name, _positive(count)) for name, count in shards.items())
        return ShardSpec(None, None, counts)
    return ShardSpec(None, _positive(shards))


def _parse_shards(text: str) -> int | dict[str, int]:
    try:
        return named_values(text.split(","), int) if "=" in text else int(text)
    except ValueError:
        raise UsageError(f"cannot read shards {text!r}: write 64 or train=64,test=8") from None


def _positive(count: int) -> int:
    if count < 1:
        raise UsageError(f"the number of shards must be at least 1, not {count}")
    return count


def apportion(total: int, split_bytes: Mapping[T, int | Fraction]) -> dict[T, int]:
    """Divide `total` shards among splits by bytes, with the largest remainder method.

    Every split gets at least one shard: splits whose share is less than a shard get theirs first,
    and the other splits share the rest.
    """
    if total < len(split_bytes):
        raise UsageError(
            f"{total} {'shard is' if total == 1 else 'shards are'} too few for "
            f"{counted(len(split_bytes), 'split')}: give at least one each"
        )
    large, shards = dict(split_bytes), total
    while small := [name for name, n in large.items() if n * shards < sum(large.values())]:
        for name in small:
            del large[name]
        shards -= len(small)
    total_bytes = sum(large.values())
    counts = {
        name: shards * large[name] // total_bytes if name in large else 1 for name in split_bytes
    }
    # The sort is stable, so among equal remainders the earlier split comes first.
    by_rest = sorted(large, key=lambda name: -(shards * large[name] % total_bytes))
    for name in by_rest[: total - sum(counts.values())]:
        counts[name] += 1
    return counts


@dataclasses.dataclass(frozen=True)
class Cut:
    """A contiguous range of bins for one shard, or for one section of it, which is merged at once.

    A bin is the set of records whose positions in the dataset have the same leading bits.
    """

    first: int
    last: int
    rows: int
    bytes: int


def cut_bins(bins: UInt64Array, rows: Int64Array, nbytes: Int64Array, count: int) -> list[Cut]:
    """Divide bins, in order, into at most `count` contiguous ranges of nearly equal bytes.

    Each range but the last ends at the bin boundary nearest to its equal share. Empty ranges are
    dropped, so few bins result in fewer than `count` ranges.
    """
    if len(bins) == 0:
        return []
    ends = np.cumsum(nbytes)
    targets = np.arange(1, count, dtype=np.float64) * (float(ends[-1]) / count)
    after = np.searchsorted(ends, targets, side="left")
    # The boundary before or after the bin that crosses the target, whichever is nearer.
    before = np.where(after > 0, ends[np.maximum(after - 1, 0)], 0)
    nearer_before = targets - before < ends[after] - targets
    stops = np.unique(np.concatenate([after + 1 - nearer_before, [len(bins)]]))
    stops = stops[stops > 0]
    starts = np.concatenate([[0], stops[:-1]])
    return [
        Cut(
            first=int(bins[start]),
            last=int(bins[stop - 1]),
            rows=int(rows[start:stop].sum()),
            bytes=int(nbytes[start:stop].sum()),
        )
        for start, stop in zip(starts, stops, strict=True)
    ]


@dataclasses.dataclass(frozen=True)
class ShardNames:
    """The pattern of the file names of shards."""

    suffix: str = ".tfrecord"
    prefix: str | None = None
    template: str = "-SSSSS-of-NNNNN"

    def __call__(self, split: str, number: int, count: int) -> str:
        """Return the name of shard `number`, from 0, of `count`."""
        stem = split if self.prefix is None else self.prefix
        return stem + fill_template(self.template, number, count) + self.suffix


def fill_template(template: str, number: int, count: int) -> str:
    """Replace repeated ``S`` by the number of a shard and ``N`` by the count, zero-padded."""
    values = {"S": number, "N": count}
    return re.sub("S+|N+", lambda run: f"{values[run[0][0]]:0{len(run[0])}d}", template)


def shard_suffix(compression: str) -> str:
    """Return the file suffix of shards for a compression (``""`` or ``"GZIP"``)."""
    return ".tfrecord.gz" if compression else ".tfrecord"


@dataclasses.dataclass(frozen=True)
class Layout:
    """The settings that decide how rows are split, ordered, divided into shards and compressed."""

    splits: Splits = Splits()
    shards: ShardSpec = ShardSpec()
    shuffle: bool = True
    key: tuple[str, ...] = ()
    seed: int = 0
    compression: str = ""
    names: ShardNames = ShardNames()
    dedup: bool = False

    def __post_init__(self) -> None:
        if self.dedup and self.splits.needs_counts:
            raise UsageError(
                "--dedup leaves out rows after they are counted: it cannot be combined with "
                "--stratify or numbers of rows in --split"
            )
        if self.dedup and not self.shuffle:
            raise UsageError(
                "--dedup finds copies in the shuffled order: it cannot be combined with "
                "--no-shuffle"
            )
        if self.key and not self.shuffle:
            raise UsageError(
                "--key decides the shuffled order: it cannot be combined with --no-shuffle"
            )

    @property
    def spreads_copies(self) -> bool:
        """Whether records of equal sort key are spread. Those of a key, or of the input, stay."""
        return self.shuffle and not self.key

    @property
    def group(self) -> tuple[str, ...]:
        """Columns that decide the split of a row; by default the columns of `key`."""
        return self.splits.group or self.key

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that any of the settings names."""
        return tuple(dict.fromkeys((*self.key, *self.splits.columns)))

    def identity(self) -> dict[str, Any]:
        """Return the values that identify the layout, without splits' settings that are not set."""
        found = dataclasses.asdict(self)
        always = ("fractions", "column", "group")
        splits = {name: of for name, of in found["splits"].items() if of or name in always}
        return {**found, "splits": splits}

    def flag_of(self, column: str) -> str:
        """Return the flag that names one of `columns`."""
        return "--key" if column in self.key else self.splits.columns[column]


def parse_compression(compression: str | None) -> str:
    """Return the compression that a user named, as ``""`` or ``GZIP``."""
    try:
        return COMPRESSIONS[(compression or "none").lower()]
    except KeyError:
        raise UsageError(f"compression {compression!r} is not none or gzip") from None
