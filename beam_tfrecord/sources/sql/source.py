"""Reads a table or query of a database, split by position or key; the database has the types.

After a dropped connection the same statement runs again in the same snapshot. Batches that were
already returned are compared by hash with the new ones and skipped, so rows are never duplicated
and another order of the rows is detected. If the snapshot ended with the connection, the job fails.

Other connections can join a snapshot only while the connection that planned the job is open. The
process that planned the job holds that connection until it has read the last partition, the job
ends, or the process exits.
"""

from __future__ import annotations

import atexit
import contextlib
import copy
import dataclasses
import importlib
import itertools
import logging
import os
import re
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar
from urllib.parse import quote

import pyarrow as pa

from beam_tfrecord import native
from beam_tfrecord.base.text import counted, listed, not_found
from beam_tfrecord.errors import DataError, SchemaConflict, UsageError, did_you_mean
from beam_tfrecord.features.arrow_types import type_of_column
from beam_tfrecord.features.type_join import can_cast
from beam_tfrecord.options.jobs import flag_of
from beam_tfrecord.options.sources import DatabaseOptions
from beam_tfrecord.rows.batch import (
    DEFAULT_BATCH_ROWS,
    MAX_VALUE_CHARS,
    Batch,
    Origin,
    Reject,
    without_rows,
)
from beam_tfrecord.sources.base import Chunk, InputFile, Scan, Source, Unit, wanted_columns
from beam_tfrecord.sources.files import FileSource, as_paths
from beam_tfrecord.sources.sql.database import (
    Connection,
    ConnectionLost,
    Engine,
    split_password,
    store_password,
)
from beam_tfrecord.sources.sql.jdbc_java import jars_to_send
from beam_tfrecord.sources.sql.plan import SqlPlan, make_plan
from beam_tfrecord.sources.sql.values import Misfit, SqlColumn, SqlRows, cast_column

ATTEMPTS = 6
FIRST_PAUSE_S = 0.2

_LOGGER = logging.getLogger(__name__)


@dataclasses.dataclass
class _Holder:
    connection: Connection
    job: str
    unread: set[int]


# Connections of this process by the token of their snapshot. Threads only call single methods of
# this dict and of the sets in it, which need no lock.
_holders: dict[str, _Holder] = {}


def partition_done(snapshot: str, index: int) -> None:
    """Record that this process has read a partition; after the last, end the snapshot."""
    holder = _holders.get(snapshot)
    if holder is not None:
        holder.unread.discard(index)
        if not holder.unread:
            _end(snapshot)


def release_snapshots(job: str | None = None) -> None:
    """Close the connections that this process holds for a job; for all jobs if it is None."""
    for snapshot, holder in list(_holders.items()):
        if job in (None, holder.job):
            _end(snapshot)


def _end(snapshot: str) -> None:
    if (holder := _holders.pop(snapshot, None)) is not None:
        holder.connection.close()


atexit.register(release_snapshots)


def read_partition(
    engine: Engine, plan: SqlPlan, columns: Sequence[SqlColumn], *, batch_rows: int
) -> Iterator[SqlRows]:
    """Yield the rows of the only partition of a plan, in batches as the connection forms them."""
    (partition,) = plan.partitions
    values = ", ".join(column.select for column in columns)
    sql = plan.relation.select(values, partition.condition, order_by=plan.order_by)
    hashes: list[int] = []
    rows = 0
    expected = partition.rows
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with engine.connect(snapshot=plan.snapshot) as connection:
                if expected is not None and not plan.snapshot:
                    # Without a shared snapshot, this connection counts in its own.
                    counting = plan.relation.select("COUNT(*)", partition.condition)
                    ((expected,),) = connection.fetch(counting)
                found = connection.read(sql, columns, batch_rows=batch_rows)
                for number, one in enumerate(found):
                    # In one snapshot a key, which is the last column, identifies its row.
                    last = one.data.num_columns - 1
                    seen = one.data if plan.number is None else one.data.select([last])
                    hashed = native.xxh64(seen.serialize(), 0)
                    if number >= len(hashes):
                        hashes.append(hashed)
                        rows += one.data.num_rows
                        yield one
                    elif hashed != hashes[number]:
                        raise DataError(
                            f"the connection dropped, and {plan.name} then came in another order: "
                            "run the job again, or order the query"
                        )
            break
        except ConnectionLost as error:
            if hashes and not plan.snapshot:
                raise DataError(
                    f"the connection to {engine.address} dropped, and the snapshot it read is "
                    f"gone ({error}): run the job again"
                ) from error
            if attempt == ATTEMPTS:
                raise DataError(
                    f"the connection to {engine.address} dropped {ATTEMPTS} times: {error}"
                ) from error
            pause_s = FIRST_PAUSE_S * 2 ** (attempt - 1)
            _LOGGER.warning("%s: connecting again in %.1f s: %s", engine.address, pause_s, error)
            time.sleep(pause_s)
    if expected is not None and rows != expected:
        raise DataError(
            f"a partition of {plan.name} in {engine.address} gave {counted(rows, 'row')} but "
            f"{expected:,} were counted: it was changed while it was read: run the job again"
        )


