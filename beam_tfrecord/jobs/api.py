"""The Python functions `write`, `append`, `compact`, `extract`, `plan` and `schema`."""

import contextlib
import dataclasses
import functools
import logging
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, NamedTuple, ParamSpec, TypeVar

import pyarrow as pa

from beam_tfrecord.base.arguments import takes
from beam_tfrecord.base.scratch import scratch_directory
from beam_tfrecord.base.text import counted
from beam_tfrecord.dataset.load import is_loadable
from beam_tfrecord.errors import DataError, UsageError, did_you_mean, for_caller, with_keywords
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.format.manifest import Manifest
from beam_tfrecord.format.stage import StageManifest
from beam_tfrecord.jobs.settings import InputPaths, extract_settings, make_settings
from beam_tfrecord.options import Option
from beam_tfrecord.options.jobs import (
    AppendOptions,
    InputOptions,
    JobOptions,
    RunOptions,
    WriteOptions,
)
from beam_tfrecord.options.sources import SourceOptions
from beam_tfrecord.runners import check_runner_name, traits_of
from beam_tfrecord.sources.base import MOST_NOTES, Source, Unit
from beam_tfrecord.sources.choose import make_source, options_of_packages
from beam_tfrecord.sources.memory import on_disk

if TYPE_CHECKING:
    from beam_tfrecord.base.progress import Progress
    from beam_tfrecord.jobs.plan import Plan

P = ParamSpec("P")
Call = TypeVar("Call")
Result = TypeVar("Result")
Job = TypeVar("Job", bound=RunOptions)

_LOGGER = logging.getLogger(__name__)
# Few, since a batch is read and converted at once.
_PREVIEW_ROWS = 256


def _bound(options: Any, *args: Any, **given: Any) -> Any:
    """Return the object of a class of options, with the given options of sources in one mapping."""
    of_source = {field.name for field in dataclasses.fields(SourceOptions)}
    own = {field.name for field in dataclasses.fields(options)} - of_source
    for name in given.keys() - own - of_source:
        # The option of a source of another package; `make_source` knows which source there is.
        if name not in options_of_packages():
            is_of_write = hasattr(WriteOptions, name)
            meant = with_keywords(f"--{name.replace('_', '-')}").strip("-")
            hint = "give it to write" if is_of_write else did_you_mean(meant, [*own, *of_source])
            raise UsageError(f"unexpected keyword argument {name!r}{hint and f': {hint}'}")
    options_of_source = {name: given.pop(name) for name in given.keys() - own}
    given["source_options"] = {**(given.get("source_options") or {}), **options_of_source}
    return options(*args, **given)


def _takes(options: Callable[P, Call]) -> Callable[[Callable[[Call], Result]], Callable[P, Result]]:
    return takes(options, functools.partial(_bound, options))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _ProgressOption:
    """How a job shows its progress."""

    progress: Annotated[
        "Progress | bool | None",
        Option("True shows a bar on stderr, or a line every 10 seconds if that is no terminal."),
    ] = None


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Write(SourceOptions, _ProgressOption, WriteOptions):
    """The arguments of `write`."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Append(SourceOptions, _ProgressOption, AppendOptions):
    """The arguments of `append`."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _PlanCall(SourceOptions, WriteOptions):
    """The arguments of `plan`."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Extract(SourceOptions, _ProgressOption, JobOptions):
    """The arguments of `extract`."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Schema(SourceOptions, InputOptions):
    """The arguments of `schema`."""

    observed: Annotated[
        bool, Option("Of a dataset: propose limits that its values keep to; reads all of it.")
    ] = False


@_takes(_Write)
def write(call: _Write) -> Manifest:
    """Write tables, images, arrays or a database as a TFRecord dataset.

    If the output already contains this dataset, made from the same input with the same settings,
    the call does nothing. A job that was stopped in any way leaves the old dataset or none, and the
    same call continues the job.

    Returns:
        The manifest of the dataset.

    Raises:
        UsageError: The call cannot be carried out.
        DataError: The data cannot become this dataset; nothing was published.

    Example:
        >>> bt.write("penguins.csv", "birds/", null_words=["NA"], splits="train=0.8,test=0.2")
        <Manifest: train=278, test=66; ...>
    """
    from beam_tfrecord.base.progress import display_of
    from beam_tfrecord.jobs.run import run_job

    with readable(call) as ready, display_of(call.progress) as display:
        return run_job(make_settings(ready), display)


