"""Reads parts of splits, and several datasets as one, in their order or as a mixture.

Parts of shards become shards of a dataset that is not stored, whose rows all frameworks read as
those of any other. ``docs/format.md`` has the order of a mixture.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import math
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from beam_tfrecord import native
from beam_tfrecord.dataset.record_files import IndexedShards
from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.format.hashes import data_hash
from beam_tfrecord.format.layout import apportion
from beam_tfrecord.format.manifest import Manifest
from beam_tfrecord.format.manifest_parts import Shard, Split
from beam_tfrecord.loading.epochs import MIXTURE_BYTES, order_of, window_of
from beam_tfrecord.loading.order import MIXTURE, Mixture, Order
from beam_tfrecord.loading.rows import Rows, ShardFiles
from beam_tfrecord.native.kernel_types import Int64Array
from beam_tfrecord.records.tfrecord import RecordBlock
from beam_tfrecord.storage import is_remote

Item = TypeVar("Item")
SomeRows = TypeVar("SomeRows", bound=Rows)

_MOST_PERIOD_ROWS = 65_536  # of a period of a mixture
_EDGE = r"(-?\d+|-?\d+(?:\.\d+)?%)?"
_TERM = re.compile(rf"([^\[\]\s]+)(?:\[{_EDGE}:{_EDGE}\])?", re.ASCII)
_NOTHING = ("missing",)


class _Part(NamedTuple):
    """Rows of a stored shard, from number `first` on."""

    files: ShardFiles
    shard: Shard
    first: int


class PartFiles(IndexedShards):
    """A reader of parts of shards, of any datasets with equal columns."""

    def __init__(
        self, schema: Schema, files: Sequence[ShardFiles], parts: Mapping[Shard, _Part]
    ) -> None:
        super().__init__(schema)
        self._files, self._parts = files, parts

    def check(self, shards: Sequence[Shard]) -> None:
        """Check that the files of shards exist and have the right sizes."""
        for part in map(self._parts.__getitem__, shards):
            part.files.check([part.shard])

    def blocks(self, shards: Sequence[Shard]) -> Iterator[tuple[Shard, RecordBlock]]:
        """Yield the records of shards as framed bytes."""
        for shard in shards:
            part = self._parts[shard]
            every = (block for _, block in part.files.blocks([part.shard]))
            for block, begin, end in _cut(every, lambda of: len(of.starts), part.first, shard):
                yield shard, block.slice(begin, end)

    def batches(self, shards: Sequence[Shard], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of shards as batches of the columns `names`."""
        schema = self.arrow_schema(names)
        for shard in shards:
            part = self._parts[shard]
            every = part.files.batches([part.shard], names)
            for batch, begin, end in _cut(every, len, part.first, shard):
                yield pa.RecordBatch.from_arrays(batch[begin:end].columns, schema=schema)

    def is_indexed(self, shards: Sequence[Shard]) -> bool:
        """Return whether single records of the shards can be read."""
        return all(self._parts[of].files.is_indexed([self._parts[of].shard]) for of in shards)

    def pick(self, shard: Shard, numbers: Int64Array) -> native.Picked:
        """Return single records of a shard, with ascending numbers."""
        part = self._parts[shard]
        return part.files.pick(part.shard, numbers + part.first)

    def arrow_schema(self, names: Sequence[str]) -> pa.Schema:
        """Return the types that the columns `names` have in `batches`."""
        types, features = self._files[0].arrow_schema(names), self.schema.select(names).features
        pairs = zip(types, features, strict=True)
        return pa.schema([field.with_nullable(feature.nullable) for field, feature in pairs])


def _cut(
    items: Iterable[Item], size_of: Callable[[Item], int], first: int, shard: Shard
) -> Iterator[tuple[Item, int, int]]:
    """Yield the items that hold rows of a part, and the range of these rows in each."""
    begin = -first  # of the item, counted from the first row of the part
    for item in items:
        end = begin + size_of(item)
        if end > 0 and begin < shard.examples:
            yield item, max(0, -begin), min(end, shard.examples) - begin
        begin = end
        if begin >= shard.examples:
            return


