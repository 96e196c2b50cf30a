"""Bytes of a CSV file: ranges of plain files, or whole files decompressed and decoded."""

from __future__ import annotations

import bz2
import codecs
import contextlib
import lzma
import zlib
from collections.abc import Iterator
from typing import Any, Protocol

import pyarrow as pa

from beam_tfrecord.errors import DataError
from beam_tfrecord.sources.base import InputFile
from beam_tfrecord.sources.csv.dialect import is_cuttable
from beam_tfrecord.storage import is_remote, open_read

_PIECE_BYTES = 2**16
_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4", ".xz": "xz"}


class Text(Protocol):
    """What a CSV file is read through."""

    def read(self, size: int, /) -> bytes:
        """Return about `size` bytes; none only at the end."""
        ...


def compression_of(file: InputFile) -> str | None:
    """Return how `file` is compressed, by its suffix."""
    name = file.path.lower()
    return next((kind for suffix, kind in _COMPRESSIONS.items() if name.endswith(suffix)), None)


def is_stream(file: InputFile, encoding: str) -> bool:
    """Tell whether `file` can be read from its beginning only."""
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
        with _told(file, encoding):
            streams = is_stream(file, encoding)
            raw = stack.enter_context(_opened(file))
            text: Text = raw
            if not streams:
                raw.seek(start)
                text = _Range(raw, stop - start)
            elif not is_cuttable(encoding):
                text = _Decoded(raw, encoding)
        guarded = _Guarded(text, file, encoding)
        if streams:
            skip_bytes(guarded, start)
        yield guarded


def skip_bytes(text: Text, count: int) -> None:
    """Read `count` bytes and forget them."""
    while count > 0:
        taken = text.read(min(count, 2**20))
        if not taken:
            return
        count -= len(taken)


@contextlib.contextmanager
def _told(file: InputFile, encoding: str) -> Iterator[None]:
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
    """The streams of a .bz2 or .xz file, one behind the other.

    `bz2.open` and `lzma.open` take whatever follows a stream and is none for the end of the file,
    and so lose all behind one damaged byte; Arrow fails at a stream of bzip2 that holds nothing,
    unless it is the last. Only further streams follow one of bzip2; in the format of xz (1.2, 2.2)
    multiples of four zeros may, too.
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
        """Tell whether another stream follows."""
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
    def __init__(self, file: Any, left: int) -> None:
        self._file, self._left = file, left

    def read(self, size: int, /) -> bytes:
        taken: bytes = self._file.read(min(size, self._left))
        if not taken and self._left > 0:
            raise EOFError("the file has become shorter since it was listed")
        self._left -= len(taken)
        return taken


class _Guarded:
    def __init__(self, text: Text, file: InputFile, encoding: str) -> None:
        self._text, self._file, self._encoding = text, file, encoding

    def read(self, size: int, /) -> bytes:
        with _told(self._file, self._encoding):
            return bytes(self._text.read(size))


class _Decoded:
    def __init__(self, raw: Any, encoding: str) -> None:
        self._raw = raw
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._kept = b""

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes, so that a range can be skipped exactly."""
        while not self._kept:
            piece = bytes(self._raw.read(size))
            self._kept = self._decoder.decode(piece, final=not piece).encode()
            if not piece:
                break
        taken, self._kept = self._kept[:size], self._kept[size:]
        return taken
