"""Object stores by URL: what Google Cloud Storage, Amazon S3 and Azure Blob Storage share.

Each store supplies a few requests through the client library of its vendor. The rest of a
`Filesystem` follows from them here: names without directories, reads by range, uploads in parts,
and one translation of errors.
"""

from __future__ import annotations

import abc
import contextlib
import io
import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, BinaryIO, Protocol, TypeVar, cast

from beam_tfrecord.errors import BeamTFRecordError, InputChanged, StorageError, UsageError
from beam_tfrecord.storage.filesystem import Entry, Filesystem, Writer

# A request takes some 50 ms before its first byte comes: fewer and larger ones hide that.
READ_BYTES = 8 * 2**20
PART_BYTES = 16 * 2**20
# How long temporary failures are tried again before an error is raised.
RETRY_SECONDS = 120.0
FIRST_DELAY_SECONDS = 0.2
LONGEST_DELAY_SECONDS = 15.0
# Copies and removals spend their time waiting.
_REQUESTS_AT_ONCE = 8

_Value = TypeVar("_Value")

_LOGGER = logging.getLogger(__name__)


class ConditionFailed(StorageError):
    """An object does not have the version that a request asked for."""


class Upload(Protocol):
    """An upload in parts; no part is visible before `finish`."""

    def send(self, part: bytes) -> None:
        """Upload the next part; all but the last are `part_bytes` long."""

    def finish(self, last: bytes) -> None:
        """Upload the last part, and make the object visible."""

    def cancel(self) -> None:
        """Discard the parts."""