class MixedFiles(IndexedShards):
    """A reader of a mixture as one shard, whose rows are numbered by their positions."""

    def __init__(
        self, rows: Rows, datasets: Sequence[Rows], mixture: Mixture, drawn: Mapping[str, int]
    ) -> None:
        super().__init__(rows.manifest.schema)
        self.datasets, self.mixture, self._rows = datasets, mixture, rows
        # Rows of each content that came before, also of datasets that are not in this mixture.
        self.drawn = drawn

    def check(self, shards: Sequence[Shard]) -> None:
        """Check that the files of all shards exist and have the right sizes."""
        self._rows.check_files()

    def records(self, shards: Sequence[Shard], numbers: Int64Array) -> RecordBlock:
        """Return single records, in the order of `numbers`."""
        files = self._rows.files
        assert isinstance(files, IndexedShards)
        return files.records(self._rows.shards, self.mixture.rows_at(numbers))

    def blocks(self, shards: Sequence[Shard]) -> Iterator[tuple[Shard, RecordBlock]]:
        """Yield the records as framed bytes, in the order of the mixture."""
        for shard in shards:
            step = max(1, MIXTURE_BYTES * shard.examples // max(1, shard.bytes))
            for start in range(0, shard.examples, step):
                numbers = np.arange(start, min(start + step, shard.examples))
                yield shard, self.records(shards, numbers)

    def batches(self, shards: Sequence[Shard], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows as batches of the columns `names`."""
        for _, block in self.blocks(shards):
            yield self.decoded(block, names)

    def is_indexed(self, shards: Sequence[Shard]) -> bool:
        """Return True: other datasets cannot be mixed."""
        return True

    def arrow_schema(self, names: Sequence[str]) -> pa.Schema:
        """Return the types that the columns `names` have in `batches`."""
        return self._rows.files.arrow_schema(names)


def joined(datasets: Sequence[SomeRows], split: str | None, name: str | None = None) -> SomeRows:
    """Return the rows of datasets as one dataset.

    Args:
        datasets: The datasets, at least one.
        split: Which rows of each to read, as in `load`; None means all splits.
        name: Name of the split that all rows make. None means that of `split`, or, if all splits
            are read, that splits of equal names become one.

    Raises:
        UsageError: A split does not exist, `split` cannot be read, or the columns differ.
    """
    parts: dict[Shard, _Part] = {}
    splits: dict[str, list[Shard]] = {}
    for rows in datasets:
        every = [(of, 0, count) for of, count in rows.splits.items()]
        for of, first, last in every if split is None else _ranges(rows.manifest.splits, split):
            shards, number, at = splits.setdefault(name or split or of, []), len(parts), 0
            for shard in rows.manifest.splits[of].shards:
                begin, end = max(0, first - at), min(last - at, shard.examples)
                at += shard.examples
                if begin < end:
                    nbytes = shard.bytes * (end - begin) // shard.examples
                    path = f"{number}/{shard.path}[{begin}:{end}]"
                    shards.append(Shard(path, end - begin, nbytes, shard.xxh64))
                    parts[shards[-1]] = _Part(rows.files, shard, begin)
    found, directories = datasets[0], dict.fromkeys(of.directory for of in datasets)
    for other in datasets[1:]:
        found = dataclasses.replace(found, schema=_joined_schema(found, other))
    return dataclasses.replace(
        found,
        # A remote one comes first: it decides how much is read at a time.
        directory=", ".join(sorted(directories, key=is_remote, reverse=True)),
        manifest=Manifest(
            content=data_hash(repr([of.manifest.content for of in datasets]).encode()),
            schema=found.schema,
            source=None,
            splits={of: Split(tuple(shards)) for of, shards in splits.items()},
        ),
        split_names=tuple(splits),
        files=PartFiles(found.schema, [of.files for of in datasets], parts),
    )


def _ranges(splits: Mapping[str, Split], split: str) -> Iterator[tuple[str, int, int]]:
    """Yield splits with the first of their rows that is read, and the one after the last."""
    for term in str(split).split("+"):
        if not (match := _TERM.fullmatch(term.strip())):
            raise UsageError(
                f"split {split!r:.80} cannot be read: write 'train', 'train[:10%]', "
                "'train[100:200]', 'train[-1000:]', or several as 'train+test'"
            )
        name, *edges = match.groups()
        if name not in splits:
            known = ", ".join(splits) or "none"
            raise UsageError(f"split {name!r:.80} does not exist: the splits are {known}")
        count = splits[name].examples
        first, last = (
            end if edge is None else _row_at(edge, count)
            for edge, end in zip(edges, (0, count), strict=True)
        )
        if not 0 <= first <= last <= count:
            raise UsageError(f"{term.strip()!r} is not in {name}[0:{count}], which is all of it")
        yield name, first, last


def _row_at(edge: str, count: int) -> int:
    """Return the row at an edge of a slice; a negative one counts from the end."""
    number = Fraction(edge.rstrip("%"))
    if edge.endswith("%"):
        return count * (number + 100 * (number < 0)) // 100
    return int(number) + count * (number < 0)


def _joined_schema(first: Rows, other: Rows) -> Schema:
    """Return the schema of both; raise `UsageError` if one reader cannot read both."""
    one, two = _described(first), _described(other)
    for name in one | two:
        for here, there in zip(one.get(name, _NOTHING), two.get(name, _NOTHING), strict=False):
            if here != there:
                raise UsageError(
                    f"column {name!r} is {here!s:.80} in {first.directory!r} but {there!s:.80} in "
                    f"{other.directory!r}: choose columns with equal types (columns=), or write "
                    "one of them again"
                )
    features = []
    for feature in first.schema.features:
        same = other.schema[feature.name]
        seen = feature.observed and same.observed and feature.observed.merge(same.observed)
        nullable = feature.nullable or same.nullable
        features.append(dataclasses.replace(feature, nullable=nullable, observed=seen))
    return Schema(tuple(features))


def _described(rows: Rows) -> dict[str, tuple[Any, ...]]:
    """Return what must be equal, by column."""
    pairs = zip(rows.schema.features, rows.files.arrow_schema(rows.schema.names), strict=True)
    return {of.name: (field.type, of.store, of.dtype, of.labels, of.default) for of, field in pairs}


def mixed(
    datasets: Sequence[SomeRows], counts: tuple[int, ...], seed: int, steps: int | None,
    batch_size: int | None, until: str | None, since: tuple[int, Rows] | None,
) -> SomeRows:  # fmt: skip
    """Return the rows of datasets in the order of a mixture, with `counts` of each in a period.

    See `beam_tfrecord.dataset.load.mix` for the other arguments and the errors.
    """
    for dataset in datasets:
        dataset.check_single_split()
        if not len(dataset):
            raise UsageError(f"{dataset.directory!r} has no rows to mix: leave it out")
        dataset.take([0])  # raises the error of rows that are read one after the other
    contents = [dataset.content for dataset in datasets]
    if len(set(contents)) < len(contents):
        raise UsageError("two paths have the same rows: pass one of them, with the sum of weights")
    orders = tuple(_first_order(dataset, seed) for dataset in datasets)
    drawn = _drawn(datasets, seed, batch_size, since)
    mixture = Mixture(orders, counts, tuple(drawn.get(content, 0) for content in contents))
    if steps is not None and until is not None:
        raise UsageError("steps and until both say where an epoch ends: pass one of them")
    length = _length(mixture, until) if steps is None else _rows_of("steps", steps, batch_size)
    nbytes = sum(
        of.manifest.bytes * count * length // of.manifest.examples // sum(counts)
        for of, count in zip(datasets, counts, strict=True)
    )
    digest = hashlib.sha256(repr((contents, mixture)).encode()).hexdigest()
    whole = joined(datasets, None, datasets[0].split_names[0])
    splits = {whole.split_names[0]: Split((Shard("mixture", length, nbytes, digest),))}
    manifest = dataclasses.replace(whole.manifest, order=MIXTURE, seed=seed, splits=splits)
    files = MixedFiles(whole, datasets, mixture, drawn)
    return dataclasses.replace(whole, manifest=manifest, files=files)


def counts_of(weights: Mapping[Any, Any]) -> tuple[int, ...]:
    """Return the number of rows of each dataset in a period of a mixture."""
    if not isinstance(weights, Mapping) or not weights:
        raise UsageError("mix needs a dict of paths and weights, as {'a/': 0.7, 'b/': 0.3}")
    shares = {path: _share(str(path), weight) for path, weight in weights.items()}
    total = sum(shares.values())
    places = (share / total for share in shares.values())
    period = min(_MOST_PERIOD_ROWS, math.lcm(*(of.denominator for of in places)))
    for path, share in shares.items():
        if share * period < total:
            where = f"one row in {period:,}"
            raise UsageError(f"the weight of {str(path)!r} is below {where}: leave it out")
    return tuple(apportion(period, shares).values())


def _share(path: str, weight: Any) -> Fraction:
    with contextlib.suppress(ValueError, ZeroDivisionError):
        if (share := Fraction(str(weight))) > 0:
            return share
    raise UsageError(
        f"weight {weight!r:.40} of {path!r} is not a positive number: correct it, or leave it out"
    )


def _first_order(rows: Rows, seed: int) -> Order:
    """Return the order of a dataset of a mixture in its first epoch."""
    own_seed = native.xxh64(struct.pack("<Q", seed) + rows.content.encode(), 0)
    return order_of(rows, own_seed, 0, window_of(rows, True))


def _rows_of(name: str, steps: int, batch_size: int | None, least: int = 1) -> int:
    """Return the number of rows of so many steps."""
    if steps < least or batch_size is None or batch_size < 1:
        raise UsageError(
            f"{name}= counts steps of all ranks: also pass batch_size=: both must be positive"
        )
    return steps * batch_size


def _drawn(
    datasets: Sequence[Rows], seed: int, batch_size: int | None, since: tuple[int, Rows] | None
) -> dict[str, int]:
    """Return how many rows of each content earlier mixtures have delivered."""
    if since is None:
        return {}
    steps, earlier = since if isinstance(since, tuple) else (0, None)
    if not isinstance(earlier, Rows) or not isinstance(earlier.files, MixedFiles):
        raise UsageError("since needs steps and the mixture that delivered them, as (1000, old)")
    if seed != earlier.manifest.seed:
        raise UsageError(f"the earlier mixture has another seed: pass seed={earlier.manifest.seed}")
    before, mixture = earlier.files.datasets, earlier.files.mixture
    numbers = mixture.drawn_before(_rows_of("since", steps, batch_size, 0))
    own = dict(zip((of.content for of in before), numbers, strict=True))
    drawn = {**earlier.files.drawn, **own}
    for rows in datasets:
        if rows.content not in drawn and rows.directory in {of.directory for of in before}:
            raise UsageError(
                f"{rows.directory!r} has other rows than in the earlier mixture, so rows would "
                "come again: load the same dataset and split, or leave since out"
            )
    return drawn


def _length(mixture: Mixture, until: str | None) -> int:
    """Return the number of rows of an epoch that ends where rows would come again, or all came."""
    if until not in (None, "first", "all"):
        raise UsageError(f"until {until!r:.40} is unknown: pass 'first' or 'all', or steps=")
    # How many rows of each dataset come before one comes again.
    every = zip(mixture.orders, mixture.drawn, strict=True)
    left = [order.count - drawn % order.count for order, drawn in every]
    if until == "all":
        return max(mixture.position(number, n - 1) for number, n in enumerate(left)) + 1
    return min(mixture.position(number, n) for number, n in enumerate(left))
