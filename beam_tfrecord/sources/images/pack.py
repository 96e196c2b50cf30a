"""Packs: many small files of a listing as one input file, so that nothing counts millions."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from beam_tfrecord.errors import DataError, InputChanged
from beam_tfrecord.sources.base import InputFile, version_and_state

PACK_BYTES = 16 * 2**20
PACK_FILES = 4096

# Names are the bulk of a pack; the fastest level already takes away what they repeat.
_LEVEL = 1
_MAX_PATH_BYTES = 2**16


class Found(NamedTuple):
    """A file of a listing.

    Attributes:
        name: Posix path relative to the root of the listing, in the bytes of the filesystem.
        size: In bytes.
        version: Modification time in ns, or an etag.
        state: Of a local file, as `InputFile` has it.
    """

    name: bytes
    size: int
    version: int | str
    state: str = ""


@dataclasses.dataclass(frozen=True)
class Skipped:
    """How many files were passed over.

    Attributes:
        hidden: Those whose names begin with a dot, and files of operating systems.
        other: Those whose suffix is not that of a picture.
    """

    hidden: int = 0
    other: int = 0

    def __add__(self, more: Skipped) -> Skipped:
        return Skipped(self.hidden + more.hidden, self.other + more.other)


@dataclasses.dataclass(frozen=True)
class Pack(InputFile):
    """Neighbouring files of a listing; `path` is the root of their names.

    Attributes:
        names: Their names, each relative to the root, joined by NUL and compressed.
        sizes: Their sizes as little-endian uint64, compressed.
        classes: In the first pack of a listing: the names of all classes, in order.
        skipped: Files passed over on the way to its last one, or after it at the very end.
        has_splits: The first folder of every name is a split.
        has_labels: The next one is a class.
    """

    names: bytes = b""
    sizes: bytes = b""
    classes: tuple[str, ...] = ()
    skipped: Skipped = Skipped()
    has_splits: bool = False
    has_labels: bool = False

    def outline(self) -> InputFile:
        """Return the pack without the names."""
        return dataclasses.replace(self, names=b"", sizes=b"")

    def check(self) -> None:
        """Check that all local files are still those that were listed.

        Raises:
            InputChanged: One is not, or it is gone.
        """
        if not (self.state and self.names):
            return
        found = [found_at(os.path.join(self.path, name), b"") for name, _ in self.files()]
        if self.is_unchanged(*_version_and_state(found)):
            return
        for (name, size), now in zip(self.files(), found, strict=True):
            if now.size != size:
                raise _changed(name.encode("utf-8", "backslashreplace").decode())
        others = f" or one of the {self.inside - 1:,} files after it" if self.inside > 1 else ""
        raise _changed(f"{self.name}{others}")

    def files(self) -> list[tuple[str, int]]:
        """Return name and size of every file; a name that is not UTF-8 has surrogates in it.

        Raises:
            DataError: They are not those that were listed.
        """
        names = _unpacked(self.names, PACK_FILES * _MAX_PATH_BYTES)
        sizes = _unpacked(self.sizes, PACK_FILES * 8)
        if _digest(names, sizes, self.classes) != self.digest:
            raise DataError(f"the listing of {self.path!r} was changed: run the job again")
        listed = zip(names.split(b"\0"), np.frombuffer(sizes, "<u8").tolist(), strict=True)
        return [(os.fsdecode(name), size) for name, size in listed]


def pack_files(
    found: Iterable[Found | Skipped], *, root: str, classes: tuple[str, ...]
) -> Iterator[Pack]:
    """Join files, in their order, to packs of at most `PACK_FILES` and about `PACK_BYTES`."""
    pending: list[Found] = []
    skipped, size = Skipped(), 0
    for item in found:
        if isinstance(item, Skipped):
            skipped += item
            continue
        if pending and (len(pending) == PACK_FILES or size + item.size > PACK_BYTES):
            yield _pack(pending, root, classes, skipped)
            pending, classes, skipped, size = [], (), Skipped(), 0
        pending.append(item)
        size += item.size
    if pending:
        yield _pack(pending, root, classes, skipped)


def _pack(found: list[Found], root: str, classes: tuple[str, ...], skipped: Skipped) -> Pack:
    names = b"\0".join(file.name for file in found)
    sizes = _numbers([file.size for file in found])
    version, state = _version_and_state(found)
    return Pack(
        path=root,
        name=found[0].name.decode("utf-8", "backslashreplace"),
        bytes=int(sizes.sum()),
        version=version,
        state=state,
        inside=len(found),
        digest=_digest(names, sizes.tobytes(), classes),
        names=zlib.compress(names, _LEVEL),
        sizes=zlib.compress(sizes.tobytes(), _LEVEL),
        classes=classes,
        skipped=skipped,
    )


def _digest(names: bytes, sizes: bytes, classes: tuple[str, ...]) -> str:
    whole = b"\0\0".join((names, sizes, "\0".join(classes).encode()))
    return hashlib.sha256(whole).hexdigest()[:32]


def _unpacked(data: bytes, most_bytes: int) -> bytes:
    # A plan that was stored may be anyone's: a few bytes of it must not fill the memory.
    return zlib.decompressobj().decompress(data, most_bytes)


def found_at(path: str, name: bytes) -> Found:
    """Return a local file as it is now; one that cannot be looked at has no bytes."""
    try:
        status = os.stat(path)
    except OSError:
        return Found(name, 0, 0)
    return Found(name, status.st_size, status.st_mtime_ns, version_and_state(status)[1])


def _version_and_state(found: Iterable[Found]) -> tuple[str, str]:
    parts = [(str(file.version), *file.state.partition("-")[::2]) for file in found]
    version, times, inodes = (
        hashlib.sha256("\0".join(of).encode()).hexdigest()[:16] for of in zip(*parts, strict=True)
    )
    is_local = any(time for _, time, _ in parts)
    return version, f"{times}-{inodes}" if is_local else ""


def _changed(what: str) -> InputChanged:
    return InputChanged(
        f"{what} was changed while the pictures were read: run the job again once nothing writes "
        "to them"
    )


def _numbers(values: list[int]) -> npt.NDArray[np.uint64]:
    return np.array(values, "<u8")
