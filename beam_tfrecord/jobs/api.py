"""The Python functions `write`, `extract`, `plan` and `schema`, which run or plan jobs."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import pyarrow as pa

from beam_tfrecord.errors import UsageError, did_you_mean, for_caller
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.inputs import SourceOptions, make_source, options_of_packages
from beam_tfrecord.jobs.settings import ExtractSettings, Inputs, make_settings
from beam_tfrecord.jobs.stdin import stdin_as_file
from beam_tfrecord.manifest import Manifest
from beam_tfrecord.options import WRITE_OPTIONS
from beam_tfrecord.options.runners import beam_words
from beam_tfrecord.preprocess.request import Transform
from beam_tfrecord.rejects import parse_budget
from beam_tfrecord.selection.select import make_selection
from beam_tfrecord.sources.base import MOST_NOTES, Source, Unit, with_selection
from beam_tfrecord.sources.memory.source import on_disk
from beam_tfrecord.stage import StageManifest
from beam_tfrecord.type_checks import as_words
from beam_tfrecord.workdir.target import directory_target

if TYPE_CHECKING:
    from beam_tfrecord.jobs.plan import Plan
    from beam_tfrecord.progress import Progress

_LOGGER = logging.getLogger(__name__)
# Few, since a batch is read and converted at once.
_PREVIEW_ROWS = 256


def write(
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
    seed: int | None = 0,
    filter: str | None = None,
    sample: float | str | None = None,
    sample_seed: int | None = 0,
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
    progress: Progress | bool | None = None,
    source_options: Mapping[str, Any] | None = None,
    **options: Unpack[SourceOptions],
) -> Manifest:
    """Write tables, images, arrays or a database as a TFRecord dataset.

    If the output already contains this dataset, made from the same input with the same settings,
    the call does nothing. A job that was stopped in any way leaves the old dataset or none, and the
    same call continues the job.

    Args:
        inputs: Files, globs, directories, the URL of a database, or ``-`` for standard input; or
            data in memory: a table (pandas, polars, Arrow, Hugging Face datasets, and others that
            export Arrow), NumPy arrays by name, or an iterable of rows (dicts, NamedTuples,
            dataclasses).
        output: Directory of the dataset.
        from_: Kind of the input if its name does not show it: ``csv``, ``parquet``.
        splits: Shares by name, such as ``{"train": .9, "test": .1}`` or ``"train=0.9,test=0.1"``.
        split_column: Column that names each row's split.
        group: Columns whose equal values share a split; without it, equal examples do.
        key: Columns that decide the order, independent of the files of the input.
        shards: Number of shards of all splits, or of each: ``{"train": 64, "test": 8}``.
        shard_size: Bytes of a shard before compression; by default ``"128MB"``.
        shuffle: False keeps the order of the input.
        seed: Seed of the order and of the splits, from 0 to 2^64-1.
        filter: Condition in SQL on the columns of the source; only rows for which it is true are
            read.
        sample: Share of the rows to read, such as ``"1%"`` or ``0.01``, chosen by a hash.
        sample_seed: Seed of the choice of the sample, from 0 to 2^64-1.
        limit: Read only the first rows, after `filter` and `sample`.
        compression: ``none`` or ``gzip``.
        schema: Schema to enforce, or the path of its JSON.
        columns: Columns to read.
        map: Function of a row, or ``module:function``, or ``file.py:function``.
        transform: Preprocessing by tensorflow-transform: steps as dicts, the path of their JSON,
            or a preprocessing function (also as ``module:function`` or ``file.py:function``).
        step: Further steps, such as ``"zscore=fare,distance"``.
        transform_fn: A dataset whose fitted function to use instead.
        fit: The split that statistics are computed from.
        raw_too: Keep the raw values of changed columns too, named ``…_raw``.
        max_rejects: Rows that may be rejected: a number, ``"1%"`` or ``"any"``.
        overwrite: Replace another dataset in the output.
        runner: ``direct``, or the name of any Beam runner.
        pipeline_options: Further Beam options, as on a command line.
        progress: True shows a bar on stderr, or a line every 10 seconds if that is no terminal.
        source_options: Options of the source, such as ``{"delimiter": ";"}``.
        **options: The same by keyword, such as ``null_words=["NA"]``; see `SourceOptions`.

    Returns:
        The manifest of the dataset.

    Raises:
        UsageError: The call cannot be carried out.
        DataError: The data cannot become this dataset; nothing was published.
    """
    arguments = _with_source_options(**locals())
    progress = arguments.pop("progress")
    from beam_tfrecord.jobs.run import run_job
    from beam_tfrecord.progress import display_of

    with (
        _readable(inputs, from_=from_, runner=runner) as arguments["inputs"],
        display_of(progress) as display,
    ):
        return run_job(make_settings(**arguments), display)


def plan(
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
    seed: int | None = 0,
    filter: str | None = None,
    sample: float | str | None = None,
    sample_seed: int | None = 0,
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
    prices: Mapping[str, float] | None = None,
    **options: Unpack[SourceOptions],
) -> Plan:
    """Return a description of the job that `write` would run with the same arguments.

    All arguments except `prices` are arguments of `write`. Nothing is written.

    Args:
        inputs: Files, globs, directories, the URL of a database, or ``-`` for standard input; or
            data in memory: a table (pandas, polars, Arrow, Hugging Face datasets, and others that
            export Arrow), NumPy arrays by name, or an iterable of rows (dicts, NamedTuples,
            dataclasses).
        output: Directory of the dataset.
        from_: Kind of the input if its name does not show it: ``csv``, ``parquet``.
        splits: Shares by name, such as ``{"train": .9, "test": .1}`` or ``"train=0.9,test=0.1"``.
        split_column: Column that names each row's split.
        group: Columns whose equal values share a split; without it, equal examples do.
        key: Columns that decide the order, independent of the files of the input.
        shards: Number of shards of all splits, or of each: ``{"train": 64, "test": 8}``.
        shard_size: Bytes of a shard before compression; by default ``"128MB"``.
        shuffle: False keeps the order of the input.
        seed: Seed of the order and of the splits, from 0 to 2^64-1.
        filter: Condition in SQL on the columns of the source; only rows for which it is true are
            read.
        sample: Share of the rows to read, such as ``"1%"`` or ``0.01``, chosen by a hash.
        sample_seed: Seed of the choice of the sample, from 0 to 2^64-1.
        limit: Read only the first rows, after `filter` and `sample`.
        compression: ``none`` or ``gzip``.
        schema: Schema to enforce, or the path of its JSON.
        columns: Columns to read.
        map: Function of a row, or ``module:function``, or ``file.py:function``.
        transform: Preprocessing by tensorflow-transform: steps as dicts, the path of their JSON,
            or a preprocessing function (also as ``module:function`` or ``file.py:function``).
        step: Further steps, such as ``"zscore=fare,distance"``.
        transform_fn: A dataset whose fitted function to use instead.
        fit: The split that statistics are computed from.
        raw_too: Keep the raw values of changed columns too, named ``…_raw``.
        max_rejects: Rows that may be rejected: a number, ``"1%"`` or ``"any"``.
        overwrite: Replace another dataset in the output.
        runner: ``direct``, or the name of any Beam runner.
        pipeline_options: Further Beam options, as on a command line.
        source_options: Options of the source, such as ``{"delimiter": ";"}``.
        prices: Prices by name: of a million ``read_requests`` or ``write_requests`` to the store,
            or of a gigabyte of ``shuffle_bytes``. They add a ``cost`` to the result.
        **options: The same by keyword, such as ``null_words=["NA"]``; see `SourceOptions`.

    Returns:
        A dict of JSON values: files, bytes and, if known without reading them, rows of the input;
        units (parts of the input) and groups (tasks of one or more units); passes over the input;
        runs (sorted temporary files); requests; expected bytes of the records, of temporary files
        and of the shuffle; splits and shards; runner and settings; expected seconds, if the job
        runs here; and risks. Its ``lines()`` are what the command prints.

    Raises:
        UsageError: The call cannot be carried out.
    """
    arguments = _with_source_options(**locals())
    arguments.pop("prices")
    from beam_tfrecord.jobs.plan import plan_of
    from beam_tfrecord.jobs.run import warn_of_output

    with _readable(inputs, from_=from_, runner=runner) as arguments["inputs"]:
        settings = make_settings(**arguments)
        warn_of_output(settings)
        return plan_of(settings, prices)


def schema(
    inputs: Inputs, *, from_: str | None = None, **source_options: Unpack[SourceOptions]
) -> Schema:
    """Infer the schema of the input from all of its rows.

    Args:
        inputs: Files, globs, directories, the URL of a database, ``-`` for standard input, or data
            in memory; see `write`.
        from_: Kind of the input if its name does not show it.
        **source_options: Options of the source, such as ``delimiter=";"``; see `SourceOptions`.

    Returns:
        The schema.

    Raises:
        UsageError: There is no such input, or a column has no name.
        SchemaConflict: Two files disagree about a column.
    """
    return preview(inputs, from_=from_, **source_options).schema


class Preview(NamedTuple):
    """What is known of an input before it is written; `examples` is None if nobody counted them."""

    kind: str
    files: int
    bytes: int
    examples: int | None
    schema: Schema
    rows: list[pa.RecordBatch]


def preview(
    inputs: Inputs, *, from_: str | None = None, n: int = 0, **source_options: Any
) -> Preview:
    """Return the schema of the input and its first `n` rows, as `write` would write them."""
    with contextlib.ExitStack() as stack:
        readable = stack.enter_context(_readable(inputs, from_=from_))
        source = make_source(readable, from_=from_, options=source_options)
        stack.callback(source.release)
        scans = source.all_scans()
        arrow, remarks = source.inferred(scans)
        for remark in remarks:
            _LOGGER.warning("%s", for_caller(remark))
        schema = Schema.from_arrow(arrow)
        schema.check()
        units = source.all_units(scans)
        rows = list(_first(source, units, arrow, n))
    counts = [unit.rows for unit in units]
    files = {scan.chunk.file.name: scan.chunk.file for scan in scans}.values()
    return Preview(
        source.kind,
        sum(file.inside for file in files),
        sum(file.bytes for file in files),
        None if None in counts else sum(filter(None, counts)),
        schema,
        rows,
    )


def _first(
    source: Source, units: Sequence[Unit], schema: pa.Schema, n: int
) -> Iterator[pa.RecordBatch]:
    for unit in units if n else ():
        for batch in source.read_unchanged(unit, schema, batch_rows=_PREVIEW_ROWS):
            for reject in batch.rejects[:MOST_NOTES]:
                _LOGGER.warning("%s", for_caller(reject.message))
            yield batch.data.slice(0, n)
            n -= batch.num_rows
            if n <= 0:
                return


def extract(
    inputs: Inputs,
    output: str | os.PathLike[str],
    *,
    from_: str | None = None,
    filter: str | None = None,
    sample: float | str | None = None,
    sample_seed: int | None = 0,
    limit: int | None = None,
    columns: Sequence[str] | None = None,
    max_rejects: int | str = 0,
    overwrite: bool = False,
    runner: str = "direct",
    pipeline_options: Sequence[str] = (),
    progress: Progress | bool | None = None,
    source_options: Mapping[str, Any] | None = None,
    **options: Unpack[SourceOptions],
) -> StageManifest:
    """Copy input to a stage: Parquet files with the types of the source, and a manifest.

    `write`, `load` and `ReadFromParquet` can then read the stage, without access to the input. If
    the output already contains this stage, made from the same input with the same settings, the
    call does nothing. A call that was stopped can be repeated and continues. Databases are read
    again by every call, because their changes cannot be detected.

    Args:
        inputs: Files, globs, directories, the URL of a database, or ``-`` for standard input; or
            data in memory: a table (pandas, polars, Arrow, Hugging Face datasets, and others that
            export Arrow), NumPy arrays by name, or an iterable of rows (dicts, NamedTuples,
            dataclasses).
        output: Directory of the stage.
        from_: Kind of the input if its name does not show it: ``csv``, ``parquet``.
        filter: Condition in SQL on the columns of the source; only rows for which it is true are
            read.
        sample: Share of the rows to read, such as ``"1%"`` or ``0.01``, chosen by a hash.
        sample_seed: Seed of the choice of the sample, from 0 to 2^64-1.
        limit: Read only the first rows, after `filter` and `sample`.
        columns: Columns to read.
        max_rejects: Rows that may be rejected: a number, ``"1%"`` or ``"any"``.
        overwrite: Replace another stage, or a dataset, in the output.
        runner: ``direct``, or the name of any Beam runner.
        pipeline_options: Further Beam options, as on a command line.
        progress: True shows a bar on stderr, or a line every 10 seconds if that is no terminal.
        source_options: Options of the source, such as ``{"table": "trips"}``.
        **options: The same by keyword, such as ``null_words=["NA"]``; see `SourceOptions`.

    Returns:
        The manifest of the stage.

    Raises:
        UsageError: The call cannot be carried out.
        DataError: The data cannot become a stage; nothing was published.
    """
    source_options = _with_source_options(**locals())["source_options"]
    if limit is not None and limit < 1:
        raise UsageError(f"limit {limit} is not a number of rows")
    from beam_tfrecord.jobs.run import run_job
    from beam_tfrecord.progress import display_of

    with (
        _readable(inputs, from_=from_, runner=runner) as readable,
        display_of(progress) as display,
    ):
        source = make_source(readable, from_=from_, columns=columns, options=source_options)
        selection = make_selection(filter=filter, sample=sample, sample_seed=sample_seed)
        settings = ExtractSettings(
            source=with_selection(source, selection),
            target=directory_target(output),
            limit=limit,
            budget=parse_budget(max_rejects),
            overwrite=overwrite,
            runner=runner,
            pipeline_options=tuple(beam_words(as_words("pipeline_options", pipeline_options))),
        )
        return run_job(settings, display)


@contextlib.contextmanager
def _readable(inputs: Any, *, from_: str | None, runner: str = "direct") -> Iterator[Any]:
    """Yield the inputs, with files in place of standard input and of data in memory."""
    with (
        stdin_as_file(inputs, from_=from_, runner=runner) as named,
        on_disk(named) as readable,
    ):
        yield readable


def _with_source_options(
    *, source_options: Mapping[str, Any] | None, options: Mapping[str, Any], **others: Any
) -> dict[str, Any]:
    """Return the arguments of a function with all options of the source in one mapping."""
    known = SourceOptions.__annotations__
    for name in options.keys() - known.keys():
        # The option of a source of another package; `make_source` knows which source there is.
        if name not in options_of_packages():
            is_of_write = name in (option.keyword for option in WRITE_OPTIONS)
            hint = "give it to write" if is_of_write else did_you_mean(name, [*others, *known])
            raise UsageError(f"unexpected keyword argument {name!r}{hint and f': {hint}'}")
    return {**others, "source_options": {**(source_options or {}), **options}}
