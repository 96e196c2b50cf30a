"""`Settings` and `ExtractSettings`: the checked and parsed arguments of `write` and `extract`."""

from __future__ import annotations

import abc
import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from beam_tfrecord.base.arguments import as_words, check_seed
from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.limits import refuse_limits
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.format.layout import (
    Layout,
    ShardNames,
    as_columns,
    make_shard_spec,
    parse_compression,
    shard_suffix,
)
from beam_tfrecord.format.manifest import Manifest
from beam_tfrecord.format.rejects import RejectBudget, parse_budget
from beam_tfrecord.format.stage import STAGE_FORMAT, StageManifest
from beam_tfrecord.job_state.job import Identity, Target, directory_target
from beam_tfrecord.jobs.fingerprint import identity_of
from beam_tfrecord.options.jobs import WRITE_OPTIONS, JobOptions, WriteOptions, beam_words
from beam_tfrecord.options.sources import SOURCE_OPTIONS
from beam_tfrecord.preprocess.request import Request, make_request
from beam_tfrecord.rows.user_function import MapFunction, load_map
from beam_tfrecord.selection.select import Selection, make_selection, make_splits
from beam_tfrecord.sources.base import InputFile, Source, of_columns, with_selection
from beam_tfrecord.sources.choose import KINDS_BY_SUFFIX, make_source
from beam_tfrecord.sources.csv.source import Csv
from beam_tfrecord.sources.json import Json
from beam_tfrecord.sources.tfrecord import copying, keeping_splits, splits_of
from beam_tfrecord.storage import is_remote, read_bytes

