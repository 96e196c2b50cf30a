"""Beam display data: the settings of a step that a runner's page shows, without secrets."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa

from beam_tfrecord.features.schema import Schema
from beam_tfrecord.layout import Layout
from beam_tfrecord.sources.base import Source
from beam_tfrecord.sources.sql.secrets import without_password

_CHARACTERS = 300
# Only these options of a database are shown: others (statements, users, …) may hold secrets.
_OF_DATABASES = frozenset(("paths", "table", "columns", "partition_column", "partitions"))


def shown(**arguments: Any) -> dict[str, Any]:
    """Return arguments as display data; leave out empty ones."""
    texts = {name: _text(value) for name, value in arguments.items()}
    return {name: value for name, value in texts.items() if value not in ("", None)}


def of_source(source: Source) -> dict[str, Any]:
    """Return the options of a source that differ from their defaults."""
    options = {"kind": source.kind}
    for field in dataclasses.fields(source):  # type: ignore[arg-type]
        is_shown = source.kind != "sql" or field.name in _OF_DATABASES
        if field.repr and is_shown and (value := getattr(source, field.name)) != field.default:
            options[field.name] = _places(value) if field.name == "paths" else value
    return shown(**options)


def of_layout(layout: Layout) -> dict[str, Any]:
    """Return the settings of a dataset: splits, order, shards and compression."""
    splits, shards = layout.splits, layout.shards
    return shown(
        splits=None if splits.is_single else dict(splits.fractions),
        split_column=splits.column,
        group=splits.group,
        key=layout.key,
        shuffle=layout.shuffle,
        seed=layout.seed,
        shards=shards.total or dict(shards.per_split),
        shard_bytes=shards.shard_bytes,
        compression=layout.compression,
    )


def function_name(function: Callable[..., Any] | Any) -> str:
    """Return the name of a function or of a DoFn."""
    known = getattr(function, "name", None) or getattr(function, "__qualname__", None)
    return str(known or type(function).__qualname__)


def schema_text(schema: Schema | pa.Schema | Any) -> str:
    """Return the columns of a schema as text; empty if the schema is not known yet."""
    arrow = schema.to_arrow() if isinstance(schema, Schema) else schema
    if not isinstance(arrow, pa.Schema):
        return ""
    return ", ".join(f"{field.name}: {field.type}" for field in arrow)


def place(path: str) -> str:
    """Return a path as it is, or a URL without its password and parameters (such as tokens)."""
    is_url = "://" in path or path.startswith("jdbc:")
    return without_password(path).partition("?")[0].partition(";")[0] if is_url else path


def _places(paths: Any) -> str:
    return ", ".join(place(str(path)) for path in ([paths] if isinstance(paths, str) else paths))


def _text(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        value = ", ".join(f"{name}={item}" for name, item in value.items())
    elif isinstance(value, Iterable) and not isinstance(value, str):
        value = ", ".join(map(str, value))
    text = str(value)
    return text if len(text) <= _CHARACTERS else f"{text[:_CHARACTERS]}…"
