"""Opens input files, checks what libraries decode of them, and explains damage to the user."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator

import pyarrow as pa

from beam_tfrecord.errors import BeamTFRecordError, DataError
from beam_tfrecord.features.arrow_types import with_bytes
from beam_tfrecord.sources.base import InputFile
from beam_tfrecord.sources.files import COMPRESSION_SUFFIXES
from beam_tfrecord.storage import is_remote, open_read

# The largest part of a file that is read at once.
MOST_BYTES = 2**31
_BUFFER_BYTES = 2**20
_ADVICE = "write the file again, or leave it out"
_FORMATS = {
    b"PAR1": "a Parquet file",
    b"Obj\x01": "an Avro file",
    b"ORC": "an ORC file",
    b"ARROW1": "an Arrow file",
    b"FEA1": "a Feather V1 file, which Feather V2 has replaced",
    b"PK\x03\x04": "a zip archive, an Excel workbook (.xlsx) or NumPy arrays",
    b"\xd0\xcf\x11\xe0": "an Excel workbook that is old or has a password",
    b"\x1f\x8b\x08": "a gzip file",
    b"\x28\xb5\x2f\xfd": "a zstd file",
    b"\xfd7zXZ": "an xz file",
    b"BZh": "a bzip2 file",
    b"\x93NUMPY": "a NumPy array",
    b"SQLite format 3": "a SQLite database",
    b"\x89HDF": "an HDF5 file",
    b"%PDF": "a PDF file",
}
_LONGEST_MAGIC = max(map(len, _FORMATS))


class PartOfFile(io.RawIOBase):
    """Some bytes, and then a range of an open file, as one sequential file."""

    def __init__(self, head: bytes, raw: pa.NativeFile, start: int, stop: int) -> None:
        self._head = io.BytesIO(head)
        self._rest = pa.BufferedInputStream(raw.get_stream(start, stop - start), _BUFFER_BYTES)
        self._position, self._size = 0, len(head) + stop - start

    def read(self, size: int = -1) -> bytes:
        # Damage may state any size, for which Python would ask the system.
        left = self._size - self._position
        size = left if size < 0 else min(size, left)
        head = self._head.read(size)
        data = head + bytes(self._rest.read(size - len(head)))
        self._position += len(data)
        return data

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position


def sliced(batch: pa.RecordBatch, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a record batch in batches of at most `batch_rows`, at least one."""
    for start in range(0, max(1, batch.num_rows), batch_rows):
        yield batch.slice(start, batch_rows)


def open_input(file: InputFile) -> pa.NativeFile:
    """Open a local or remote file without a buffer.

    Raises:
        OSError: The system cannot open the file.
    """
    if is_remote(file.path):
        return pa.PythonFile(open_read(file.path, buffer_bytes=0, version=file.version), mode="r")
    return pa.OSFile(file.path)


def changed(file: InputFile) -> DataError:
    """Return the error for a file whose rows do not match what planning has read."""
    return DataError(
        f"{file.name} is damaged, or changed while it was read: run again, or write it again"
    )


def incomplete(file: InputFile, kind: str, error: Exception, advice: str = "") -> DataError:
    """Return the error for a file that is not a valid file of a kind, such as ``parquet``."""
    raise_infrastructure(error)
    reason = reason_of(error)
    with contextlib.suppress(OSError, BeamTFRecordError), open_input(file) as raw:
        found = format_of(raw.read(_LONGEST_MAGIC))
        if found and kind.lower() not in found.lower():
            reason = f"it begins as {found}"
            is_named_so = file.name.lower().endswith(COMPRESSION_SUFFIXES)
            cure = "decompress it" if is_named_so else "give it the suffix of what it is"
            advice = advice or f"{cure}, or leave it out"
    return DataError(f"{file.name} is not a valid {kind} file ({reason}): {advice or _ADVICE}")


def format_of(head: bytes) -> str:
    """Return which format a file has by its first bytes, such as ``a gzip file``; empty if none."""
    return next((name for magic, name in _FORMATS.items() if head.startswith(magic)), "")


def unreadable(file: InputFile, row: int, error: Exception) -> DataError:
    """Return the error for a file that cannot be read from a row on."""
    raise_infrastructure(error)
    return DataError(f"cannot read {file.name} from row {row} on ({reason_of(error)}): {_ADVICE}")


def raise_infrastructure(error: Exception) -> None:
    """Raise `error` itself if it comes from the system, because then a retry may succeed."""
    # Damage may state any size, for which Arrow asks the system.
    if isinstance(error, pa.ArrowMemoryError):
        return
    if isinstance(error, MemoryError) or getattr(error, "errno", None) is not None:
        raise error


def reason_of(error: Exception) -> str:
    """Return the first line of an error, for messages."""
    return (str(error).strip().splitlines() or ["no reason given"])[0].rstrip(". ")[:200]


def check_size(nbytes: int, what: str, file: InputFile, most: int | None = None) -> None:
    """Check that a part of a file that is read at once, such as ``stripe 3``, fits into memory."""
    most = MOST_BYTES if most is None else most
    if nbytes > most:
        raise DataError(
            f"{what} of {file.name} has {nbytes:,} bytes, which are read at once: write the file "
            f"again in parts of at most {most:,} bytes, or read fewer columns"
        )


def check_values(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Check that offsets and counts of a record batch make sense, which damage may have changed.

    Text that is not UTF-8 is left to the writer, which rejects its rows.
    """
    batch.validate()
    for column in batch.columns:
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            if "UTF8" not in str(error):
                raise
            column.view(with_bytes(column.type)).validate(full=True)
    return batch
