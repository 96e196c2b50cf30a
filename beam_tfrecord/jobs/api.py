"""The Python functions `write`, `extract`, `plan` and `schema`, which run or plan jobs."""

import contextlib
import dataclasses
import functools
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, ParamSpec, TypeVar

import pyarrow as pa

from beam_tfrecord.base.arguments import takes
from beam_tfrecord.errors import UsageError, did_you_mean, for_caller
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.format.manifest import Manifest
from beam_tfrecord.format.stage import StageManifest
from beam_tfrecord.jobs.settings import Inputs, extract_settings, make_settings
from beam_tfrecord.jobs.stdin import stdin_as_file
from beam_tfrecord.options import Option
from beam_tfrecord.options.jobs import InputOptions, JobOptions, WriteOptions
from beam_tfrecord.options.sources import SourceOptions
from beam_tfrecord.sources.base import MOST_NOTES, Source, Unit
from beam_tfrecord.sources.choose import make_source, options_of_packages
from beam_tfrecord.sources.memory import on_disk

if TYPE_CHECKING:
    from beam_tfrecord.base.progress import Progress
    from beam_tfrecord.jobs.plan import Plan

P = ParamSpec("P")
Call = TypeVar("Call")
Result = TypeVar("Result")
Job = TypeVar("Job", bound=JobOptions)

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
            hint = "give it to write" if is_of_write else did_you_mean(name, [*own, *of_source])
            raise UsageError(f"unexpected keyword argument {name!r}{hint and f': {hint}'}")
    options_of_source = {name: given.pop(name) for name in given.keys() - own}
    given["source_options"] = {**(given.get("source_options") or {}), **options_of_source}
    return options(*args, **given)


def _takes(
    options: Callable[P, Call],
) -> Callable[[Callable[[Call], Result]], Callable[P, Result]]:
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
class _Plan(SourceOptions, WriteOptions):
    """The arguments of `plan`."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Extract(SourceOptions, _ProgressOption, JobOptions):
    """The arguments of `extract`."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Schema(SourceOptions, InputOptions):
    """The arguments of `schema`."""


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
    """
    from beam_tfrecord.base.progress import display_of
    from beam_tfrecord.jobs.run import run_job

    with _readable(call) as readable, display_of(call.progress) as display:
        return run_job(make_settings(readable), display)


@_takes(_Plan)
def plan(call: _Plan) -> "Plan":
    """Return a description of the job that `write` would run with the same arguments.

    Nothing is written.

    Returns:
        A dict of JSON values: files, bytes and, if known without reading them, rows of the input;
        units (parts of the input) and groups (tasks of one or more units); passes over the input;
        expected bytes of the records; splits and shards; runner and settings; and a summary in one
        line. Its ``lines()`` are what the command prints.

    Raises:
        UsageError: The call cannot be carried out.
    """
    from beam_tfrecord.jobs.plan import plan_of
    from beam_tfrecord.jobs.run import warn_of_output

    with _readable(call) as readable:
        settings = make_settings(readable)
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
    """
    from beam_tfrecord.base.progress import display_of
    from beam_tfrecord.jobs.run import run_job

    with _readable(call) as readable, display_of(call.progress) as display:
        return run_job(extract_settings(readable), display)


@_takes(_Schema)
def schema(call: _Schema) -> Schema:
    """Infer the schema of the input from all of its rows.

    Returns:
        The schema.

    Raises:
        UsageError: There is no such input, or a column has no name.
        SchemaConflict: Two files disagree about a column.
    """
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
    inputs: Inputs, *, from_: str | None = None, n: int = 0, **source_options: Any
) -> Preview:
    """Return the schema of the input and its first `n` rows, as `write` would write them."""
    with contextlib.ExitStack() as stack:
        named = stack.enter_context(stdin_as_file(inputs, from_=from_))
        readable = stack.enter_context(on_disk(named))
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
def _readable(call: Job) -> Iterator[Job]:
    """Yield the arguments with files in place of standard input and of data in memory."""
    with (
        stdin_as_file(call.inputs, from_=call.from_, runner=call.runner) as named,
        on_disk(named) as readable,
    ):
        yield dataclasses.replace(call, inputs=readable)
