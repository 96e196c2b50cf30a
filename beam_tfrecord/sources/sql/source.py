"""The SQL source: a table or a query of a database, read in partitions at one moment."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import os
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from beam_tfrecord.batch import DEFAULT_BATCH_ROWS, Batch, Origin
from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.arrow_types import type_from_json
from beam_tfrecord.options import flag_of
from beam_tfrecord.sources.base import Chunk, InputFile, Scan, Source, Unit, wanted_columns
from beam_tfrecord.sources.files import as_paths
from beam_tfrecord.sources.sql import snapshots
from beam_tfrecord.sources.sql.arguments import texts_of
from beam_tfrecord.sources.sql.batches import batch_of, columns_for, origin_of
from beam_tfrecord.sources.sql.engine import ConnectionLost, Engine, SqlOptions
from beam_tfrecord.sources.sql.engines import engine_of, url_from_anywhere
from beam_tfrecord.sources.sql.jdbc.jars import jars_to_send
from beam_tfrecord.sources.sql.plan import Question, SqlPlan, make_plan
from beam_tfrecord.sources.sql.read import read_partition
from beam_tfrecord.sources.sql.secrets import hold_password, take_password

_ARRAYS = ("refuse", "text", "list")


@dataclasses.dataclass(frozen=True)
class Sql(Source):
    """A table or a query of a database.

    The password belongs in an environment variable or a file of the machines that read. One
    inside the URL, or given as an argument, stays in this process: it serves runners in this
    process alone and is in no field of this object.

    Attributes:
        paths: The database's URL, or the path of a SQLite or DuckDB file.
        table: Table or view to read.
        query: SELECT to read instead.
        where: Condition in SQL that every row meets.
        columns: Names of the columns to read, in order; None means all.
        types: Types to read columns as, such as ``{"price": "text"}``; strict, never a cast that
            loses something.
        partition_column: Column to cut the rows by; None: the primary key.
        partitions: Number of parts that are read at the same time; None: by rows and bytes.
        ordered: Give the rows in the order of the key, and number them so.
        max_connections: Read over no more connections than these at a time, whatever the runner.
        row_count: Count the rows at the moment that is read, and compare.
        arrays: What becomes of array columns: ``refuse``, ``text`` or ``list``.
        session_init: Statements that every connection runs first.
        fetch_rows: Rows that a driver fetches at a time; None: the engine's choice.
        statement_timeout_s: Seconds after which the database gives a statement up.
        username: User; None: as in the URL.
        password_env: Environment variable that holds the password where the database is read.
        password_file: File that holds it there.
        driver: Class of a JDBC driver.
        jars: Where a JDBC driver is: paths, URLs or Maven coordinates.
        properties: Further properties of the connection.
        password: The password itself; taken out of this object at once.
    """

    kind: ClassVar[str] = "sql"
    infers_from_scans: ClassVar[bool] = True

    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
    _: dataclasses.KW_ONLY
    table: str | None = None
    query: str | None = None
    where: str | None = None
    columns: Sequence[str] | None = None
    types: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    partition_column: str | None = None
    partitions: int | None = None
    ordered: bool = False
    max_connections: int | None = None
    row_count: bool = True
    arrays: str = "refuse"
    session_init: Sequence[str] = ()
    fetch_rows: int | None = None
    statement_timeout_s: float | None = None
    username: str | None = None
    password_env: str | None = None
    password_file: str | None = None
    driver: str | None = None
    jars: Sequence[str] = ()
    properties: Mapping[str, str] = dataclasses.field(default_factory=dict)
    job: str = dataclasses.field(init=False, default="", compare=False, repr=False)
    password: dataclasses.InitVar[str | None] = None

    def __post_init__(self, password: str | None) -> None:
        paths = as_paths(self.paths)
        if len(paths) != 1:
            raise UsageError(f"{len(paths)} databases are given: read one at a time")
        url, in_url = take_password(paths[0])
        if password or in_url:
            hold_password(url, password or in_url or "")
        types = {name: type_from_json(of) for name, of in self.types.items()}
        for name, value in {
            "paths": (url,),
            "types": types,
            "columns": wanted_columns(self.columns),
            "session_init": texts_of(self.session_init),
            "jars": texts_of(self.jars),
            "properties": dict(self.properties),
            "job": uuid.uuid4().hex,
        }.items():
            object.__setattr__(self, name, value)
        self._check()

    def _check(self) -> None:
        if (self.table is None) == (self.query is None):
            both = "not both" if self.table is not None else "to say what to read"
            raise UsageError(f"pass --table or --query, {both}")
        for keyword in ("partitions", "max_connections", "fetch_rows"):
            number = getattr(self, keyword)
            if number is not None and number < 1:
                raise UsageError(f"{flag_of(keyword)} {number} is less than 1")
        if self.arrays not in _ARRAYS:
            raise UsageError(f"arrays {self.arrays!r} is none of {', '.join(_ARRAYS)}")
        engine_of(self.url)

    @property
    def url(self) -> str:
        """The database's URL, without a password."""
        return as_paths(self.paths)[0]

    @property
    def engine(self) -> Engine:
        """What reads the database."""
        options = SqlOptions(
            username=self.username,
            password_env=self.password_env,
            password_file=self.password_file,
            session_init=tuple(self.session_init),
            fetch_rows=self.fetch_rows,
            statement_timeout_s=self.statement_timeout_s,
            arrays=self.arrays,
            driver=self.driver,
            jars=tuple(self.jars),
            properties=tuple(sorted(self.properties.items())),
        )
        return engine_of(self.url, options)

    @property
    def is_stable(self) -> bool:
        """False: neither name nor size tells whether the rows are the same."""
        return False

    @property
    def facts(self) -> dict[str, Any]:
        """What was read, and what holds for all partitions together."""
        asked = {"table": self.table} if self.query is None else {"query": self.query}
        return {**asked, "snapshot": self.engine.guarantee}

    def in_order(self) -> Sql:
        """Return the same source, with rows in the order of the key."""
        return dataclasses.replace(self, ordered=True)

    def to_send(self) -> tuple[Source, tuple[str, ...]]:
        """Return this source with its driver's jars found here, and those jars."""
        sent, jars = copy.copy(self), jars_to_send(self.jars)
        object.__setattr__(sent, "jars", jars)
        object.__setattr__(sent, "paths", (url_from_anywhere(self.url, self.engine.path),))
        return sent, tuple(filter(os.path.isfile, jars))

    def numbers_rows(self, units: Iterable[Unit]) -> bool:
        """Tell whether a key of integers, or an order, numbers the rows."""
        return all(unit.detail.number is not None or unit.detail.is_ordered for unit in units)

    def prepare(self) -> None:
        """Load the driver meanwhile; what is wrong with it is told when it is used."""
        threading.Thread(target=_try, args=(self.engine.load,)).start()

    def release(self) -> None:
        """Close what this process holds open for this source's jobs."""
        snapshots.release(self.job)

    def files(self) -> Iterator[InputFile]:
        """Yield the database as one file, without connecting to it."""
        engine = self.engine
        size = os.path.getsize(engine.path) if engine.path and os.path.exists(engine.path) else 0
        yield InputFile(self.url, engine.place, size)

    def chunks(self, file: InputFile) -> Iterator[Chunk]:
        """Yield one chunk: the plan of the whole is made in one place."""
        yield Chunk(file, 0, 0, file.bytes)

    def scan(self, chunk: Chunk) -> Scan:
        """Connect, plan the partitions, and hold the moment they are of.

        Raises:
            UsageError: The database, the table or a column is not there.
            DataError: A column has no exact type.
        """
        engine = self.engine
        try:
            return Scan(chunk, self._plan(engine))
        except ConnectionLost as error:
            raise UsageError(f"cannot reach {engine.place}: {error}") from error

    def _plan(self, engine: Engine) -> SqlPlan:
        connection = engine.connect()
        is_held = False
        try:
            plan = make_plan(connection, self._question())
            count = len(plan.partitions)
            # One reader of a file sees one moment by itself, in whatever process it is.
            is_shared = count > 1 or engine.path is None
            snapshot = connection.export_snapshot() if is_shared else ""
            if snapshot:
                snapshots.hold(snapshot, connection, job=self.job, partitions=count)
                is_held = True
            return dataclasses.replace(plan, snapshot=snapshot)
        finally:
            if not is_held:
                connection.close()

    def _question(self) -> Question:
        return Question(
            table=self.table,
            query=self.query,
            where=self.where,
            columns=None if self.columns is None else tuple(self.columns),
            types=self.types,
            partition_column=self.partition_column,
            partitions=self.partitions,
            max_partitions=self.max_connections,
            ordered=self.ordered,
            counts=self.row_count,
        )

    def units(self, scans: Sequence[Scan]) -> list[Unit]:
        """Return one unit a partition."""
        (scan,) = scans
        plan: SqlPlan = scan.detail
        count = len(plan.partitions)
        return [
            Unit(
                name=plan.name if count == 1 else f"{plan.name}:{index}",
                file=scan.chunk.file,
                index=index,
                start=index,
                stop=index + 1,
                rows=partition.rows,
                input_bytes=(partition.rows or 0) * plan.row_bytes,
                encoded_bytes=max(1, partition.rows or 0) * plan.encoded_row_bytes,
                detail=plan,
            )
            for index, partition in enumerate(plan.partitions)
        ]

    def infer(self, of: Scan) -> Scan:
        """Return the scan itself: the catalogue states the types."""
        return of

    def merge(self, inferences: Iterable[Scan]) -> pa.Schema:
        """Return the schema of the one database."""
        (scan,) = inferences
        return scan.detail.schema

    def read(
        self, unit: Unit, schema: pa.Schema, *, batch_rows: int = DEFAULT_BATCH_ROWS
    ) -> Iterator[Batch]:
        """Yield the rows of a partition, as batches of exactly `schema`.

        Rows are numbered by a key of integers, or in their order where they are `ordered`; where
        there is neither, their place in the dataset follows from their bytes.

        Raises:
            DataError: A column is not there, the connection is lost, or rows are missing.
        """
        plan: SqlPlan = unit.detail
        columns = columns_for(schema, plan)
        first_row = 0
        found = read_partition(self.engine, plan, unit.index, columns, batch_rows=batch_rows)
        for rows in found:
            origin = origin_of(unit, plan, rows, first_row)
            yield batch_of(rows, origin, schema, plan)
            first_row += rows.data.num_rows
        if not first_row:
            empty = pa.RecordBatch.from_pylist([], schema=schema)
            is_numbered = self.ordered or plan.number is not None
            yield Batch(empty, Origin(unit.name, unit.index, 0) if is_numbered else None)
        snapshots.partition_done(plan.snapshot, unit.index)


def _try(load: Callable[[], None]) -> None:
    with contextlib.suppress(UsageError):
        load()
