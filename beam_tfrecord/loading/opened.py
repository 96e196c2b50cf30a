"""Noticing that a dataset was replaced while it is read.

A writer removes the old manifest before it replaces the first shard, and puts the new one there
after the last. So a shard that is open while the manifest is still the one that was loaded belongs
to it. What a name stands for later does not matter: an open local file stays what it was, and of
an object one version is read.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator

from beam_tfrecord.errors import BeamTFRecordError, DataError
from beam_tfrecord.hashes import data_hash
from beam_tfrecord.storage import Entry, read_bytes, status


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

    @contextlib.contextmanager
    def explaining(self) -> Iterator[None]:
        """Explain an error by the replaced dataset where there is one."""
        try:
            yield
        except (BeamTFRecordError, OSError):
            self.check()
            raise


def _hash_at(path: str) -> str:
    try:
        return data_hash(read_bytes(path))
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return ""