@_takes(_Append)
def append(call: _Append) -> Manifest:
    """Append the rows of new files to a dataset, as one more generation.

    The rows are written as those of the dataset: with its schema, splits, seed, order and
    preprocessing, and by the same function. So rows that are equal to old ones, or of their group,
    get the split of these. Input files that the dataset has already are skipped, by path, size and
    time, so the same call takes only what is new, and nothing the next time. Programs that read the
    dataset meanwhile see the old rows, until they load it again.

    Returns:
        The manifest of the dataset, with all generations.

    Raises:
        UsageError: The call cannot be carried out.
        TargetExists: A file changed since the dataset got its rows, or the dataset was replaced
            during the call.
        DataError: The rows do not fit the dataset; nothing was appended.

    Example:
        >>> bt.append("july.csv", "trips/")
        <Manifest: data=3; ...>
    """
    from beam_tfrecord.base.progress import display_of
    from beam_tfrecord.jobs.append import append_rows

    with readable(call) as ready, display_of(call.progress) as display:
        return append_rows(ready, display)


def compact(
    dataset: str | os.PathLike[str],
    *,
    runner: str = "direct",
    pipeline_options: Sequence[str] = (),
    progress: "Progress | bool | None" = None,
) -> Manifest:
    """Write all generations of a dataset as one, in its place.

    Each row stays in its split. If the dataset has a `key` whose values are unique, the shards have
    the bytes that one `write` of all inputs gives; otherwise the rows are in another order. Readers
    that have the dataset open have to load it again. A call that was stopped leaves the dataset as
    it was, and can be repeated.

    Args:
        dataset: Directory of the dataset.
        runner: Beam runner: direct, flink, dataflow, ….
        pipeline_options: Further Beam options, as on a command line.
        progress: True shows a bar on stderr.

    Returns:
        The manifest of the dataset; nothing is done if it has one generation.

    Raises:
        UsageError: There is no dataset.
        TargetExists: The dataset was changed during the call.
        DataError: A shard is damaged.

    Example:
        >>> bt.compact("trips/")
        <Manifest: data=...>
    """
    from beam_tfrecord.base.progress import display_of
    from beam_tfrecord.jobs.append import compact_dataset

    with display_of(progress) as display:
        return compact_dataset(dataset, display, runner=runner, pipeline_options=pipeline_options)


@_takes(_PlanCall)
def plan(call: _PlanCall) -> "Plan":
    """Return a description of the job that `write` would run with the same arguments.

    Nothing is written.

    Returns:
        A dict of JSON values: files, bytes and, if known without reading them, rows of the input;
        units (parts of the input) and tasks (of one or more units); passes over the input;
        expected bytes of the records; splits and shards; runner and settings; and a summary in one
        line. Its ``lines()`` are what the command prints.

    Raises:
        UsageError: The call cannot be carried out.

    Example:
        >>> bt.plan("penguins.csv", "out/", shuffle=False)["passes"]
        ['scan for row ends', 'infer types', 'read and encode']
    """
    from beam_tfrecord.jobs.plan import plan_of
    from beam_tfrecord.jobs.run import warn_of_output

    with readable(call) as ready:
        settings = make_settings(ready)
        warn_of_output(settings)
        return plan_of(settings)


@_takes(_Extract)
def extract(call: _Extract) -> StageManifest:
    """Copy input to a stage: Parquet files with the types of the source, and a manifest.

    `write`, `load` and `ReadFromParquet` can then read the stage, without access to the input. If
    the output already contains this stage, made from the same input with the same settings, the
    call does nothing. A call that was stopped can be repeated and continues. Databases are read
    again by every call, because their changes cannot be detected.

    Returns:
        The manifest of the stage.

    Raises:
        UsageError: The call cannot be carried out.
        DataError: The data cannot become a stage; nothing was published.

    Example:
        >>> bt.extract("penguins.csv", "stage/")
        <StageManifest: rows=344, ...>
    """
    from beam_tfrecord.base.progress import display_of
    from beam_tfrecord.jobs.run import run_job

    with readable(call) as ready, display_of(call.progress) as display:
        return run_job(extract_settings(ready), display)


@_takes(_Schema)
def schema(call: _Schema) -> Schema:
    """Infer the schema of the input from all of its rows.

    Returns:
        The schema.

    Raises:
        UsageError: There is no such input, or a column has no name.
        SchemaConflict: Two files disagree about a column.

    Example:
        >>> bt.schema("penguins.csv", null_words=["NA"]).names[:3]
        ('species', 'island', 'bill_length_mm')
    """
    if call.observed:
        from beam_tfrecord.dataset.load import load
        from beam_tfrecord.stats.statistics import propose_schema

        paths = call.inputs if isinstance(call.inputs, list) else [call.inputs]
        if call.from_ or call.source_options or len(paths) != 1:
            raise UsageError("limits are proposed for one dataset, without options of sources")
        return propose_schema(load(paths[0]))
    return preview(call.inputs, from_=call.from_, **(call.source_options or {})).schema


