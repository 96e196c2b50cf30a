"""Text of CSV files: opening and decoding them, the dialect, and the header.

Plain files are read by ranges of bytes; compressed files, and those in encodings such as UTF-16,
only from the beginning.
"""

from __future__ import annotations

import bz2
import codecs
import contextlib
import dataclasses
import functools
import lzma
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa

from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.native import values
from beam_tfrecord.native._csv import count_lines, first_row
from beam_tfrecord.native.values import Row
from beam_tfrecord.sources.base import InputFile
from beam_tfrecord.storage import is_remote, open_read

_PIECE_BYTES = 2**16
_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4", ".xz": "xz"}


class Text(Protocol):
    """An open CSV file that can be read, as bytes in an ASCII superset."""

    def read(self, size: int, /) -> bytes:
        """Return about `size` bytes; none only at the end."""
        ...


def compression_of(file: InputFile) -> str | None:
    """Return how `file` is compressed, by its suffix."""
    name = file.path.lower()
    return next((kind for suffix, kind in _COMPRESSIONS.items() if name.endswith(suffix)), None)


def is_stream(file: InputFile, encoding: str) -> bool:
    """Return whether `file` can only be read from its beginning."""
    return compression_of(file) is not None or not is_cuttable(encoding)


@contextlib.contextmanager
def open_text(file: InputFile, encoding: str, start: int, stop: int) -> Iterator[Text]:
    """Open `file` as bytes in an ASCII superset.

    A file that `is_stream` comes decompressed and, where its encoding is not cuttable, as UTF-8,
    and `start` counts the bytes of that; any other comes as the bytes `start` to `stop`.

    Raises:
        DataError: The file cannot be read, decompressed or decoded.
    """
    with contextlib.ExitStack() as stack:
        with _as_data_errors(file, encoding):
            streams = is_stream(file, encoding)
            raw = stack.enter_context(_opened(file))
            text: Text = raw
            if not streams:
                raw.seek(start)
                text = _Range(raw, stop - start)
            elif not is_cuttable(encoding):
                text = _Decoded(raw, encoding)
        checked = _Checked(text, file, encoding)
        while streams and start > 0 and (skipped := checked.read(min(start, 2**20))):
            start -= len(skipped)
        yield checked


@contextlib.contextmanager
def _as_data_errors(file: InputFile, encoding: str) -> Iterator[None]:
    """Raise what goes wrong in reading a file as a `DataError` that names it."""
    try:
        yield
    except UnicodeError as error:
        raise DataError(f"{file.name} is not {encoding}: {error}: pass --encoding") from error
    except (OSError, EOFError, zlib.error, lzma.LZMAError, pa.ArrowException) as error:
        raise DataError(
            f"cannot read {file.name}: {str(error).lower()}: check that the file is whole"
        ) from error


def _opened(file: InputFile) -> Any:
    kind = compression_of(file)
    if kind is not None and not file.bytes:
        # Arrow takes it for the end of a stream.
        raise EOFError(f"it has no bytes, which is not what {kind} makes of an empty file")
    if kind in (None, "bz2", "xz"):
        # Whoever asked for the stream closes it.
        raw = _remote(file) if is_remote(file.path) else open(file.path, "rb")  # noqa: SIM115
        return raw if kind is None else contextlib.closing(_Streams(raw, kind))
    return pa.input_stream(_remote(file) if is_remote(file.path) else file.path, compression=kind)


def _remote(file: InputFile) -> Any:
    return open_read(file.path, version=file.version)


