"""Reads ORC files, split by stripes; column types come from the footers of the files."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from beam_tfrecord.errors import DataError
from beam_tfrecord.sources.base import InputFile
from beam_tfrecord.sources.damaged_files import check_values
from beam_tfrecord.sources.typed_files import Batches, OpenTable, Piece, TypedFiles, counted_column

if TYPE_CHECKING:
    from pyarrow.orc import ORCFile

# Values are assumed to become so many times larger when they are decoded.
_EXPANSION = 3
# Earlier releases read timestamps that nanoseconds cannot represent as other timestamps.
_EXACT_PYARROW = 25


@dataclasses.dataclass(frozen=True)
class Orc(TypedFiles):
    """ORC files; a piece is a stripe."""

    kind: ClassVar[str] = "orc"
    title: ClassVar[str] = "ORC"
    suffixes: ClassVar[tuple[str, ...]] = (".orc",)
    faults = (OSError, pa.ArrowException, UnicodeDecodeError, LookupError, TypeError, ValueError)

    def open(self, raw: pa.NativeFile, file: InputFile) -> OpenTable:
        from pyarrow.orc import ORCFile

        orc = ORCFile(raw)
        # Evaluated only to raise for unsupported types and for names that are not UTF-8.
        str(orc.schema), orc.schema.names
        self._check_timestamps(orc.schema, file)
        return OpenTable(orc.schema, _stripes(orc), functools.partial(_read, orc))

    def _check_timestamps(self, schema: pa.Schema, file: InputFile) -> None:
        """Check that pyarrow refuses timestamps that it cannot represent."""
        named = [f.name for f in schema if self.reads(f.name) and "timestamp[" in str(f.type)]
        if named and int(pa.__version__.partition(".")[0]) < _EXACT_PYARROW:
            raise DataError(
                f"column {named[0]!r} of {file.name} holds timestamps, which pyarrow "
                f"{pa.__version__} may read as others: install pyarrow {_EXACT_PYARROW}, or leave "
                "the column out with --columns"
            )


def _stripes(orc: ORCFile) -> Iterator[Piece]:
    # pyarrow does not tell the rows of a stripe, so a column is read: of numbers, if there is one.
    counted, found = counted_column(orc.schema), 0
    for stripe in range(orc.nstripes):
        rows = orc.read_stripe(stripe, columns=counted).num_rows
        nbytes = orc.content_length // orc.nstripes
        found += rows
        yield Piece(stripe, stripe + 1, rows, nbytes, nbytes * _EXPANSION)
    # Damage may have removed stripes from the footer.
    if found != orc.nrows:
        raise ValueError(f"its footer counts {orc.nrows:,} rows but its stripes hold {found:,}")


def _read(orc: ORCFile, start: int, stop: int, fields: pa.Schema, batch_rows: int) -> Batches:
    for stripe in range(start, stop):
        yield check_values(orc.read_stripe(stripe, columns=fields.names))