class ObjectStore(Filesystem):
    """A store of objects by URL, over the client library of its vendor."""

    @abc.abstractmethod
    def client_errors(self) -> tuple[type[Exception], ...]:
        """Return the exceptions that the client raises for failed requests."""

    @abc.abstractmethod
    def status_code(self, error: Any) -> int:
        """Return the HTTP status of a client's exception, or 0 if there was no answer."""

    @abc.abstractmethod
    def entries(self, path: str) -> Iterator[Entry]:
        """Yield all objects whose URL begins with `path`, in order."""

    @abc.abstractmethod
    def children(self, path: str) -> Iterator[str]:
        """Yield what follows `path`, up to the next slash, in the URLs that begin with it."""

    @abc.abstractmethod
    def start_upload(self, path: str) -> Upload:
        """Begin an upload in parts."""

    @abc.abstractmethod
    def put_whole(self, path: str, data: bytes) -> None:
        """Write an object in one request."""

    @abc.abstractmethod
    def put_if(self, path: str, data: bytes, version: str) -> str:
        """Write an object if it has this version; empty: if there is no such object.

        Returns:
            The new version.

        Raises:
            ConditionFailed: The condition does not hold.
        """

    @abc.abstractmethod
    def remove_one(self, path: str, version: str = "") -> None:
        """Remove an object; with a version, only if the object has it.

        Raises:
            FileNotFoundError: There is no such object.
            ConditionFailed: The object has another version.
        """

    @abc.abstractmethod
    def copy(self, source: str, target: str) -> None:
        """Copy an object within the store."""

    def part_bytes(self, number: int) -> int:
        """Return the size of the part of an upload with a number, from 0."""
        return PART_BYTES

    def remove_many(self, paths: Sequence[str]) -> None:
        """Remove objects, if they exist."""

        def remove(path: str) -> None:
            with contextlib.suppress(FileNotFoundError):
                self.remove_one(path)

        all_of(remove, paths)

    def cancel_uploads(self, path: str) -> None:
        """Discard the parts of unfinished uploads below `path`, if the store keeps them."""

    @contextlib.contextmanager
    def request(self, path: str, *, only_bucket: bool = False, version: str = "") -> Iterator[None]:
        """Raise the client's errors as ours, in one line with the URL.

        Args:
            path: What the request is about.
            only_bucket: If something is missing, it is the bucket.
            version: The version that the request asks for; empty: any.
        """
        errors = self.client_errors()
        try:
            yield
        except (BeamTFRecordError, FileNotFoundError):
            raise
        except errors as error:
            raise self.meaning(error, path, only_bucket, version) from error

    def meaning(self, error: Exception, path: str, only_bucket: bool, version: str) -> Exception:
        """Return the exception that stands for a client's."""
        status = self.status_code(error)
        if status == 404 and only_bucket:
            return _no_bucket(path)
        if status == 404 and not version:
            return FileNotFoundError(f"no such object: {path!r}")
        if status in (404, 409, 412):
            return ConditionFailed(f"{path!r} was replaced while it was used: run again")
        if status == 416:
            return EOFError(f"{path!r} ends early")
        if status in (401, 403):
            return StorageError(
                f"cannot use {path!r}: the store does not permit it: check the credentials, and "
                "what they may do in this bucket"
            )
        cause = getattr(error, "cause", None) or error
        text = str(cause).strip() or type(cause).__name__
        line = text.splitlines()[0].rstrip(".:, ")[:200]
        return StorageError(f"cannot reach {path!r}: {line}: try again later")

    def is_directory(self, path: str) -> bool:
        """Return whether an object lies below that name; a bucket counts as a directory."""
        return not split_url(path)[1] or next(self.entries(f"{path}/"), None) is not None

    def names(self, directory: str) -> list[str]:
        """Return the sorted names in a directory."""
        # Consoles make an empty object with the directory's own name.
        return sorted({name for name in self.children(f"{directory}/") if name})

    def files(self, directory: str) -> Iterator[Entry]:
        """Yield all objects below a directory."""
        return (entry for entry in self.entries(f"{directory}/") if not entry.path.endswith("/"))

    def open(self, path: str, buffer_bytes: int | None, version: str = "") -> BinaryIO:
        """Open one version of an object, also if it is replaced meanwhile."""
        entry = self.status(path)
        if entry is None:
            raise FileNotFoundError(f"no such object: {path!r}")
        if version not in ("", entry.version):
            raise InputChanged(f"{path!r} was replaced while it was read: run the job again")
        raw = ObjectReader(self, entry)
        size = READ_BYTES if buffer_bytes is None else buffer_bytes
        return cast(BinaryIO, io.BufferedReader(raw, size) if size else raw)

    def create(self, path: str, temporary: str | None, *, outlasts: bool) -> Writer:
        """Begin an object that is visible once it is complete."""
        return ObjectWriter(self, path)

    def put_absent(self, path: str, data: bytes) -> bool:
        """Write an object unless there is one."""
        return self.put_matching(path, data, "") is not None

    def put_matching(self, path: str, data: bytes, version: str) -> str | None:
        """Write an object if it has this version; empty: if there is no such object.

        Returns:
            The new version, or None if the condition did not hold.
        """
        try:
            return self.put_if(path, data, version)
        except (ConditionFailed, FileNotFoundError):
            pass
        # The condition fails also if an earlier try got through though its answer was lost.
        entry = self.status(path)
        if entry is None or entry.bytes != len(data):
            return None
        try:
            return entry.version if self.read_bytes(path) == data else None
        except FileNotFoundError:
            return None

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
        """Remove all objects below a name; log those that cannot be removed."""
        # Who may write here may not be allowed to list uploads; the store bills them, no more.
        with contextlib.suppress(BeamTFRecordError):
            self.cancel_uploads(f"{path}/")
        try:
            self.remove_many([entry.path for entry in self.entries(f"{path}/")])
        except BeamTFRecordError as error:
            _LOGGER.warning("%s: left behind: remove %s/ by hand", error, path)


