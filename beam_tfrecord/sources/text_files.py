"""`TextFiles`, the base of the sources of text files, CSV and JSON.

It opens and decompresses files, divides them into chunks, and makes batches of their rows. Plain
files are read by byte ranges. Compressed files, and files in other encodings than UTF-8, can only
be read from the beginning.
"""

from __future__ import annotations

import bz2
import codecs
import contextlib
import functools
import lzma
import zlib
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.features.arrow_arrays import with_nulls_at
from beam_tfrecord.features.arrow_types import is_list
from beam_tfrecord.features.cast_to_schema import NoConversion, convert
from beam_tfrecord.features.type_join import cast, convert_each
from beam_tfrecord.rows.batch import Batch, Origin, Reject, without_rows
from beam_tfrecord.sources.base import UNIT_BYTES, Chunk, InputFile, Unit
from beam_tfrecord.sources.damaged_files import raise_infrastructure
from beam_tfrecord.sources.files import FileSource
from beam_tfrecord.sources.merge_schemas import with_partitions
from beam_tfrecord.storage import is_remote, open_read, plain_path

_MIN_CHUNK_BYTES = 16
# Bytes to read at a time, few enough for the processor's cache.
BLOCK_BYTES = 2**20
# Longest row.
MAX_ROW_BYTES = 2**28
# The usual compression ratio of text, for estimates only.
_COMPRESSION_RATIO = 4
_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4", ".xz": "xz"}


def compression_of(file: InputFile) -> str | None:
    """Return the compression of `file`, by its suffix; None if it is not compressed."""
    name = plain_path(file.path).lower()
    return next((kind for suffix, kind in _COMPRESSIONS.items() if name.endswith(suffix)), None)


def is_stream(file: InputFile, encoding: str) -> bool:
    """Return whether `file` can only be read from its beginning."""
    return compression_of(file) is not None or not is_utf8(encoding)


class Text:
    """The text of an open file, in UTF-8."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._left = pieces, b""

    def read(self, size: int) -> bytes:
        pieces = [self._left] if self._left else []
        length = len(self._left)
        while length < size and (piece := next(self._pieces, None)) is not None:
            pieces.append(piece)
            length += len(piece)
        data = b"".join(pieces)
        self._left = data[size:]
        return data[:size]


@contextlib.contextmanager
def open_text(file: InputFile, encoding: str, start: int, stop: int) -> Iterator[Text]:
    """Open the text of `file` in UTF-8.

    If `is_stream` is True for the file, it is decompressed and converted to UTF-8, and `start`
    counts the bytes of the result. For any other file, the text is the bytes `start` to `stop`.
    """
    with contextlib.closing(_pieces(file, encoding, start, stop)) as pieces:
        text = Text(pieces)
        if is_stream(file, encoding):
            text.read(start)
        yield text


def _pieces(file: InputFile, encoding: str, start: int, stop: int) -> Generator[bytes, None, None]:
    """Yield the bytes of the text of a file."""
    kind = compression_of(file)
    with _as_data_errors(file, encoding), _opened(file, kind) as raw:
        pieces: Iterable[bytes] = iter(functools.partial(raw.read, BLOCK_BYTES), b"")
        if not is_stream(file, encoding):
            pieces = _range(raw, start, stop)
        elif kind in ("bz2", "xz"):
            pieces = _decompressed(raw, kind)
        if not is_utf8(encoding):
            # Invalid bytes become invalid UTF-8, for which the kernel rejects rows.
            texts = codecs.iterdecode(pieces, encoding, "surrogateescape")
            pieces = (text.encode("utf-8", "surrogatepass") for text in texts)
        yield from pieces


@contextlib.contextmanager
def _as_data_errors(file: InputFile, encoding: str) -> Iterator[None]:
    """Convert errors of a damaged file to a `DataError` that names it."""
    try:
        yield
    except UnicodeError as error:
        cure = f" {encoding}-le or {encoding}-be" if "BOM" in str(error) else ""
        raise DataError(
            f"{file.name} is not valid {encoding} ({error}): pass --encoding{cure}"
        ) from error
    except (OSError, EOFError, zlib.error, lzma.LZMAError, pa.ArrowException) as error:
        raise_infrastructure(error)
        raise DataError(
            f"cannot read {file.name} ({error}): check that the file is complete"
        ) from error


def _opened(file: InputFile, kind: str | None) -> Any:
    if kind is not None and not file.bytes:
        # Arrow reads an empty file as a complete stream without bytes.
        raise EOFError(f"it has no bytes, so it is not valid {kind}")
    with_arrow = kind not in (None, "bz2", "xz")
    if is_remote(file.path):
        raw: Any = open_read(file.path, version=file.version)
    else:
        raw = file.path if with_arrow else open(file.path, "rb")  # noqa: SIM115
    return pa.input_stream(raw, compression=kind) if with_arrow else raw


def _range(raw: Any, start: int, stop: int) -> Iterator[bytes]:
    raw.seek(start)
    while start < stop:
        piece = bytes(raw.read(min(BLOCK_BYTES, stop - start)))
        if not piece:
            raise EOFError("the file has become shorter since it was listed")
        start += len(piece)
        yield piece


def _decompressed(raw: Any, kind: str) -> Iterator[bytes]:
    """Yield the text of all streams of a .bz2 or .xz file.

    `bz2.open` and `lzma.open` stop silently at bytes that do not begin another stream, so a single
    damaged byte would lose the rest of the file. Arrow fails at an empty stream of bzip2 unless it
    is the last.
    """
    data, form = b"", lzma.FORMAT_AUTO
    while True:
        decoder = bz2.BZ2Decompressor() if kind == "bz2" else lzma.LZMADecompressor(form)
        while not decoder.eof:
            if decoder.needs_input and not (data := data or raw.read(BLOCK_BYTES)):
                raise EOFError("it ends inside a stream")
            yield decoder.decompress(data, BLOCK_BYTES)
            data = b""
        data, form = decoder.unused_data or raw.read(BLOCK_BYTES), lzma.FORMAT_XZ
        if not data:
            return


def codec_name(encoding: str) -> str:
    """Return Python's own name of `encoding`."""
    try:
        name = codecs.lookup(encoding).name
        # Python also has codecs that are not for text, and one that refuses all text.
        if "A".encode(name).decode(name, "replace") != "A":
            raise LookupError(f"{encoding!r} is not for text")
        return name
    except (LookupError, ValueError) as error:
        raise UsageError(
            f"encoding {encoding!r} is not known: pass a name such as utf-8, latin-1 or utf-16"
        ) from error


