"""The public transforms that read tables of a data lake: `ReadFromDelta` and `ReadFromIceberg`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import ClassVar, Unpack

from beam_tfrecord.batch import DEFAULT_BATCH_ROWS
from beam_tfrecord.selection.select import SelectOptions
from beam_tfrecord.sources.lake.delta import Delta
from beam_tfrecord.sources.lake.iceberg import Iceberg
from beam_tfrecord.sources.lake.table import LakeTable
from beam_tfrecord.transforms.read_source import ReadFromSource


class _ReadFromLake(ReadFromSource):
    """Base class of the readers of tables of a data lake."""

    _kind: ClassVar[type[LakeTable]]

    def __init__(
        self,
        paths: str | os.PathLike[str],
        *,
        columns: Sequence[str] | None = None,
        version: int | None = None,
        as_of: str | None = None,
        properties: Mapping[str, str] | None = None,
        batch_rows: int = DEFAULT_BATCH_ROWS,
        **select: Unpack[SelectOptions],
    ) -> None:
        source = self._kind(
            paths, columns=columns, version=version, as_of=as_of, properties=properties
        )
        super().__init__(source, batch_rows=batch_rows, **select)


class ReadFromDelta(_ReadFromLake):
    """Read one version of a Delta Lake table as `Batch`es.

    Deletion vectors, mapped and added columns and partitions are honoured.

    Args:
        paths: Directory or URL of the table.
        columns: Names of the columns to read, in order; None means all.
        version: Number of the version; None means the last one.
        as_of: Time in ISO 8601, in UTC if it has no zone; read the last version at this time.
        properties: Options of `deltalake` for the storage, such as ``{"AWS_REGION": "eu-west-1"}``.
        batch_rows: Maximum number of rows per batch; does not affect the dataset.
        **select: Which rows to read: `filter`, `sample` and `sample_seed`; see `SelectOptions`.

    Raises:
        UsageError: There is no such table or version, or it has a feature that is not supported.
    """

    _kind = Delta


class ReadFromIceberg(_ReadFromLake):
    """Read one snapshot of an Apache Iceberg table as `Batch`es.

    Position deletes, renamed and added columns are honoured.

    Args:
        paths: The table: ``iceberg://catalog/database.table``, its metadata file, or its directory
            if that has a ``version-hint.text``.
        columns: Names of the columns to read, in order; None means all.
        version: Id of the snapshot; None means the current one.
        as_of: Time in ISO 8601, in UTC if it has no zone; read the last snapshot at this time.
        properties: Properties of the catalogue and its storage, such as
            ``{"type": "sql", "uri": "sqlite:///catalog.db"}``; by default those of pyiceberg's
            configuration.
        batch_rows: Maximum number of rows per batch; does not affect the dataset.
        **select: Which rows to read: `filter`, `sample` and `sample_seed`; see `SelectOptions`.

    Raises:
        UsageError: There is no such table or snapshot, or it has a feature that is not supported.
    """

    _kind = Iceberg