class _Streams:
    """Decompressor of all streams of a .bz2 or .xz file.

    `bz2.open` and `lzma.open` end silently at any bytes after a stream that begin no other one, so
    one damaged byte would lose all that follows. Arrow fails at an empty stream of bzip2, unless it
    is the last. A stream of bzip2 is followed by streams only, one of xz (format 1.2, 2.2) also by
    multiples of four zeros.
    """

    def __init__(self, raw: Any, kind: str) -> None:
        self._raw = raw
        self._kind = kind
        self._left = b""
        self._decoder: bz2.BZ2Decompressor | lzma.LZMADecompressor | None = (
            bz2.BZ2Decompressor() if kind == "bz2" else lzma.LZMADecompressor()
        )

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes; none only at the end of the last stream."""
        while self._decoder is not None or self._begin_stream():
            assert self._decoder is not None
            piece = b""
            if self._decoder.needs_input:
                piece = self._ahead()
                self._left = b""
                if not piece:
                    raise EOFError("it ends inside a stream")
            data = self._decoder.decompress(piece, size)
            if self._decoder.eof:
                self._left, self._decoder = self._decoder.unused_data, None
            if data:
                return data
        return b""

    def _begin_stream(self) -> bool:
        """Prepare for the next stream; return False if there is none."""
        if self._kind == "xz":
            self._pass_over_zeros()
            self._decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ) if self._left else None
        else:
            self._decoder = bz2.BZ2Decompressor() if self._ahead() else None
        return self._decoder is not None

    def _pass_over_zeros(self) -> None:
        zeros = 0
        while self._ahead():
            rest = self._left.lstrip(b"\0")
            zeros += len(self._left) - len(rest)
            self._left = rest
            if rest:
                break
        if zeros % 4:
            raise EOFError(f"{zeros} zeros follow a stream, where there are only multiples of four")

    def _ahead(self) -> bytes:
        """Return what is next in the file; nothing only at its end."""
        self._left = self._left or self._raw.read(_PIECE_BYTES)
        return self._left

    def close(self) -> None:
        """Close the file."""
        self._raw.close()


class _Range:
    """A range of the bytes of a file, from its current position."""

    def __init__(self, file: Any, left: int) -> None:
        self._file, self._left = file, left

    def read(self, size: int, /) -> bytes:
        data: bytes = self._file.read(min(size, self._left))
        if not data and self._left > 0:
            raise EOFError("the file has become shorter since it was listed")
        self._left -= len(data)
        return data


class _Checked:
    """Text of which every read raises a `DataError` if it fails."""

    def __init__(self, text: Text, file: InputFile, encoding: str) -> None:
        self._text, self._file, self._encoding = text, file, encoding

    def read(self, size: int, /) -> bytes:
        with _as_data_errors(self._file, self._encoding):
            return bytes(self._text.read(size))


class _Decoded:
    """Text of a file in any encoding, as UTF-8."""

    def __init__(self, raw: Any, encoding: str) -> None:
        self._raw = raw
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._pending = b""

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes, so that a range can be skipped exactly."""
        while not self._pending:
            piece = bytes(self._raw.read(size))
            self._pending = self._decoder.decode(piece, final=not piece).encode()
            if not piece:
                break
        data, self._pending = self._pending[:size], self._pending[size:]
        return data


# Null where a number, a truth value, a date or a time is expected; text in columns of text.
NULL_WORDS = (
    *("NA", "N/A", "n/a", "#N/A", "#NA", "<NA>"),
    *("NULL", "Null", "null", "None", "none", "NaT"),
)


@dataclasses.dataclass(frozen=True)
class Dialect:
    r"""The characters that give CSV text its structure; each is one ASCII character.

    Attributes:
        delimiter: Between two fields.
        quote: Around a field, if it is the first character of the field; None for no quotes.
        escape: Makes the character after it ordinary text, in quotes and outside.
        double_quote: Two quotes inside quotes mean one.
    """

    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None
    double_quote: bool = True

    def __post_init__(self) -> None:
        characters = {"delimiter": self.delimiter, "quote": self.quote, "escape": self.escape}
        used: dict[str, str] = {}
        for name, character in characters.items():
            if character is None:
                continue
            if len(character) != 1 or not 0 < ord(character) < 128 or character in "\r\n":
                raise UsageError(
                    f"{name} {character!r} is not one ASCII character: pass a single one"
                )
            if character in used:
                raise UsageError(
                    f"{name} and {used[character]} are both {character!r}: pass two different ones"
                )
            used[character] = name

    @property
    def settings(self) -> values.Dialect:
        """The dialect as the kernel takes it."""
        quote = None if self.quote is None else ord(self.quote)
        escape = None if self.escape is None else ord(self.escape)
        return ord(self.delimiter), quote, escape, self.double_quote


def is_utf8(encoding: str) -> bool:
    """Return whether text in `encoding` is UTF-8 already."""
    return codec_name(encoding) in ("utf-8", "utf-8-sig")


def codec_name(encoding: str) -> str:
    """Return Python's own name of `encoding`.

    Raises:
        UsageError: Python has no such text encoding.
    """
    try:
        name = codecs.lookup(encoding).name
        # Python has codecs of other things too, and one that refuses all text.
        if "A".encode(name).decode(name, "replace") != "A":
            raise LookupError(f"{encoding!r} is not for text")
        return name
    except (LookupError, ValueError) as error:
        raise UsageError(
            f"encoding {encoding!r} is not known: pass a name such as utf-8, latin-1 or utf-16"
        ) from error


