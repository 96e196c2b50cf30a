"""The SQL source, which reads a table or a query of a database in partitions of one snapshot."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import importlib
import os
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar
from urllib.parse import quote

import pyarrow as pa

from beam_tfrecord.base.tables import listed
from beam_tfrecord.errors import UsageError, did_you_mean
from beam_tfrecord.features.arrow_types import type_of_column
from beam_tfrecord.options import flag_of
from beam_tfrecord.options.sources import DatabaseOptions
from beam_tfrecord.rows.batch import DEFAULT_BATCH_ROWS, Batch, Origin
from beam_tfrecord.sources.base import Chunk, InputFile, Scan, Source, Unit, wanted_columns
from beam_tfrecord.sources.files import FileSource, as_paths
from beam_tfrecord.sources.sql import read as reading
from beam_tfrecord.sources.sql.database import (
    ConnectionLost,
    Engine,
    split_password,
    store_password,
)
from beam_tfrecord.sources.sql.jdbc_java import jars_to_send
from beam_tfrecord.sources.sql.plan import SqlPlan, make_plan

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
        reading.release_snapshots(self.job)

    def files(self) -> Iterator[InputFile]:
        engine = self.engine
        size = os.path.getsize(engine.path) if engine.path and os.path.exists(engine.path) else 0
        yield InputFile(self.url, engine.place, size)

    def scan(self, chunk: Chunk) -> Scan:
        engine = self.engine
        try:
            return Scan(chunk, self._plan(engine))
        except ConnectionLost as error:
            raise UsageError(f"cannot reach {engine.place}: {error}") from error

    def _plan(self, engine: Engine) -> SqlPlan:
        with contextlib.ExitStack() as until_planned:
            connection = until_planned.enter_context(engine.connect())
            plan = make_plan(connection, self, self.columns)
            count = len(plan.partitions)
            # A single reader of a file has one snapshot by itself, in any process.
            is_shared = count > 1 or engine.path is None
            snapshot = connection.export_snapshot() if is_shared else ""
            if snapshot:
                reading.hold_snapshot(snapshot, connection, job=self.job, partitions=count)
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
        columns = reading.columns_for(schema, plan)
        first_row = 0
        for rows in reading.read_partition(self.engine, plan, columns, batch_rows=batch_rows):
            origin = reading.origin_of(unit, plan, rows, first_row)
            yield from reading.batches_of(rows, origin, schema, plan, batch_rows)
            first_row += rows.data.num_rows
        if not first_row:
            empty = pa.RecordBatch.from_pylist([], schema=schema)
            is_numbered = self.ordered or plan.number is not None
            yield Batch(empty, Origin(unit.name, unit.index, 0) if is_numbered else None)
        reading.partition_done(plan.snapshot, unit.index)