class ObjectReader(io.RawIOBase):
    """One version of an object as a file that can seek."""

    def __init__(self, store: ObjectStore, entry: Entry) -> None:
        super().__init__()
        self._store = store
        self._entry = entry
        self._at = 0

    def readable(self) -> bool:
        """Return True: the file is for reading."""
        return True

    def seekable(self) -> bool:
        """Return True: the file can seek."""
        return True

    def tell(self) -> int:
        """Return the position of the next byte."""
        return self._at

    def size(self) -> int:
        """Return the size of the object."""
        return self._entry.bytes

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Go to a position."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._entry.bytes}[whence]
        self._at = max(0, start + offset)
        return self._at

    def readall(self) -> bytes:
        """Return the rest of the object."""
        # Inherited, this would ask for a few kilobytes at a time.
        out = bytearray(max(0, self._entry.bytes - self._at))
        for low in range(0, len(out), READ_BYTES):
            self.readinto(memoryview(out)[low : low + READ_BYTES])
        return bytes(out)

    def readinto(self, buffer: Any, /) -> int:
        """Fill a buffer as far as the object goes."""
        out = memoryview(buffer).cast("B")
        out = out[: max(0, self._entry.bytes - self._at)]
        if len(out):
            self._store.read_into(self._entry.path, self._at, out, self._entry.version)
        self._at += len(out)
        return len(out)


class ObjectWriter:
    """An object being written: in one request if it is small, else in parts in the background.

    Args:
        store: The store.
        path: URL of the object.
    """

    def __init__(self, store: ObjectStore, path: str) -> None:
        self._store = store
        self._path = path
        self._part = bytearray()
        self._parts = 0
        self._upload: Upload | None = None
        self._sender: ThreadPoolExecutor | None = None
        # At most one part is under way, so parts are in order and memory is two of them.
        self._pending: Future[None] | None = None
        self._closed = False

    def write(self, data: Any) -> None:
        """Append all bytes of a buffer."""
        if self._closed:
            raise ValueError(f"write to closed object {self._path!r}")
        view = memoryview(data).cast("B")
        at = 0
        while at < len(view):
            limit = self._store.part_bytes(self._parts)
            # A full part waits for more: the last one must not be empty.
            if len(self._part) == limit:
                self._hand_over()
                continue
            count = min(limit - len(self._part), len(view) - at)
            self._part += view[at : at + count]
            at += count

    def close(self) -> None:
        """Make the object visible."""
        if self._closed:
            return
        try:
            self._wait()
            if self._upload is None:
                self._store.put_whole(self._path, bytes(self._part))
            else:
                self._upload.finish(bytes(self._part))
        except BaseException:
            self.abort()
            raise
        self._end()

    def abort(self) -> None:
        """Discard what was uploaded; nothing of it was ever visible."""
        if self._closed:
            return
        with contextlib.suppress(Exception):
            self._wait()
        if self._upload is not None:
            # An error here must not replace the error that led here.
            with contextlib.suppress(BeamTFRecordError, FileNotFoundError):
                self._upload.cancel()
        self._end()

    def _hand_over(self) -> None:
        self._wait()
        if self._upload is None:
            self._upload = self._store.start_upload(self._path)
            self._sender = ThreadPoolExecutor(1, "upload-parts")
        assert self._sender is not None
        self._pending = self._sender.submit(self._upload.send, bytes(self._part))
        self._part = bytearray()
        self._parts += 1

    def _wait(self) -> None:
        if self._pending is not None:
            pending, self._pending = self._pending, None
            pending.result()

    def _end(self) -> None:
        self._closed = True
        self._part = bytearray()
        if self._sender is not None:
            self._sender.shutdown()


def split_url(path: str) -> tuple[str, str]:
    """Return bucket and key of ``scheme://bucket/key``."""
    bucket, _, key = path.partition("://")[2].partition("/")
    return bucket, key


def all_of(function: Callable[[Any], Any], items: Sequence[Any]) -> None:
    """Call a function with every item, several at a time; raise the first error."""
    with ThreadPoolExecutor(_REQUESTS_AT_ONCE, "objects") as pool:
        calls = [pool.submit(function, item) for item in items]
        try:
            for call in calls:
                call.result()
        finally:
            for call in calls:
                call.cancel()


def retried(function: Callable[[], _Value], is_temporary: Callable[[Exception], bool]) -> _Value:
    """Call a function again after temporary failures, at growing intervals, for a bounded time."""
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


def _no_bucket(path: str) -> UsageError:
    url = f"{path.partition('://')[0]}://{split_url(path)[0]}"
    word = "container" if url.startswith("az:") else "bucket"
    return UsageError(
        f"cannot use {path!r}: there is no {word} {url!r}: create it, or check its name"
    )