@functools.lru_cache
def is_cuttable(encoding: str) -> bool:
    """Return whether a byte below 128 is always that ASCII character, so that bytes can be cut.

    That is true of UTF-8 and of encodings of one byte a character. In other encodings, the second
    byte of a character may look like a quote or a delimiter.
    """
    if is_utf8(encoding):
        return True
    alone = (bytes([byte]).decode(encoding, "replace") for byte in range(128))
    if any(character != chr(byte) for byte, character in enumerate(alone)):
        return False
    pairs = (bytes([byte, ord("A")]).decode(encoding, "replace") for byte in range(128, 256))
    return all(len(pair) == 2 and pair[1] == "A" for pair in pairs)


def to_utf8(text: bytes, encoding: str) -> bytes:
    """Return `text`, in a cuttable encoding, as UTF-8.

    Bytes that are invalid in the encoding become invalid UTF-8, which the kernel reports by row.
    """
    if is_utf8(encoding):
        return text
    return text.decode(encoding, "surrogateescape").encode("utf-8", "surrogatepass")


MAX_HEADER_BYTES = 2**24
_WIDE_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclasses.dataclass(frozen=True)
class Header:
    """The names of a file's columns, and the position of its first row.

    Attributes:
        names: Names of the columns; empty if the file has no row at all.
        stop: Where the rows begin, in bytes from the start of the text.
        lines: Line ends before that.
        row_ends: Ends of rows and of blank lines before that.
    """

    names: tuple[str, ...]
    stop: int
    lines: int = 0
    row_ends: int = 0


def read_header(
    text: Text,
    file: InputFile,
    dialect: Dialect,
    *,
    encoding: str,
    has_header: bool,
    names: Sequence[str] | None,
) -> Header:
    """Read the first row of `text`, which stands at the beginning of `file`.

    Args:
        text: The beginning of the file.
        file: The file, for messages.
        dialect: How it is written.
        encoding: A cuttable encoding: that of `text`.
        has_header: The first row holds names; blank lines before it are skipped.
        names: Names to use instead, or for a file without header; else those are f0, f1 …

    Raises:
        DataError: The first row is damaged, or a name is empty or there twice.
    """
    beginning, row = _first_row(text, file, dialect)
    mark = _mark_bytes(beginning)
    if row is None:
        return Header((), len(beginning))
    if b"\0" in beginning[: row.stop + mark]:
        raise DataError(
            f"{file.name}:1 holds NUL bytes: it is no text; for UTF-16 pass --encoding utf-16"
        )
    if names is not None and len(names) != len(row.values):
        raise DataError(
            f"{file.name} has {len(row.values)} columns but {len(names)} names are given: "
            "pass one name for each column"
        )
    if not has_header:
        return Header(tuple(names or (f"f{i}" for i in range(len(row.values)))), mark)
    lines = count_lines(beginning, 0, mark + row.stop)
    row_ends = count_lines(beginning, 0, mark + row.start) + 1
    found = names if names is not None else _names_of(row, file, encoding)
    return Header(tuple(found), mark + row.stop, lines, row_ends)


def _mark_bytes(beginning: bytes) -> int:
    return len(codecs.BOM_UTF8) if beginning.startswith(codecs.BOM_UTF8) else 0


def _first_row(text: Text, file: InputFile, dialect: Dialect) -> tuple[bytes, Row | None]:
    beginning, wanted = b"", 2**16
    while True:
        piece = text.read(wanted)
        beginning += piece
        if beginning.startswith(_WIDE_MARKS):
            raise DataError(f"{file.name} looks like UTF-16: pass --encoding utf-16")
        body = beginning[_mark_bytes(beginning) :]
        try:
            row = first_row(body, dialect.settings, final=not piece)
        except ValueError as error:
            raise DataError(
                f"{file.name}:1 has a quote that never closes: pass --quote, or fix it"
            ) from error
        if row is not None or not piece:
            return beginning, row
        if len(beginning) > MAX_HEADER_BYTES:
            raise DataError(
                f"the first row of {file.name} is longer than {MAX_HEADER_BYTES} bytes: "
                "check that it is CSV, and --delimiter and --quote"
            )
        wanted = len(beginning)


def _names_of(row: Row, file: InputFile, encoding: str) -> list[str]:
    try:
        names = [to_utf8(value, encoding).decode() for value in row.values]
    except UnicodeDecodeError as error:
        raise DataError(f"the header of {file.name} is not {encoding}: pass --encoding") from error
    for place, name in enumerate(names, start=1):
        if not name:
            raise DataError(
                f"column {place} has no name in the header of {file.name}: pass --names"
            )
        if names.index(name) != place - 1:
            raise DataError(
                f"column {name!r} is there twice in the header of {file.name}: pass --names"
            )
    return names
