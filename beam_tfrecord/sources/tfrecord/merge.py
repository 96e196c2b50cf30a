"""Joins the schemas of the datasets that are read together."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pyarrow as pa

from beam_tfrecord.base.text import listed
from beam_tfrecord.errors import SchemaConflict, UsageError
from beam_tfrecord.features.arrow_types import decoded_type
from beam_tfrecord.features.feature import ColumnStats, Feature
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.format.manifest import Manifest
from beam_tfrecord.sources.base import InputFile
from beam_tfrecord.sources.tfrecord.listing import ShardFile, is_empty_dataset


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
        dtype=feature.dtype if all(one.dtype == feature.dtype for one in found) else None,
        observed=stats,
    )


def _described(feature: Feature) -> str:
    """Return in words what must be equal for records to have the same features."""
    store = "" if feature.store == "auto" else f" stored as {feature.store}"
    labels = f" with classes {listed(feature.labels)}" if feature.labels else ""
    return f"{feature.type}{store}{labels}"
