"""Reads input from any other filesystem of Beam, such as ``hdfs://`` and ``azfs://``.

Nothing is written there, because Beam's filesystems have no conditional writes, and do not promise
that a file is visible only when it is complete.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

from beam_tfrecord.base.extras import require
from beam_tfrecord.errors import StorageError, UsageError
from beam_tfrecord.storage.paths import Entry

# Beam has these filesystems, but does not install the packages that they need.
_EXTRAS = {"azfs": "azure", "hdfs": "hadoop"}


class BeamFilesystem:
    """A read-only filesystem for all URLs that Beam's `FileSystems` can open."""

    def status(self, path: str) -> Entry | None:
        """Return size and version of a file, or None if there is no such file."""
        # Beam matches patterns, so it may find other names.
        return next((entry for entry in _matching(path) if entry.path == path), None)

    def is_directory(self, path: str) -> bool:
        """Return whether a file lies below that name."""
        return next(self.files(path), None) is not None

    def names(self, directory: str) -> list[str]:
        """Return the sorted names in a directory."""
        below = (entry.path[len(directory) + 1 :] for entry in self.files(directory))
        return sorted({name.partition("/")[0] for name in below})

    def files(self, directory: str) -> Iterator[Entry]:
        """Yield all files below a directory."""
        return iter(_matching(f"{directory}/**"))

    def read_into(self, path: str, start: int, out: memoryview, version: str) -> None:
        """Fill `out` with the bytes of a file from `start`."""
        with self.open(path) as file:
            file.seek(start)
            filled = 0
            while filled < len(out):
                piece = file.read(len(out) - filled)
                if not piece:
                    raise EOFError(f"{path!r} ends {len(out) - filled} bytes early")
                out[filled : filled + len(piece)] = piece
                filled += len(piece)

    def open(self, path: str, buffer_bytes: int | None = None, version: str = "") -> BinaryIO:
        """Open a file for reading, with Beam's own buffer."""
        beam = _beam(path)
        with _request(path):
            # Beam must not decompress the file: the caller does.
            plain = beam.filesystem.CompressionTypes.UNCOMPRESSED
            return cast(BinaryIO, beam.filesystems.FileSystems.open(path, compression_type=plain))


def _matching(pattern: str) -> list[Entry]:
    """Return the files that match a pattern, in order."""
    beam = _beam(pattern)
    with _request(pattern):
        (matched,) = beam.filesystems.FileSystems.match([pattern])
    found = [
        Entry(one.path, one.size_in_bytes, str(one.last_updated_in_seconds or ""))
        for one in matched.metadata_list
    ]
    return sorted(found, key=lambda entry: entry.path)


def _beam(path: str) -> Any:
    """Return Beam's modules for files."""
    scheme = path.partition("://")[0]
    if scheme in _EXTRAS:
        require(_EXTRAS[scheme], f"{scheme}://")
    import apache_beam.io.filesystem
    import apache_beam.io.filesystems

    try:
        apache_beam.io.filesystems.FileSystems.get_filesystem(path)
    except (ValueError, ImportError) as error:
        raise UsageError(
            f"cannot read {path!r}: {scheme}:// is not supported: download the input first, and "
            "give its path"
        ) from error
    return apache_beam.io


@contextlib.contextmanager
def _request(path: str) -> Iterator[None]:
    """Raise Beam's errors as errors of this package, in one line with the URL."""
    try:
        yield
    except FileNotFoundError:
        raise
    except Exception as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        raise StorageError(f"cannot read {path!r} ({first}): try again later") from error