def is_utf8(encoding: str) -> bool:
    """Return whether an encoding is UTF-8, with or without a byte order mark."""
    return codec_name(encoding) in ("utf-8", "utf-8-sig")


class TextFiles(FileSource):
    """Base of the sources of text files, which have the option `chunk_bytes`."""

    quick_scans: ClassVar[int] = 16
    is_shared: ClassVar[bool] = True
    chunk_bytes: int
    encoding: str = "utf-8"

    def chunks(self, file: InputFile) -> Iterator[Chunk]:
        step = max(_MIN_CHUNK_BYTES, self.chunk_bytes) * (self.unit_bytes // UNIT_BYTES)
        if is_stream(file, self.encoding):
            step = max(file.bytes, 1)
        for index, start in enumerate(range(0, max(file.bytes, 1), step)):
            yield Chunk(file, index, start, min(start + step, file.bytes))


def text_bytes_of(file: InputFile) -> int:
    """Estimate the size of the text of a file."""
    return file.bytes * (_COMPRESSION_RATIO if compression_of(file) else 1)


def batch_of(
    unit: Unit,
    schema: pa.Schema,
    columns: Mapping[str, pa.Array],
    first_row: int,
    rows: int,
    *,
    address: tuple[str, int] | None,
    numbers: Mapping[str, pa.Array],
    rejects: Mapping[int, Reject],
) -> Batch:
    """Return `rows` rows of a unit without the rejected ones, with the columns of its path.

    `columns` are those inside the file, and `numbers` more exact values of some of them. The
    indices of `rejects` count from the first of these rows.
    """
    # A column without name keeps the number of rows if there is no other column.
    names = [*columns, ""]
    data = pa.RecordBatch.from_arrays([*columns.values(), pa.nulls(rows)], names)
    data = with_partitions(data.select(range(len(columns))), unit.file, schema)
    floats = {field.name for field in schema if pa.types.is_floating(field.type)}
    paths = {name: value for name, value in unit.file.partitions if name in floats and value}
    exact = {**numbers, **{name: pa.repeat(value, rows) for name, value in paths.items()}}
    origin = Origin(unit.name, unit.index, first_row, address=address)
    batch = Batch(data, origin, numbers=pa.RecordBatch.from_pydict(exact) if exact else None)
    return without_rows(batch, rejects)


def converted(values: pa.Array, arrow: pa.DataType) -> tuple[pa.Array, list[int]]:
    """Return values as a type, and the rows that do not fit, which are null.

    Raises:
        NoConversion: No value fits.
    """
    if values.type == arrow:
        return values, []
    if pa.types.is_dictionary(arrow):
        words, misfits = converted(values, arrow.value_type)
        try:
            return words.dictionary_encode().cast(arrow), misfits
        except pa.ArrowInvalid as error:
            raise NoConversion from error
    # Text keeps all digits, for another rounding to float32.
    found = convert(values, arrow, "bytes" if pa.types.is_float64(arrow) else "auto")
    try:
        array, rows = convert_each(with_nulls_at(found.array, found.bad_rows), arrow, _cast)
    except pa.ArrowNotImplementedError as error:
        raise NoConversion from error
    bad_rows = [] if found.bad_rows is None else np.flatnonzero(found.bad_rows).tolist()
    return array, sorted({*bad_rows, *rows.tolist()})


def _cast(values: pa.Array, arrow: pa.DataType) -> pa.Array:
    made = cast(values, arrow)
    if _infinities(made) > _infinities(values):
        raise pa.ArrowInvalid("a number is too large for float32")
    return made


def _infinities(array: pa.Array) -> int:
    """Return the number of infinite numbers in an array and all arrays inside it."""
    if pa.types.is_struct(array.type):
        return sum(map(_infinities, array.flatten()))
    if is_list(array.type):
        return _infinities(array.flatten())
    is_number = pa.types.is_floating(array.type)
    return int(pc.sum(pc.is_inf(array)).as_py() or 0) if is_number else 0