M = TypeVar("M", Manifest, StageManifest)
# Paths, or data in memory of any library.
InputPaths = Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobSettings(abc.ABC, Generic[M]):
    """The arguments that `write` and `extract` share, checked and parsed."""

    source: Source
    target: Target
    limit: int | None
    budget: RejectBudget
    overwrite: bool
    runner: str
    pipeline_options: tuple[str, ...]
    map: MapFunction | None = None
    schema: Schema | None = None
    layout: Layout = dataclasses.field(default_factory=Layout)
    asked: Mapping[str, str] = dataclasses.field(default_factory=dict)
    arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    appends_to: str = ""
    compacts: bool = False

    @property
    def has_schema(self) -> bool:
        """Whether a schema or a function decides which columns there are."""
        return self.schema is not None or self.map is not None

    @abc.abstractmethod
    def identity(self, files: Sequence[InputFile]) -> Identity:
        """Return the identity of the output, given the files of the input."""

    @abc.abstractmethod
    def load_output(self) -> M:
        """Load the manifest at the target."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(JobSettings[Manifest]):
    """The arguments of `write`, checked and parsed."""

    transform: Request | None = None
    kept_splits: tuple[str, ...] = ()

    @property
    def is_one_pass(self) -> bool:
        """Whether shards can be written in one pass, in source order."""
        layout = self.layout
        by_size = layout.shards.total is None and not layout.shards.per_split
        is_split = bool(self.kept_splits) or not layout.splits.is_single
        return not layout.shuffle and not is_split and by_size

    @property
    def runs_in_steps(self) -> bool:
        """Whether a pipeline depends on what another one finds out before."""
        return self.transform is not None or self.layout.splits.needs_counts

    def identity(self, files: Sequence[InputFile]) -> Identity:
        """Return the identity of the dataset: its fingerprint and the description of the input.

        The fingerprint covers the settings that decide the output, the text of the map function's
        module, and names and sizes of the input files. It does not cover the output path, runner,
        workers, batch size or reject budget. The fingerprint is empty if the text of a function is
        unknown, or if changes of the input cannot be detected. Such a job is always run.
        """
        transform = self.transform
        decisive = {
            "layout": self.layout.identity(),
            "map": self.map,
            "schema": None if self.schema is None else self.schema.to_json(),
            "limit": self.limit,
            **({} if transform is None else {"transform": transform.identity()}),
        }
        functions = (self.map, None if transform is None else transform.function)
        return identity_of(
            self.source, files, decisive, [function for function in functions if function]
        )

    def load_output(self) -> Manifest:
        """Load the manifest of the dataset at the target."""
        return Manifest.load(self.target.manifest)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExtractSettings(JobSettings[StageManifest]):
    """The arguments of `extract`, checked and parsed."""

    def identity(self, files: Sequence[InputFile]) -> Identity:
        """Return the identity of the stage: its fingerprint and the description of the input."""
        return identity_of(self.source, files, {"format": STAGE_FORMAT, "limit": self.limit})

    def load_output(self) -> StageManifest:
        """Load the manifest of the stage at the target."""
        return StageManifest.load(self.target.manifest)


def make_settings(call: WriteOptions) -> Settings:
    """Check and parse the arguments of `write`; the options of the source are in one mapping."""
    columns, split_column = call.columns, call.split_column
    splits = make_splits(call.splits, column=split_column, group=call.group, stratify=call.stratify)
    enforced = _schema(call.schema)
    function = None if call.map is None else load_map(call.map)
    codec = parse_compression(call.compression)
    source, selection = _selected(call)
    if enforced is not None and function is None:
        enforced = enforced if columns is None else enforced.select(columns)
        columns = enforced.names
        source = of_columns(source, columns)
    request = make_request(
        call.transform,
        step=call.step,
        transform_fn=call.transform_fn,
        fit=call.fit,
        raw_too=call.raw_too,
    )
    if request is not None:
        refuse_limits(enforced, "preprocessed rows")
    condition = None if selection is None else selection.condition
    if not any((columns, function, request, call.key, splits.columns, condition)):
        source = copying(source, splits=bool(call.splits))
    if split_column is None and not call.splits:
        split_column = source.default_split_column()
        if split_column and columns and split_column not in columns:
            cure = "add it to --columns, or pass --split, or --layout flat for folders of images"
            raise UsageError(f"column {split_column!r} names the splits of the input: {cure}")
        if split_column:
            splits = make_splits(None, column=split_column, group=call.group)
        source = keeping_splits(source)
    layout = Layout(
        splits=splits,
        shards=make_shard_spec(call.shards, call.shard_size),
        shuffle=call.shuffle,
        key=as_columns(call.key),
        seed=check_seed(call.seed),
        compression=codec,
        names=ShardNames(shard_suffix(codec)),
        dedup=call.dedup,
    )
    kept_splits = splits_of(source)
    layout.shards.check(kept_splits or layout.splits.filled_names)
    source = with_selection(source if call.shuffle else source.in_order(), selection)
    if enforced is not None and function is None:
        _check_filter(source, enforced, has_steps=request is not None)
    return Settings(
        **_shared(call, source),
        layout=layout,
        map=function,
        asked=_asked(call) if source.is_stable else {},
        arguments=_arguments(call, function, is_fitted=request is not None),
        schema=enforced,
        transform=request,
        kept_splits=kept_splits,
    )


def extract_settings(call: JobOptions) -> ExtractSettings:
    """Check and parse the arguments of `extract`."""
    source, selection = _selected(call)
    return ExtractSettings(**_shared(call, with_selection(source, selection)))


def _selected(call: JobOptions) -> tuple[Source, Selection | None]:
    selection = make_selection(filter=call.filter, sample=call.sample, sample_seed=call.sample_seed)
    if call.limit is not None and call.limit < 1:
        raise UsageError(f"limit {call.limit} is not a number of rows")
    source = make_source(
        call.inputs, from_=call.from_, columns=call.columns, options=call.source_options
    )
    return source, selection


def _shared(call: JobOptions, source: Source) -> dict[str, Any]:
    """Return the fields of `JobSettings`."""
    stem, suffix = os.path.splitext(os.fspath(call.output))
    if suffix.lower() in KINDS_BY_SUFFIX:
        others = {
            ".parquet": ", or run extract for Parquet files",
            ".csv": ", or run export --to csv for a dataset as CSV",
        }
        other = others.get(suffix, "") if isinstance(call, WriteOptions) else ""
        raise UsageError(f"the output is a directory: name it {stem + '/'!r}{other}")
    return {
        "source": source,
        "target": directory_target(call.output),
        "limit": call.limit,
        "budget": parse_budget(call.max_rejects),
        "overwrite": call.overwrite,
        "runner": call.runner,
        "pipeline_options": tuple(beam_words(as_words("pipeline_options", call.pipeline_options))),
    }


def _check_filter(source: Source, schema: Schema, *, has_steps: bool) -> None:
    """Check that the types of the columns of the filter are known, if a schema gives the types."""
    needed = () if source.selection is None else source.selection.needed
    lacking = [name for name in needed if name not in schema.names]
    if lacking and (has_steps or isinstance(source, Csv | Json)):
        raise UsageError(
            f"column {lacking[0]!r} of --filter is not in --schema, which gives the types of the "
            "columns: add it there"
        )


# Properties of a catalogue may hold secrets.
_NOT_DECISIVE = ("max_rejects", "overwrite", "runner", "properties")


def _asked(call: WriteOptions) -> dict[str, str]:
    """Return the arguments that decide the dataset and differ from their defaults, as text by flag.

    Only for stable sources: the options of databases may contain secrets.
    """
    arguments = {option.keyword: getattr(call, option.keyword) for option in WRITE_OPTIONS}
    arguments |= call.source_options or {}
    return {
        option.flag: "set" if option.form in ("switch", "off") else text
        for option in (*WRITE_OPTIONS, *SOURCE_OPTIONS)
        if option.keyword not in _NOT_DECISIVE
        and (value := arguments.get(option.keyword)) is not None
        and (text := _text(value)) != _text(option.default)
    }


# The arguments with which a job appends rows to a dataset.
_OF_DATASET = (
    "columns", "splits", "stratify", "split_column", "group", "key", "shuffle", "dedup", "seed",
    "compression", "shard_size", "raw_too",
)  # fmt: skip


def _arguments(
    call: WriteOptions, function: MapFunction | None, *, is_fitted: bool
) -> dict[str, Any]:
    """Return the arguments that jobs which append rows need, as JSON values."""
    return {
        **{name: getattr(call, name) for name in _OF_DATASET},
        "map": None if function is None else [function.name, function.sha256],
        "is_fitted": is_fitted,
    }


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ",".join(f"{name}={_text(of)}" for name, of in value.items())
    if isinstance(value, list | tuple):
        return ",".join(map(_text, value))
    if isinstance(value, str | int | float | os.PathLike):
        return str(value)
    return str(getattr(value, "__qualname__", type(value).__name__))


def _schema(schema: Schema | str | os.PathLike[str] | None) -> Schema | None:
    if schema is None or isinstance(schema, Schema):
        return schema
    path = os.fspath(schema)
    try:
        # `Path` can read a named pipe too, which the user may pass on purpose.
        data = read_bytes(path) if is_remote(path) else Path(path).read_bytes()
        return Schema.loads(data.decode(), where=path)
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not JSON: {error}") from error
    except OSError as error:
        reason = error.strerror or "no such file"
        raise UsageError(f"cannot read schema {path!r}: {reason}") from error