def columns_for(schema: pa.Schema, plan: SqlPlan) -> list[SqlColumn]:
    """Return the columns to select: those of `schema`, then the column that numbers the rows."""
    by_name = {column.name: column for column in plan.columns}
    for field in schema:
        column = by_name.get(field.name)
        if column is None:
            raise DataError(not_found(field.name, by_name, of="the schema", where=plan.name))
        if column.arrow is None or not can_cast(column.arrow, field.type):
            raise SchemaConflict(
                f"column {field.name!r} of {plan.name} is {column.declared} but {field.type} in "
                f"the schema: pass --types {field.name}={field.type}"
            )
    numbers = [] if plan.number is None else [plan.number]
    return [by_name[name] for name in schema.names] + numbers


def origin_of(unit: Unit, plan: SqlPlan, rows: SqlRows, first_row: int) -> Origin | None:
    """Return the origin of rows, numbered by key or order; None if they have neither."""
    if plan.number is not None:
        keys = rows.data.column(rows.data.num_columns - 1).cast(pa.int64())
        numbers = keys.fill_null(-1).to_numpy(zero_copy_only=False)
        # Not the partition's name: row numbers must not depend on the partitions.
        address = (f"{plan.name} where {plan.number.name} is ", 0)
        return Origin(plan.name, unit.index, numbers, address=address)
    return Origin(unit.name, unit.index, first_row) if plan.is_ordered else None


def batches_of(
    rows: SqlRows, origin: Origin | None, schema: pa.Schema, plan: SqlPlan, batch_rows: int
) -> Iterator[Batch]:
    """Yield rows as batches of a schema, of at most `batch_rows` rows each.

    Rows with misfits or values that do not fit the schema become rejects.
    """
    cast = [
        cast_column(rows.data.column(index), field.name, field.type, "correct --schema")
        for index, field in enumerate(schema)
    ]
    data = pa.RecordBatch.from_arrays([array for array, _ in cast], schema=schema)
    rejects: dict[int, Reject] = {}
    for misfit in itertools.chain(rows.misfits, *(found for _, found in cast)):
        rejects.setdefault(misfit.row, _reject(misfit, origin, schema, plan, rows))
    batch = without_rows(Batch(data, origin), rejects)
    for start in range(0, max(1, batch.num_rows), batch_rows):
        yield batch.slice(start, min(start + batch_rows, batch.num_rows))


def _reject(
    misfit: Misfit, origin: Origin | None, schema: pa.Schema, plan: SqlPlan, rows: SqlRows
) -> Reject:
    number = -1 if origin is None else int(origin.row_numbers(rows.data.num_rows)[misfit.row])
    where = plan.name
    if number != -1:
        where += (
            f" row {number}" if plan.number is None else f" where {plan.number.name} is {number}"
        )
    return Reject(
        unit=plan.name if origin is None else origin.unit,
        row=number,
        column=misfit.column,
        code="bad-value",
        message=f"column {misfit.column!r} of {where} {misfit.message}",
        value=misfit.value[:MAX_VALUE_CHARS],
        address=where,
    )


