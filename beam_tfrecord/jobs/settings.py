"""`Settings` and `ExtractSettings`: the checked and parsed arguments of `write` and `extract`."""

from __future__ import annotations

import abc
import dataclasses
import math
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from beam_tfrecord.base.arguments import as_words, check_seed
from beam_tfrecord.base.text import counted, listed
from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.feature import ColumnStats
from beam_tfrecord.features.limits import refuse_limits
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.format.layout import (
    Layout,
    ShardNames,
    as_columns,
    make_shard_spec,
    make_splits,
    parse_compression,
    shard_suffix,
)
from beam_tfrecord.format.manifest import ASSIGNED, Manifest
from beam_tfrecord.format.rejects import RejectBudget, parse_budget
from beam_tfrecord.format.stage import STAGE_FORMAT, StageManifest
from beam_tfrecord.jobs.identity import identity_of
from beam_tfrecord.options.jobs import WRITE_OPTIONS, JobOptions, WriteOptions, beam_words
from beam_tfrecord.options.sources import SOURCE_OPTIONS
from beam_tfrecord.preprocess.request import Request, make_request
from beam_tfrecord.rows.user_function import MapFunction, load_map
from beam_tfrecord.selection.select import Selection, make_selection
from beam_tfrecord.sources.base import InputFile, Source, of_columns, with_selection
from beam_tfrecord.sources.choose import make_source
from beam_tfrecord.sources.csv.source import Csv
from beam_tfrecord.sources.json import Json
from beam_tfrecord.sources.tfrecord import copying, keeping_splits, splits_of
from beam_tfrecord.storage import is_remote, read_bytes
from beam_tfrecord.work.job import Identity, Target, directory_target

