"""What all object stores have in common: names without directories, reads by range, uploads.

A store gives a few primitives over its client; the rest of a `Filesystem` follows from them here.
"""

from __future__ import annotations

import abc
import contextlib
import io
import logging
import posixpath
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO, TypeVar, cast

from beam_tfrecord.errors import BeamTFRecordError, InputChanged, StorageError, UsageError
from beam_tfrecord.storage import object_files
from beam_tfrecord.storage.filesystem import Entry, Filesystem, Lease, Writer
from beam_tfrecord.storage.object_files import ObjectReader, ObjectWriter, Upload

PART_BYTES = 16 * 2**20
# How long temporary failures are tried again before one is told.
RETRY_SECONDS = 120.0
FIRST_DELAY_SECONDS = 0.2
LONGEST_DELAY_SECONDS = 15.0
# Copies and removals are all waiting.
_REQUESTS_AT_ONCE = 8

_Value = TypeVar("_Value")

_LOGGER = logging.getLogger(__name__)


def split_url(path: str) -> tuple[str, str]:
    """Return bucket and key of ``scheme://bucket/key``."""
    bucket, _, key = path.partition("://")[2].partition("/")
    return bucket, key


class ObjectStore(Filesystem):
    """A store of objects by URL, over its client."""

    @abc.abstractmethod
    def part_bytes(self, number: int) -> int:
        """Return the size of the part of an upload with a number, from 0."""

    @abc.abstractmethod
    def start_upload(self, path: str) -> Upload:
        """Begin an upload in parts."""

    @abc.abstractmethod
    def put_whole(self, path: str, data: bytes) -> None:
        """Write an object in one request."""

    @abc.abstractmethod
    def put_matching(self, path: str, data: bytes, version: str) -> str | None:
        """Write an object on condition that its version is the one given; empty: that it is absent.

        Returns:
            The new version, or None where the condition did not hold.
        """

    @abc.abstractmethod
    def remove_matching(self, path: str, version: str) -> None:
        """Remove an object where its version is the one given."""

    @abc.abstractmethod
    def copy(self, source: str, target: str) -> None:
        """Have the store copy an object."""

    @abc.abstractmethod
    def remove_many(self, paths: Sequence[str]) -> None:
        """Remove objects; they may be gone already."""

    @abc.abstractmethod
    def entries(self, path: str) -> Iterator[Entry]:
        """Yield all objects whose URL begins with `path`, in order."""

    @abc.abstractmethod
    def children(self, path: str) -> Iterator[str]:
        """Yield what follows `path`, up to the next slash, in the URLs that begin with it."""

    def cancel_uploads(self, path: str) -> None:
        """Forget uploads below `path` that were never finished."""

    def is_directory(self, path: str) -> bool:
        """Tell whether an object lies below that name; a bucket counts as one."""
        return not split_url(path)[1] or next(self.entries(f"{path}/"), None) is not None

    def names(self, directory: str) -> list[str]:
        """Return the names in a directory, sorted."""
        # Consoles make an empty object of the directory's own name.
        return sorted({name for name in self.children(f"{directory}/") if name})

    def files(self, directory: str) -> Iterator[Entry]:
        """Yield all objects below a directory."""
        return (entry for entry in self.entries(f"{directory}/") if not entry.path.endswith("/"))

    def open(self, path: str, buffer_bytes: int | None, version: str = "") -> BinaryIO:
        """Open an object: what is read is of one version, even if it is replaced meanwhile."""
        entry = self.status(path)
        if entry is None:
            raise FileNotFoundError(f"no such object: {path!r}")
        if version not in ("", entry.version):
            raise InputChanged(f"{path!r} was replaced while it was read: run the job again")
        raw = ObjectReader(self, entry)
        size = object_files.READ_BYTES if buffer_bytes is None else buffer_bytes
        return cast(BinaryIO, io.BufferedReader(raw, size) if size else raw)

    def create(self, path: str, temporary: str | None, *, outlasts: bool) -> Writer:
        """Begin an object that is visible once it is whole."""
        return ObjectWriter(self, path)

    def put_absent(self, path: str, data: bytes) -> bool:
        """Write a whole object unless there is one."""
        return self.put_matching(path, data, "") is not None

    def publish(self, pairs: Iterable[tuple[str, str]], check: Callable[[], None]) -> None:
        """Copy objects within the store, several at a time."""

        def publish_one(pair: tuple[str, str]) -> None:
            check()
            self.copy(*pair)

        all_of(publish_one, list(pairs))

    def remove(self, path: str) -> None:
        """Remove an object."""
        if self.status(path) is None:
            raise FileNotFoundError(f"no such object: {path!r}")
        self.remove_many([path])

    def remove_tree(self, path: str) -> None:
        """Remove all objects below a name; what cannot be removed is told and left."""
        # Who may write here may not be allowed to list uploads; the store bills them, no more.
        with contextlib.suppress(BeamTFRecordError):
            self.cancel_uploads(f"{path}/")
        try:
            self.remove_many([entry.path for entry in self.entries(f"{path}/")])
        except BeamTFRecordError as error:
            _LOGGER.warning("%s: left behind: remove %s/ by hand", error, path)

    def _version_if(self, path: str, data: bytes) -> str | None:
        """Return the version of an object that holds `data`, or None.

        A condition fails also where an earlier try got through though its answer was lost.
        """
        entry = self.status(path)
        if entry is None or entry.bytes != len(data):
            return None
        try:
            return entry.version if self.read_bytes(path) == data else None
        except FileNotFoundError:
            return None

    def lease(self, directory: str) -> contextlib.AbstractContextManager[Lease]:
        """Hold an output directory by an object that is renewed while the job lives."""
        from beam_tfrecord.storage.object_lease import held

        return held(self, posixpath.join(directory, ".lock"))


def all_of(function: Any, items: Sequence[Any]) -> None:
    """Call a function of all items, several at a time; raise the first error."""
    with ThreadPoolExecutor(_REQUESTS_AT_ONCE, "objects") as pool:
        calls = [pool.submit(function, item) for item in items]
        try:
            for call in calls:
                call.result()
        finally:
            for call in calls:
                call.cancel()


class ConditionFailed(StorageError):
    """An object is not of the version that was asked for."""


def replaced(path: str) -> ConditionFailed:
    """Return the error for an object that is no longer the one that was opened."""
    return ConditionFailed(f"{path!r} was replaced while it was used: run again")


def no_bucket(path: str) -> UsageError:
    """Return the error for a bucket that is not there."""
    scheme = path.partition("://")[0]
    bucket = split_url(path)[0]
    return UsageError(
        f"cannot use {path!r}: there is no bucket '{scheme}://{bucket}': create it, or check its "
        "name"
    )


def not_permitted(path: str) -> StorageError:
    """Return the error for a request that the store refuses."""
    return StorageError(
        f"cannot use {path!r}: the store does not permit it: check the credentials, and what they "
        "may do in this bucket"
    )


def one_line(error: object) -> str:
    """Return what an error of a client says, as one short line."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0].rstrip(".:, ")[:200]


def retried(function: Callable[[], _Value], is_temporary: Callable[[Exception], bool]) -> _Value:
    """Call a function again after temporary failures, ever later, for a bounded time."""
    end = time.monotonic() + RETRY_SECONDS
    delay = FIRST_DELAY_SECONDS
    while True:
        try:
            return function()
        except Exception as error:
            if not is_temporary(error) or time.monotonic() + delay > end:
                raise
        # Spread, so that many workers do not come back at one moment.
        time.sleep(delay * random.uniform(0.5, 1))
        delay = min(2 * delay, LONGEST_DELAY_SECONDS)