class Preview(NamedTuple):
    """What is known of an input before it is written; `examples` is None if nobody counted them."""

    kind: str
    files: int
    bytes: int
    examples: int | None
    schema: Schema
    rows: list[pa.RecordBatch]


def preview(
    inputs: InputPaths, *, from_: str | None = None, n: int = 0, **source_options: Any
) -> Preview:
    """Return the schema of the input and its first `n` rows, as `write` would write them."""
    with contextlib.ExitStack() as stack:
        named = stack.enter_context(stdin_as_file(inputs, from_=from_))
        readable = stack.enter_context(on_disk(named, nan=source_options.get("nan", "null")))
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


@contextlib.contextmanager
def loadable(inputs: InputPaths, **options: Any) -> Iterator[Any]:
    """Yield a path for `load`: a dataset itself, or a stage of any other input during the block.

    Args:
        inputs: The input, as of `extract`.
        options: Arguments of `extract`, which say how to read an input that is no dataset.
    """
    is_told = options.get("from_") or options.get("source_options")
    if not is_told and isinstance(inputs, str | os.PathLike) and is_loadable(inputs):
        yield inputs
        return
    with scratch_directory() as directory:
        stage = os.path.join(directory, "stage")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".* rejected: for the reasons")  # in a lost directory
            rejects = extract(inputs, stage, max_rejects="any", **options).rejects["rows"]
        if rejects:
            _LOGGER.warning(
                "%s rejected: beam-tfrecord card has the reasons", counted(rejects, "row")
            )
        yield stage


@contextlib.contextmanager
def readable(call: Job) -> Iterator[Job]:
    """Yield the arguments with files in place of standard input and of data in memory."""
    with (
        stdin_as_file(call.inputs, from_=call.from_, runner=call.runner) as named,
        on_disk(named, nan=(call.source_options or {}).get("nan", "null")) as files,
    ):
        yield dataclasses.replace(call, inputs=files)


STDIN = "-"
_SUFFIXES = {"csv": ".csv", "json": ".json"}
_COPY_BYTES = 2**20
_GZIP = b"\x1f\x8b"
_SPACE = b" \t\r\n\xef\xbb\xbf"


@contextlib.contextmanager
def stdin_as_file(inputs: Any, *, from_: str | None, runner: str = "direct") -> Iterator[Any]:
    """Yield the inputs, with the path of a file for ``-``, which has all bytes of standard input.

    The file is removed at the end of the block. A job that reads the same bytes again reads another
    file, so it needs `overwrite`.
    """
    named = [inputs] if isinstance(inputs, str) else inputs
    if not isinstance(named, list | tuple) or not any(
        isinstance(path, str) and path == STDIN for path in named
    ):
        yield inputs
        return
    if len(named) > 1:
        raise UsageError("- is standard input, and has to be the only input: leave out the others")
    check_runner_name(runner)
    if not traits_of(runner).runs_here:
        raise UsageError(f"{runner} workers cannot read standard input: write it to a file first")
    stream = getattr(sys.stdin, "buffer", None)
    if stream is None or sys.stdin.isatty():
        raise UsageError("- is standard input, but nothing is piped to it: name a file")
    with scratch_directory() as directory:
        yield _copied(stream, directory, from_)


def _copied(stream: BinaryIO, directory: str, from_: str | None) -> str:
    first = stream.read(_COPY_BYTES)
    if not first:
        raise DataError("standard input is empty: check the program that writes to it")
    if first.startswith(_GZIP):
        raise UsageError("standard input is compressed: pipe it through gzip -dc first")
    path = os.path.join(directory, f"stdin{_SUFFIXES[_kind_of(first, from_)]}")
    try:
        with open(path, "wb") as file:
            file.write(first)
            shutil.copyfileobj(stream, file, _COPY_BYTES)
    except OSError as error:
        raise DataError(
            f"cannot copy standard input to {path!r} ({error.strerror}): set TMPDIR to a directory "
            "with more space"
        ) from error
    return path


def _kind_of(first: bytes, from_: str | None) -> str:
    if from_ is not None:
        if from_ not in _SUFFIXES:
            kinds = " or ".join(_SUFFIXES)
            raise UsageError(f"cannot read {from_} from standard input, only {kinds}: name a file")
        return from_
    if first.lstrip(_SPACE).startswith((b"{", b"[")):
        return "json"
    raise UsageError(
        "cannot tell what standard input holds: it is not JSON: pass --from csv for CSV"
    )