M = TypeVar("M", Manifest, StageManifest)
# The error of rounding to float32 that is worth a warning, as a share of the range of a column.
# Every float that is not a float32 is rounded, mostly by 1e-7 of the range or less. Half precision,
# the coarsest usual input of a model, has steps of 5e-4 of a feature that is scaled to 1.
NOTICED_ROUNDING = 1e-4
# Paths, or data in memory of any library.
Inputs = Any


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
    asked: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def has_schema(self) -> bool:
        """Whether a schema or a function decides which columns there are."""
        return self.schema is not None or self.map is not None

    @abc.abstractmethod
    def identity(self, files: Sequence[InputFile]) -> Identity:
        """Return the identity of the output, given the files of the input."""

    def remarks(self, output: M) -> list[str]:
        """Return warnings about the output: what was lost or rejected, settings of no effect."""
        if not (rows := output.rejects.get("rows", 0)):
            return []
        command = f"beam-tfrecord head {shlex.quote(self.target.path('rejects'))}"
        return [f"{counted(rows, 'row')} rejected: for the reasons, run {command}"]

    @abc.abstractmethod
    def load_output(self) -> M:
        """Load the manifest at the target."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(JobSettings[Manifest]):
    """The arguments of `write`, checked and parsed."""

    layout: Layout
    transform: Request | None = None
    kept_splits: tuple[str, ...] = ()

    @property
    def is_one_pass(self) -> bool:
        """Whether shards can be written in one pass, in source order."""
        layout = self.layout
        by_size = layout.shards.total is None and not layout.shards.per_split
        is_split = bool(self.kept_splits) or not layout.splits.is_single
        return not layout.shuffle and not is_split and by_size

    def identity(self, files: Sequence[InputFile]) -> Identity:
        """Return the identity of the dataset: its fingerprint and the description of the input.

        The fingerprint covers the settings that decide the output, the text of the map function's
        module, and names and sizes of the input files. It does not cover the output path, runner,
        workers, batch size or reject budget. The fingerprint is empty if the text of a function is
        unknown, or if changes of the input cannot be detected. Such a job is always run.
        """
        transform = self.transform
        decisive = {
            "layout": dataclasses.asdict(self.layout),
            "map": self.map,
            "schema": None if self.schema is None else self.schema.to_json(),
            "limit": self.limit,
            **({} if transform is None else {"transform": transform.identity()}),
        }
        functions = (self.map, None if transform is None else transform.function)
        return identity_of(
            self.source, files, decisive, [function for function in functions if function]
        )

    def remarks(self, output: Manifest) -> list[str]:
        """Return warnings about the output: what was lost or rejected, settings of no effect."""
        layout, lines = self.layout, []
        if layout.splits.is_single and layout.splits.group:
            lines.append("--group has no effect without --split")
        if layout.splits.is_single and layout.seed and not layout.shuffle:
            lines.append("--seed has no effect with --no-shuffle unless there is a --split")
        wanted = layout.shards.total or sum(count for _, count in layout.shards.per_split)
        if 0 < len(output.shards) < wanted:
            lines.append(
                f"there are {counted(len(output.shards), 'shard')} instead of {wanted:,}, because "
                f"the dataset has only {counted(output.examples, 'row')}"
            )
        filled = {name for name, split in output.splits.items() if split.examples}
        empty = [repr(name) for name in layout.splits.filled_names if name not in filled]
        if empty and output.examples and output.split_by != ASSIGNED:
            why = ": rows with equal --group columns stay together" if layout.splits.group else ""
            lines.append(f"no row is in split {listed(empty)}{why}")
        return lines + _losses(output.schema) + super().remarks(output)

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
    columns, group, split_column = call.columns, call.group, call.split_column
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
    if not any((columns, function, request, call.key, group, split_column, condition)):
        source = copying(source)
    if split_column is None and not call.splits:
        split_column = source.default_split_column()
        source = keeping_splits(source)
    if group is None and call.splits and function is None:
        group = source.default_group
    layout = Layout(
        splits=make_splits(call.splits, column=split_column, group=group),
        shards=make_shard_spec(call.shards, call.shard_size),
        shuffle=call.shuffle,
        key=as_columns(call.key),
        seed=check_seed(call.seed),
        compression=codec,
        names=ShardNames(shard_suffix(codec)),
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
    return {
        "source": source,
        "target": directory_target(call.output),
        "limit": call.limit,
        "budget": parse_budget(call.max_rejects),
        "overwrite": call.overwrite,
        "runner": call.runner,
        "pipeline_options": tuple(beam_words(as_words("pipeline_options", call.pipeline_options))),
    }


def _losses(schema: Schema) -> list[str]:
    """Return warnings about the columns whose values lost precision."""
    lossy = [
        (repr(feature.name), feature.store, feature.observed)
        for feature in schema.features
        if feature.observed is not None and feature.observed.max_relative_error
    ]
    lines = []
    if coarse := [
        name
        for name, store, observed in lossy
        if store == "auto" and rounding_of(observed) > NOTICED_ROUNDING
    ]:
        lines.append(
            f"float32 is too coarse for {listed(coarse)}: rounding moves values by more than "
            f'{NOTICED_ROUNDING:.2%} of their range: "store": "bytes" or "text" in --schema '
            "keeps them exact"
        )
    if cut := [name for name, store, _ in lossy if store != "auto"]:
        lines.append(
            f"values of {listed(cut)} have more digits than float64 holds: "
            '"store": "text" in --schema keeps them exact'
        )
    return lines


def rounding_of(observed: ColumnStats) -> float:
    """Return the largest error of rounding to float32 as a share of the range of the values."""
    if math.isinf(observed.max_relative_error):
        return math.inf  # A value is beyond the range of float32.
    if observed.min is None or observed.max is None:
        return 0.0
    largest = max(abs(observed.min), abs(observed.max))
    # Half the distance between neighbours, which is constant below the smallest normal number.
    error = max(largest * 2.0**-24, 2.0**-150)
    if spread := float(observed.max - observed.min):
        return error / spread
    # Rounding may have made all values equal: their range is unknown, and the unit stands for it.
    return observed.max_relative_error * max(largest, 1.0)


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
