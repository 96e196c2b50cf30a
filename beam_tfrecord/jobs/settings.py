"""`Settings`: the arguments of a job that writes, checked and as values."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.inputs import make_source
from beam_tfrecord.jobs.target import Target, directory_target
from beam_tfrecord.layout import (
    Layout,
    ShardNames,
    as_columns,
    make_shard_spec,
    make_splits,
    parse_compression,
    shard_suffix,
)
from beam_tfrecord.preprocess.request import Request, Transform, make_request
from beam_tfrecord.rejects import RejectBudget, parse_budget
from beam_tfrecord.sources.base import Source
from beam_tfrecord.storage import is_remote, read_bytes
from beam_tfrecord.transforms.mapping import MapFunction, load_map

Inputs = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@dataclasses.dataclass(frozen=True)
class Settings:
    """A job's arguments, checked and as values.

    Attributes:
        source: What to read.
        target: Where to write.
        layout: How.
        map: Function of a row; None: rows go as they are.
        schema: Given schema.
        limit: Rows to read; None: all.
        budget: Rows that may be rejected.
        overwrite: Replace another dataset.
        runner: Name of the Beam runner.
        pipeline_options: Further Beam options, as on a command line.
        transform: Preprocessing; None: rows go as they are.
    """

    source: Source
    target: Target
    layout: Layout
    map: MapFunction | None
    schema: Schema | None
    limit: int | None
    budget: RejectBudget
    overwrite: bool
    runner: str
    pipeline_options: tuple[str, ...]
    transform: Request | None = None

    @property
    def is_mapped(self) -> bool:
        """True where rows go through a user's function."""
        return self.map is not None

    @property
    def is_direct(self) -> bool:
        """True where shards can be written in one pass, in source order."""
        layout = self.layout
        by_size = layout.shards.total is None and not layout.shards.per_split
        return not layout.shuffle and layout.splits.is_single and by_size


def make_settings(
    inputs: Inputs,
    output: str | os.PathLike[str],
    *,
    from_: str | None = None,
    splits: Mapping[str, float] | str | None = None,
    split_column: str | None = None,
    group: Sequence[str] | str | None = None,
    key: Sequence[str] | str | None = None,
    shards: int | str | Mapping[str, int] | None = None,
    shard_size: int | str | None = None,
    shuffle: bool = True,
    seed: int = 0,
    limit: int | None = None,
    compression: str = "none",
    schema: Schema | str | os.PathLike[str] | None = None,
    columns: Sequence[str] | None = None,
    map: Callable[..., Any] | str | None = None,
    transform: Transform | None = None,
    step: Sequence[str] = (),
    transform_fn: str | os.PathLike[str] | None = None,
    fit: str = "train",
    raw_too: bool = False,
    max_rejects: int | str = 0,
    overwrite: bool = False,
    runner: str = "direct",
    pipeline_options: Sequence[str] = (),
    source_options: Mapping[str, Any] | None = None,
) -> Settings:
    """Check the arguments of `write`.

    Raises:
        UsageError: They do not fit together.
    """
    given = _schema(schema)
    function = None if map is None else load_map(map)
    if given is not None and function is None and columns is None:
        columns = given.names
    codec = parse_compression(compression)
    if limit is not None and limit < 1:
        raise UsageError(f"limit {limit} is not a number of rows")
    source = make_source(inputs, from_=from_, columns=columns, options=source_options)
    if split_column is None and not splits:
        split_column = source.default_split_column()
    if group is None and splits and function is None:
        group = source.default_group
    layout = Layout(
        splits=make_splits(splits, column=split_column, group=group),
        shards=make_shard_spec(shards, shard_size),
        shuffle=shuffle,
        key=as_columns(key),
        seed=seed,
        compression=codec,
        names=ShardNames(shard_suffix(codec)),
    )
    layout.shards.check(layout.splits.filled_names)
    return Settings(
        source=source if shuffle else source.in_order(),
        target=directory_target(output),
        layout=layout,
        map=function,
        schema=given,
        limit=limit,
        budget=parse_budget(max_rejects),
        overwrite=overwrite,
        runner=runner,
        pipeline_options=tuple(pipeline_options),
        transform=make_request(
            transform, step=step, transform_fn=transform_fn, fit=fit, raw_too=raw_too
        ),
    )


def _schema(schema: Schema | str | os.PathLike[str] | None) -> Schema | None:
    if schema is None or isinstance(schema, Schema):
        return schema
    path = os.fspath(schema)
    try:
        # A pipe will do here: the user has named it.
        data = read_bytes(path) if is_remote(path) else Path(path).read_bytes()
        return Schema.loads(data.decode(), where=path)
    except UsageError as error:
        raise DataError(str(error)) from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not JSON: {error}") from error
    except OSError as error:
        reason = error.strerror or "no such file"
        raise UsageError(f"cannot read schema {path!r}: {reason}") from error