# Module and class of each engine by URL scheme; a driver is loaded only if its engine is used.
_ENGINES = {
    "sqlite": ("sqlite", "Sqlite"),
    "duckdb": ("duckdb", "DuckDb"),
    "postgresql": ("postgres", "Postgres"),
    "postgres": ("postgres", "Postgres"),
    "jdbc": ("jdbc", "Jdbc"),
}
_SCHEME = re.compile(r"([a-z][a-z0-9]*)(?:\+[a-z0-9_]+)?:", re.I)
_FILES = {".duckdb": "duckdb", ".ddb": "duckdb"}


def _scheme_of(url: str) -> str:
    match = _SCHEME.match(url)
    # A single letter is a drive of Windows.
    if match is None or len(match[1]) == 1:
        return _FILES.get(os.path.splitext(url.lower())[1], "sqlite")
    scheme = match[1].lower()
    if scheme not in _ENGINES:
        others = (
            "files are read from paths and from https, s3, gs and az; databases from "
            "sqlite:///file.db, duckdb:///file, postgresql://host/database and jdbc:"
        )
        if scheme == "hf":
            others = "download the files first, or pass what the package datasets loads to write()"
        near = () if len(scheme) < 4 else (*_ENGINES, "https", "file", "hdfs")
        if scheme in ("mysql", "mariadb"):
            near, others = (), "pass jdbc:mariadb://host/database, with --jar for its driver"
        raise UsageError(f"cannot read '{scheme}://': {did_you_mean(scheme, near, others)}")
    return scheme


_ARRAYS = ("refuse", "text", "list")


