"""Noticing that a dataset was replaced while it is read.

A writer of this package removes the old manifest before it replaces the first shard, and puts the
new one there after the last. So a shard that is open while the manifest is still the one that was
loaded belongs to it. Programs that copy files know no such order: so the state of each local shard
is noted when the dataset is opened, and compared behind every block that was read. Of an object
one version is read.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping

from beam_tfrecord import native
from beam_tfrecord.errors import BeamTFRecordError, DataError
from beam_tfrecord.hashes import data_hash
from beam_tfrecord.records.tfrecord import read_blocks
from beam_tfrecord.storage import Entry, read_small, status

# Size, modification time and change time: what no other file has, or this one after a change.
_State = tuple[int, int, int]


@dataclasses.dataclass(frozen=True)
class OpenedManifest:
    """A manifest as it was when a dataset was opened.

    Attributes:
        path: Its absolute path or URL.
        entry: The file; None: there is none.
        xxh64: Hash of its bytes, 16 hex digits.
    """

    path: str
    entry: Entry | None
    xxh64: str

    @classmethod
    def of(cls, path: str) -> OpenedManifest:
        """Note the manifest at a path; to be called before it is parsed."""
        entry = status(path)
        return cls(path, entry, _hash_at(path))

    def check(self) -> None:
        """Check that the manifest is still the one that was opened.

        Raises:
            DataError: It is not.
        """
        # Touched or copied, it has another time but says the same.
        if status(self.path) != self.entry and _hash_at(self.path) != self.xxh64:
            raise DataError(
                f"the dataset in {os.path.dirname(self.path)!r} was replaced or removed after it "
                "was opened: load it again"
            )


class OpenedShards:
    """Local shards as they were when a dataset was opened.

    Args:
        hashes: Hash of the records of each, by path; a file that is not in it is not compared.
        compression: Of all of them.
    """

    def __init__(self, hashes: Mapping[str, str], compression: str) -> None:
        self._hashes = dict(hashes)
        self._compression = compression
        self._states = {path: _state(path) for path in hashes}

    def check(self, path: str) -> None:
        """Check that a shard is still the one that was there; to be called behind each read.

        A missing shard passes: reading it raises the error that names it.

        Raises:
            DataError: It was changed or replaced.
        """
        state = _state(path)
        if state is None or path not in self._states or state == self._states[path]:
            return
        # Touched, linked, or on another machine, it has other times but says the same.
        if self._hash_at(path) != self._hashes[path] or _state(path) != state:
            raise DataError(
                f"{path!r} was changed or replaced after it was opened: check the dataset with "
                "verify, and load it again"
            )
        self._states[path] = state

    def _hash_at(self, path: str) -> str:
        digest = native.XXH64(0)
        try:
            for block in read_blocks(path, compression=self._compression, is_once=True):
                digest.update(block.data)
        except (DataError, OSError):
            return ""
        return f"{digest.intdigest():016x}"


@contextlib.contextmanager
def explained_by(*checks: Callable[[], None]) -> Iterator[None]:
    """Run `checks` when reading fails: what was replaced explains the error better.

    Raises:
        DataError: A check failed.
    """
    try:
        yield
    except (BeamTFRecordError, OSError):
        for check in checks:
            check()
        raise


def _state(path: str) -> _State | None:
    try:
        seen = os.stat(path)
    except OSError:
        return None
    return seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns


def _hash_at(path: str) -> str:
    try:
        return data_hash(read_small(path))
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return ""
