"""Reads TFRecord files, split by records; column types come from manifests, else from records.

It reads examples as columns, or passes their records on byte for byte.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from beam_tfrecord.base.text import listed
from beam_tfrecord.errors import DataError, SchemaConflict, UsageError
from beam_tfrecord.features.arrow_types import decoded_type
from beam_tfrecord.features.feature import ColumnStats, Feature
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.format.layout import ONLY_SPLIT
from beam_tfrecord.format.manifest import TRANSFORM_FN, Manifest
from beam_tfrecord.format.tally import content_columns
from beam_tfrecord.native import XXH64
from beam_tfrecord.options.sources import UnionOption
from beam_tfrecord.records.examples import (
    Discovered,
    ForeignRecord,
    merge_discovered,
    schema_of_discovered,
    types_in,
)
from beam_tfrecord.records.tfrecord import RecordBlock, framed_batch
from beam_tfrecord.rows.batch import DEFAULT_BATCH_ROWS, EXAMPLES_SCHEMA, Batch, Origin
from beam_tfrecord.sources.base import MOST_NOTES, Chunk, InputFile, Scan, Source, Unit, altered
from beam_tfrecord.sources.damaged_files import sliced
from beam_tfrecord.sources.files import FileSource, as_paths
from beam_tfrecord.sources.merge_schemas import joined_schema
from beam_tfrecord.sources.tfrecord_files import (
    SUFFIXES,
    RecordDetail,
    RowReader,
    ShardFile,
    SplitPoints,
    blocks_of,
    find_split_points,
    is_empty_dataset,
    list_records,
)
from beam_tfrecord.storage import absolute_path, is_directory, is_remote

# Examples of other programs compress about so well; it only decides how units are packed.
_GZIP_RATIO = 3
# A shard is cut only if it is larger than so many units.
_SHARD_UNITS = 4


class Found(NamedTuple):
    """The types in a unit."""

    file: InputFile
    features: Mapping[str, Discovered]


@dataclasses.dataclass(frozen=True)
class Tfrecord(UnionOption, FileSource):
    """TFRecord files, plain or compressed with gzip: datasets, and files of other programs."""

    kind: ClassVar[str] = "tfrecord"
    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES
    detail_type: ClassVar[Any] = RecordDetail
    file_type: ClassVar[type[InputFile]] = ShardFile
    quick_scans: ClassVar[int] = 16
    is_shared: ClassVar[bool] = True

    _: dataclasses.KW_ONLY
    copies: bool = dataclasses.field(default=False, init=False)
    keeps_splits: bool = dataclasses.field(default=False, init=False)

    def files(self) -> Iterator[InputFile]:
        return list_records(as_paths(self.paths))

    def scan(self, chunk: Chunk) -> Scan:
        if is_empty_dataset(chunk.file):
            return Scan(chunk, SplitPoints("", (0,), (0,)))
        # A shard that is read as a unit is compared with its hash in the manifest.
        most = self.unit_bytes * (_SHARD_UNITS if isinstance(chunk.file, ShardFile) else 1)
        return Scan(chunk, find_split_points(chunk.file, self.unit_bytes, most))

    def units(self, scans: Sequence[Scan]) -> list[Unit]:
        (scan,) = scans
        file, points = scan.chunk.file, scan.detail
        split = file.split if self.keeps_splits and isinstance(file, ShardFile) else ""
        stops = (*points.starts[1:], 0 if is_empty_dataset(file) else file.bytes)
        ratio = _GZIP_RATIO if points.compression else 1
        units: list[Unit] = []
        for start, stop, record in zip(points.starts, stops, points.records, strict=True):
            index, size = len(units), stop - start
            name = file.unit_name(index, len(stops))
            detail = RecordDetail(points.compression, record, split)
            unit = Unit(name, file, index, start, stop, None, size, max(1, ratio * size), detail)
            units.append(unit)
        return units

    def infer(self, of: Unit) -> Found:
        features: Mapping[str, Discovered] = {}
        if not self.copies and not isinstance(of.file, ShardFile):
            for block in blocks_of(of.file, of.start, of.stop, of.detail):
                try:
                    found = types_in(block.data, block.starts, of.file.name)
                except ForeignRecord as error:
                    number = block.first_record + error.index
                    message = f"{of.file.name} record {number}: {error.reason}"
                    raise DataError(message) from error
                features = merge_discovered(features, found)
        return Found(of.file, features)

    def merge(self, inferences: Iterable[Found]) -> pa.Schema:
        if self.copies:
            return EXAMPLES_SCHEMA
        found = sorted(inferences, key=lambda one: one.file.name)
        files = list({one.file.path: one.file for one in found}.values())
        known = known_records(files, union=self.union)
        if known is not None and known.examples and not known.schema.features:
            raise UsageError(
                f"{files[0].name} is of a dataset without columns, whose records are no "
                "tf.train.Examples: they can only be copied"
            )
        if known is not None:
            inside = arrow_schema_of(known.schema)
        else:
            none: Mapping[str, Discovered] = {}
            features = functools.reduce(merge_discovered, (one.features for one in found), none)
            inside = schema_of_discovered(features).to_arrow()
        return joined_schema(
            inside.names, inside.field, files, columns=self.columns, union=self.union
        )

    def read(
        self, unit: Unit, schema: pa.Schema, *, batch_rows: int = DEFAULT_BATCH_ROWS
    ) -> Iterator[Batch]:
        first, split, file = unit.detail.first_record, unit.detail.split or None, unit.file
        is_framed = self.copies
        convert = framed_batch if is_framed else RowReader(file, schema, union=self.union).rows
        for block in _unit_blocks(unit):
            row, address = block.first_record - first, (f"{file.name} record ", first)
            for data in sliced(convert(block), batch_rows):
                origin = Origin(unit.name, unit.index, row, address=address)
                yield Batch(data, origin, split, encoded=is_framed, framed=is_framed)
                row += data.num_rows

    def notes(self, files: Iterable[InputFile]) -> list[str]:
        manifests = dict.fromkeys(file.manifest for file in files if isinstance(file, ShardFile))
        lines = [
            f"the preprocessing function in {os.path.dirname(path)!r} is not copied: keep that "
            "dataset, or copy its transform_fn/"
            for path in manifests
            if any(name.startswith(f"{TRANSFORM_FN}/") for name in Manifest.load(path).sidecars)
        ]
        return lines[:MOST_NOTES]


def _unit_blocks(unit: Unit) -> Iterator[RecordBlock]:
    """Yield the blocks of a unit, at least one; check that a shard is that of its manifest."""
    file, records, block = unit.file, unit.detail.first_record, None
    digest = XXH64(0)
    if not is_empty_dataset(file):
        for block in blocks_of(file, unit.start, unit.stop, unit.detail):
            digest.update(block.data)
            yield block
            records = block.first_record + len(block.starts)
    if block is None:
        yield RecordBlock(np.empty(0, np.uint8), np.empty(0, np.int64), 0, records)
    elif isinstance(file, ShardFile) and unit.stop == file.bytes:
        # Of a shard that is cut into several units, only the number of records is known.
        is_other = not unit.start and f"{digest.intdigest():016x}" != file.digest
        if records != file.examples or is_other:
            raise DataError(
                f"{file.name} is not the shard that its manifest describes: run verify to find "
                "out why"
            )


def copying(source: Source, *, splits: bool = False) -> Source:
    """Return a source that passes records on byte for byte, if it reads TFRecord files.

    With `splits`, those of a dataset are decoded if columns of it decide the split.
    """
    known = known_of(source, source.files()) if splits else None
    has_group = known is not None and content_columns(arrow_schema_of(known.schema))
    return source if has_group or not isinstance(source, Tfrecord) else altered(source, copies=True)


def keeping_splits(source: Source) -> Source:
    """Return a source whose rows keep the split of their dataset, if it reads TFRecord files."""
    return altered(source, keeps_splits=True) if isinstance(source, Tfrecord) else source


def known_of(source: Source, files: Iterable[InputFile]) -> Known | None:
    """Return what manifests say of the records of a source; None if they say nothing."""
    return known_records(files, union=source.union) if isinstance(source, Tfrecord) else None


def copies_records(source: Source) -> bool:
    """Return whether the batches of a source hold the records of TFRecord files as they are."""
    return isinstance(source, Tfrecord) and source.copies


def splits_of(source: Source) -> tuple[str, ...]:
    """Return the names of the splits that the rows of a source have; empty if they have none.

    A dataset that is not split has a single split, of the same name as any output without splits.
    """
    if not isinstance(source, Tfrecord) or not source.keeps_splits:
        return ()
    known = known_of(source, list(source.files()))
    return () if known is None or set(known.splits) <= {ONLY_SPLIT} else known.splits


def check_apart(source: Source, files: Iterable[InputFile], directory: str) -> None:
    """Check that a job would not write among the TFRecord files that it reads."""
    if not isinstance(source, Tfrecord):
        return
    output = _real(directory)
    named = [_real(path) for path in as_paths(source.paths) if is_directory(path)]
    is_inside = any(f"{output}/".startswith(f"{path}/") for path in named)
    if is_inside or output in {_real(os.path.dirname(file.path)) for file in files}:
        raise UsageError(
            f"the output {directory!r} holds the input, or is inside of it: write to another "
            "directory"
        )


def _real(path: str) -> str:
    absolute = absolute_path(path)
    return absolute if is_remote(absolute) else os.path.realpath(absolute)


class Known(NamedTuple):
    """What manifests say of the records of an input."""

    schema: Schema
    examples: int
    splits: tuple[str, ...]


def known_records(files: Iterable[InputFile], *, union: bool) -> Known | None:
    """Return what manifests say of files; None if they are files of other programs."""
    in_order = sorted(files, key=lambda file: file.name)
    shards = [file for file in in_order if isinstance(file, ShardFile)]
    if not shards:
        return None
    if others := [file for file in in_order if not isinstance(file, ShardFile)]:
        raise UsageError(
            f"{shards[0].name} is of a dataset but {others[0].name} is not, so its types are not "
            "known: write it as a dataset first"
        )
    manifests = {path: Manifest.load(path) for path in dict.fromkeys(f.manifest for f in shards)}
    schema = _joined(manifests, union=union)
    read = {file.path for file in shards if not is_empty_dataset(file)}
    if len(read) < sum(len(manifest.shards) for manifest in manifests.values()):
        schema = schema.without_observed()
    splits = dict.fromkeys(file.split for file in shards if file.split)
    return Known(schema, sum(file.examples for file in shards), tuple(splits))


def arrow_schema_of(schema: Schema) -> pa.Schema:
    """Return the Arrow schema of decoded rows, with the options of the features."""
    fields = (feature.to_arrow() for feature in schema.features)
    return pa.schema([field.with_type(decoded_type(field.type)) for field in fields])


def _joined(manifests: dict[str, Manifest], *, union: bool) -> Schema:
    """Return the schema of all datasets together, in the order of the columns of the first."""
    schemas = {os.path.dirname(path): of.schema for path, of in manifests.items()}
    if len(schemas) < len(manifests):
        schemas = {path: of.schema for path, of in manifests.items()}
    names = dict.fromkeys(name for of in schemas.values() for name in of.names)
    rows = [manifest.examples for manifest in manifests.values()]
    features = tuple(_joined_feature(name, schemas, rows, union=union) for name in names)
    return Schema(features)


def _joined_feature(
    name: str, schemas: dict[str, Schema], rows: Sequence[int], *, union: bool
) -> Feature:
    having = {where: of[name] for where, of in schemas.items() if name in of}
    lacking = [where for where, of in schemas.items() if name not in of]
    (first, feature), *others = having.items()
    if lacking and not union:
        raise SchemaConflict(
            f"column {name!r} is in {first!r} but not in {lacking[0]!r}: "
            "pass --union to fill it with nulls"
        )
    for where, other in others:
        if (feature.type, feature.store, feature.labels) != (other.type, other.store, other.labels):
            raise SchemaConflict(
                f"column {name!r} is {_described(feature)} in {first!r} but {_described(other)} in "
                f"{where!r}: write both again with one --schema"
            )
    found = [feature, *(other for _, other in others)]
    stats: ColumnStats | None = ColumnStats()
    for of, count in zip(schemas.values(), rows, strict=True):
        seen = of[name].observed if name in of else ColumnStats(missing=count)
        stats = None if stats is None or seen is None else stats.merge(seen)
    return dataclasses.replace(
        feature,
        nullable=bool(lacking) or any(one.nullable for one in found),
        default=feature.default if all(one.default == feature.default for one in found) else None,
        allowed=feature.allowed if all(one.allowed == feature.allowed for one in found) else {},
        dtype=feature.dtype if all(one.dtype == feature.dtype for one in found) else None,
        observed=stats,
    )


def _described(feature: Feature) -> str:
    """Return in words what must be equal for records to have the same features."""
    store = "" if feature.store == "auto" else f" stored as {feature.store}"
    labels = f" with classes {listed(feature.labels)}" if feature.labels else ""
    return f"{feature.type}{store}{labels}"