@dataclasses.dataclass(frozen=True)
class Sql(DatabaseOptions, FileSource):
    """A table or a query of a database, read in partitions of one snapshot.

    The password belongs in an environment variable or a file of the machines that read. A
    password inside the URL, or one passed as an argument, stays in this process, outside of this
    object. So it works only for runners inside this process.
    """

    kind: ClassVar[str] = "sql"
    suffixes: ClassVar[tuple[str, ...]] = (".db", ".sqlite", ".sqlite3")
    infers_from_scans: ClassVar[bool] = True

    _: dataclasses.KW_ONLY
    job: str = dataclasses.field(init=False, default="", compare=False, repr=False)
    password: dataclasses.InitVar[str | None] = None

    def __post_init__(self, password: str | None) -> None:
        paths = as_paths(self.paths)
        if len(paths) != 1:
            raise UsageError(f"{len(paths)} databases: read one at a time")
        url, in_url = split_password(paths[0])
        if password or in_url:
            store_password(url, password or in_url or "")
        types = {name: type_of_column(name, of) for name, of in self.typed.items()}
        for name, value in {
            "paths": (url,),
            "types": types,
            "columns": wanted_columns(self.columns),
            "session_init": as_paths(self.session_init),
            "jars": as_paths(self.jars),
            "properties": dict(self.properties or {}),
            "job": uuid.uuid4().hex,
        }.items():
            object.__setattr__(self, name, value)
        self._check()

    def _check(self) -> None:
        engine = self.engine
        if self.table is None and self.query is None:
            names = engine.table_names()
            known = f": the tables are {listed(names)}" if names else ""
            raise UsageError(f"pass --table or --query, to say what to read{known}")
        if self.table is not None and self.query is not None:
            raise UsageError("pass --table or --query, not both")
        for keyword in ("partitions", "max_connections", "fetch_rows"):
            number = getattr(self, keyword)
            if number is not None and number < 1:
                raise UsageError(f"{flag_of(keyword)} {number} is less than 1")
        if self.arrays not in _ARRAYS:
            raise UsageError(f"arrays {self.arrays!r} is not one of {', '.join(_ARRAYS)}")

    @property
    def url(self) -> str:
        """The database's URL, without a password."""
        return as_paths(self.paths)[0]

    @property
    def engine(self) -> Engine:
        """The engine that reads the database."""
        module, name = _ENGINES[_scheme_of(self.url)]
        engine: type[Engine] = getattr(importlib.import_module(f"{__package__}.{module}"), name)
        return engine(self.url, self)

    @property
    def is_stable(self) -> bool:
        return False

    @property
    def facts(self) -> dict[str, Any]:
        what = {"table": self.table} if self.query is None else {"query": self.query}
        return {**what, "snapshot": self.engine.guarantee}

    def in_order(self) -> Sql:
        return dataclasses.replace(self, ordered=True)

    def to_send(self) -> tuple[Source, tuple[str, ...]]:
        sent, jars, path = copy.copy(self), jars_to_send(self.jars), self.engine.path
        object.__setattr__(sent, "jars", jars)
        if path is not None:
            absolute = os.path.abspath(path)
            is_path = path == self.url
            url = absolute if is_path else f"{_scheme_of(self.url)}:///{quote(absolute)}"
            object.__setattr__(sent, "paths", (url,))
        return sent, tuple(filter(os.path.isfile, jars))

    def numbers_rows(self, units: Iterable[Unit]) -> bool:
        return all(unit.detail.number is not None or unit.detail.is_ordered for unit in units)

    def release(self) -> None:
        release_snapshots(self.job)

    def files(self) -> Iterator[InputFile]:
        engine = self.engine
        size = os.path.getsize(engine.path) if engine.path and os.path.exists(engine.path) else 0
        yield InputFile(self.url, engine.address, size)

    def scan(self, chunk: Chunk) -> Scan:
        engine = self.engine
        try:
            return Scan(chunk, self._plan(engine))
        except ConnectionLost as error:
            raise UsageError(f"cannot reach {engine.address}: {error}") from error

    def _plan(self, engine: Engine) -> SqlPlan:
        with contextlib.ExitStack() as until_planned:
            connection = until_planned.enter_context(engine.connect())
            plan = make_plan(connection, self, self.columns)
            count = len(plan.partitions)
            # A single reader of a file has one snapshot by itself, in any process.
            is_shared = count > 1 or engine.path is None
            snapshot = connection.export_snapshot() if is_shared else ""
            if snapshot:
                # It stays open until all partitions are read, or until the job ends.
                _holders[snapshot] = _Holder(connection, self.job, set(range(count)))
                until_planned.pop_all()
            return dataclasses.replace(plan, snapshot=snapshot)

    def units(self, scans: Sequence[Scan]) -> list[Unit]:
        (scan,) = scans
        plan: SqlPlan = scan.detail
        count = len(plan.partitions)
        # Framing, names and values of a record.
        record_bytes = 24 + sum(len(column.name) + 8 for column in plan.columns) + plan.row_bytes
        return [
            Unit(
                name=plan.name if count == 1 else f"{plan.name}:{index}",
                file=scan.chunk.file,
                index=index,
                start=index,
                stop=index + 1,
                rows=partition.rows,
                input_bytes=(partition.rows or 0) * plan.row_bytes,
                encoded_bytes=max(1, partition.rows or 0) * record_bytes,
                detail=dataclasses.replace(plan, partitions=(partition,)),
            )
            for index, partition in enumerate(plan.partitions)
        ]

    def merge(self, inferences: Iterable[Scan]) -> pa.Schema:
        (scan,) = inferences
        return scan.detail.schema

    def read(
        self, unit: Unit, schema: pa.Schema, *, batch_rows: int = DEFAULT_BATCH_ROWS
    ) -> Iterator[Batch]:
        """Yield the rows of a partition as batches of `schema`.

        Rows are numbered by their order if they are `ordered`, else by an integer key. Without
        either, the position of a row in the dataset depends on the bytes of the row.
        """
        plan: SqlPlan = unit.detail
        columns = columns_for(schema, plan)
        first_row = 0
        for rows in read_partition(self.engine, plan, columns, batch_rows=batch_rows):
            origin = origin_of(unit, plan, rows, first_row)
            yield from batches_of(rows, origin, schema, plan, batch_rows)
            first_row += rows.data.num_rows
        if not first_row:
            empty = pa.RecordBatch.from_pylist([], schema=schema)
            is_numbered = self.ordered or plan.number is not None
            yield Batch(empty, Origin(unit.name, unit.index, 0) if is_numbered else None)
        partition_done(plan.snapshot, unit.index)
