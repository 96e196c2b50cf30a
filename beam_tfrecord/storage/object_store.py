"""The base class of object stores (Google Cloud Storage, Amazon S3, Azure Blob Storage).

Subclasses supply single requests through the client library of a vendor, the *client*. On these the
base class builds everything else: directories, reads by range, uploads in parts, retries,
conditional writes, and the translation of the client's errors to errors of this package.
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
from typing import Any, BinaryIO, TypeVar, cast

from beam_tfrecord.errors import BeamTFRecordError, InputChanged, StorageError, UsageError
from beam_tfrecord.storage.paths import Entry, public_path

# A request takes some 50 ms until its first byte arrives, which matters less in large requests.
READ_BYTES = 8 * 2**20
PART_BYTES = 16 * 2**20
# S3 allows 10,000 parts. The part size grows after every 1,000 parts, so that 880,000 MiB fit into
# an object.
_PARTS_PER_SIZE = 1000
# How long temporary failures are retried before an error is raised.
RETRY_SECONDS = 120.0
FIRST_DELAY_SECONDS = 0.2
LONGEST_DELAY_SECONDS = 15.0
# Copies and removals are latency-bound.
_REQUESTS_AT_ONCE = 8

_Value = TypeVar("_Value")

_LOGGER = logging.getLogger(__name__)


class ConditionFailed(StorageError):
    """An object does not have the version that a request asked for."""


class BufferSink:
    """A file object that fills a buffer, and drops bytes that do not fit."""

    def __init__(self, out: memoryview) -> None:
        self._out = out
        self.filled = 0

    def write(self, data: bytes) -> int:
        """Append bytes to the buffer."""
        fitting = min(len(data), len(self._out) - self.filled)
        self._out[self.filled : self.filled + fitting] = data[:fitting]
        self.filled += fitting
        return len(data)


class ReadableStore(abc.ABC):
    """Files by URL that a client library reads, with the errors and retries of this package.

    Abstract methods are single requests, which raise the client's errors. All other methods raise
    errors of this package.
    """

    @abc.abstractmethod
    def client_errors(self) -> tuple[type[Exception], ...]:
        """Return the exceptions that the client raises for failed requests."""

    @abc.abstractmethod
    def status_code(self, error: Any) -> int:
        """Return the HTTP status of a client's exception, or 0 if there was no answer."""

    @abc.abstractmethod
    def head(self, path: str) -> Entry | None:
        """Return size and version of an object; None if the object stands for a directory."""

    @abc.abstractmethod
    def download(
        self, path: str, sink: BufferSink | io.BytesIO, span: tuple[int, int] | None, version: str
    ) -> None:
        """Write an object to `sink`; with a `span`, only its bytes `[start, stop)`.

        Unless `version` is empty, the object must have this version.
        """

    def is_interrupted(self, error: Exception) -> bool:
        """Return whether to repeat a request that failed, because the client does not repeat it."""
        return False

    @contextlib.contextmanager
    def request(self, path: str, *, only_bucket: bool = False, version: str = "") -> Iterator[None]:
        """Raise the client's errors as errors of this package, in one line with the URL."""
        errors = self.client_errors()
        try:
            yield
        except (BeamTFRecordError, FileNotFoundError):
            raise
        except errors as error:
            raise self.translate_error(error, path, only_bucket, version) from error

    def translate_error(
        self, error: Exception, path: str, only_bucket: bool, version: str
    ) -> Exception:
        """Return the exception of this package for an exception of the client."""
        status = self.status_code(error)
        if status == 404 and only_bucket:
            return _no_bucket(path)
        if status == 404 and not version:
            return FileNotFoundError(f"no such object: {public_path(path)!r}")
        if status in (404, 409, 412):
            return ConditionFailed(f"{path!r} was replaced while it was used: run again")
        if status == 416:
            return EOFError(f"{path!r} ends early")
        if status in (401, 403):
            return StorageError(
                f"cannot use {path!r}: permission denied: check the credentials and their "
                "permissions on this bucket"
            )
        cause = getattr(error, "cause", None) or error
        text = str(cause).strip() or type(cause).__name__
        line = text.splitlines()[0].rstrip(".:, ")[:200]
        return StorageError(f"cannot reach {path!r} ({line}): try again later")

    def status(self, path: str) -> Entry | None:
        """Return size and version of an object, or None if there is no such object."""
        if not split_url(path)[1]:
            return None  # A bucket is not an object.
        try:
            with self.request(path):
                return self.head(path)
        except FileNotFoundError:
            return None

    def open(self, path: str, buffer_bytes: int | None = None, version: str = "") -> BinaryIO:
        """Open one version of an object; reads never return bytes of another version."""
        entry = self.status(path)
        if entry is None:
            raise FileNotFoundError(f"no such object: {public_path(path)!r}")
        if version not in ("", entry.version):
            raise InputChanged(
                f"{public_path(path)!r} was replaced while it was read: run the job again"
            )
        raw = ObjectReader(self, entry)
        size = READ_BYTES if buffer_bytes is None else buffer_bytes
        return cast(BinaryIO, io.BufferedReader(raw, size) if size else raw)

    def read_bytes(self, path: str) -> bytes:
        """Return all bytes of an object."""

        def fetch() -> bytes:
            sink = io.BytesIO()
            self.download(path, sink, None, "")
            return sink.getvalue()

        with self.request(path):
            return retried(fetch, self.is_interrupted)

    def read_into(self, path: str, start: int, out: memoryview, version: str) -> None:
        """Fill `out` completely with the bytes of an object from `start`."""
        sink = BufferSink(out)

        def fetch() -> None:
            if sink.filled < len(out):
                self.download(path, sink, (start + sink.filled, start + len(out)), version)

        with self.request(path, version=version):
            retried(fetch, self.is_interrupted)
        if sink.filled < len(out):
            raise EOFError(f"{public_path(path)!r} ends {len(out) - sink.filled} bytes early")


class ObjectStore(ReadableStore):
    """A store of objects by URL, over the client library of its vendor.

    Abstract methods are single requests, which raise the client's errors. All other methods raise
    errors of this package.
    """

    @abc.abstractmethod
    def listed(self, path: str, *, is_deep: bool) -> Iterator[Entry]:
        """Yield all objects whose URL begins with `path`, in order.

        If not `is_deep`, objects with the same name up to the next slash count as one entry, a
        common prefix, whose path ends with that slash.
        """

    @abc.abstractmethod
    def put(self, path: str, data: bytes, version: str | None) -> str:
        """Write an object in one request, and return its new version.

        The object must have `version` before. If `version` is empty, there must be no such object.
        If it is None, there is no condition.
        """

    @abc.abstractmethod
    def begin_upload(self, path: str) -> Any:
        """Begin an upload in parts, and return its identifier."""

    @abc.abstractmethod
    def send_part(self, path: str, upload: Any, number: int, part: bytes) -> Any:
        """Upload a part, numbered from 0, and return its entry in `parts` of `finish_upload`."""

    @abc.abstractmethod
    def finish_upload(self, path: str, upload: Any, parts: Sequence[Any], nbytes: int) -> None:
        """Complete an upload: join its parts to an object of `nbytes` bytes."""

    @abc.abstractmethod
    def cancel_upload(self, path: str, upload: Any) -> None:
        """Discard the parts of an upload."""

    @abc.abstractmethod
    def delete(self, path: str, version: str) -> None:
        """Remove an object; unless `version` is empty, only if the object has this version."""

    @abc.abstractmethod
    def copy(self, source: str, target: str) -> None:
        """Copy an object within the store."""

    def entries(self, path: str, *, is_deep: bool = True) -> Iterator[Entry]:
        """Yield the entries of `listed`, with errors of this package."""
        with self.request(path, only_bucket=True):
            yield from self.listed(path, is_deep=is_deep)

    def is_directory(self, path: str) -> bool:
        """Return whether an object lies below that name; a bucket counts as a directory."""
        return not split_url(path)[1] or next(self.entries(f"{path}/"), None) is not None

    def names(self, directory: str) -> list[str]:
        """Return the sorted names of objects and directories in a directory."""
        found = self.entries(f"{directory}/", is_deep=False)
        names = {entry.path[len(directory) + 1 :].rstrip("/") for entry in found}
        # Web consoles make an empty object with the directory's own name.
        return sorted(names - {""})

    def files(self, directory: str) -> Iterator[Entry]:
        """Yield all objects below a directory."""
        return (entry for entry in self.entries(f"{directory}/") if not entry.path.endswith("/"))

    def put_matching(self, path: str, data: bytes, version: str) -> str | None:
        """Write an object only if its version is `version`; empty means that it is absent."""
        try:
            with self.request(path, only_bucket=not version):
                return self.put(path, data, version)
        except (ConditionFailed, FileNotFoundError):
            pass
        # The condition also fails if an earlier try succeeded but its answer was lost.
        entry = self.status(path)
        if entry is None or entry.bytes != len(data):
            return None
        try:
            return entry.version if self.read_bytes(path) == data else None
        except FileNotFoundError:
            return None

    def publish(self, pairs: Iterable[tuple[str, str]], check: Callable[[], None]) -> None:
        """Copy objects within the store, several at a time; call `check` before each copy."""

        def publish_one(pair: tuple[str, str]) -> None:
            check()
            with self.request(pair[0]):
                self.copy(*pair)

        run_all(publish_one, list(pairs))

    def remove(self, path: str) -> None:
        """Remove an object."""
        if self.status(path) is None:
            raise FileNotFoundError(f"no such object: {path!r}")
        self._remove_if_there(path)

    def remove_one(self, path: str, version: str = "") -> None:
        """Remove an object; unless `version` is empty, only if the object has this version."""
        with self.request(path):
            self.delete(path, version)

    def _remove_if_there(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.remove_one(path)

    def remove_tree(self, path: str) -> None:
        """Remove all objects below a name; log a warning if that fails."""
        try:
            run_all(self._remove_if_there, [entry.path for entry in self.entries(f"{path}/")])
        except BeamTFRecordError as error:
            _LOGGER.warning("could not remove %s/ (%s): delete it yourself", path, error)


class ObjectReader(io.RawIOBase):
    """A file object that reads one version of an object, and can seek."""

    def __init__(self, store: ReadableStore, entry: Entry) -> None:
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

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Go to a position."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._entry.bytes}[whence]
        self._at = max(0, start + offset)
        return self._at

    def readall(self) -> bytes:
        """Return the rest of the object."""
        # The inherited method would request a few kilobytes at a time.
        out = bytearray(max(0, self._entry.bytes - self._at))
        for low in range(0, len(out), READ_BYTES):
            self.readinto(memoryview(out)[low : low + READ_BYTES])
        return bytes(out)

    def readinto(self, buffer: Any, /) -> int:
        """Fill a buffer up to the end of the object, and return the number of bytes."""
        out = memoryview(buffer).cast("B")[: max(0, self._entry.bytes - self._at)]
        if len(out):
            self._store.read_into(self._entry.path, self._at, out, self._entry.version)
        self._at += len(out)
        return len(out)


class ObjectWriter:
    """Writes an object: in one request if it is small, else in parts in the background."""

    def __init__(self, store: ObjectStore, path: str) -> None:
        self._store = store
        self._path = path
        self._part = bytearray()
        self._bytes = 0
        self._upload: Any = None
        # At most one part is under way, so parts stay in order and two of them are in memory.
        self._sender = ThreadPoolExecutor(1, "upload-parts")
        self._sent: list[Future[Any]] = []
        self._is_closed = False

    def write(self, data: memoryview) -> None:
        """Append all bytes of a buffer."""
        if self._is_closed:
            raise ValueError(f"write to closed object {self._path!r}")
        while len(data):
            size = PART_BYTES * (1 + len(self._sent) // _PARTS_PER_SIZE)
            # A full part is sent only if more data follows, since the last one must not be empty.
            if len(self._part) == size:
                self._hand_over()
            fitting = data[: size - len(self._part)]
            self._part += fitting
            data = data[len(fitting) :]

    def finish(self) -> None:
        """Make the object visible; a second call does nothing."""
        if self._is_closed:
            return
        with self._store.request(self._path, only_bucket=True):
            if self._upload is None:
                self._store.put(self._path, bytes(self._part), None)
            else:
                self._hand_over()
                parts = [sent.result() for sent in self._sent]
                self._store.finish_upload(self._path, self._upload, parts, self._bytes)
        self._end()

    def abort(self) -> None:
        """Discard all data that was uploaded, none of which was ever visible."""
        if self._is_closed:
            return
        # An error here must not hide the error after which the caller aborts.
        with contextlib.suppress(Exception):
            self._wait()
        if self._upload is not None:
            with (
                contextlib.suppress(BeamTFRecordError, FileNotFoundError),
                self._store.request(self._path),
            ):
                self._store.cancel_upload(self._path, self._upload)
        self._end()

    def _hand_over(self) -> None:
        self._wait()
        if self._upload is None:
            with self._store.request(self._path, only_bucket=True):
                self._upload = self._store.begin_upload(self._path)
        part, self._part = bytes(self._part), bytearray()
        self._bytes += len(part)
        self._sent.append(self._sender.submit(self._send, len(self._sent), part))

    def _send(self, number: int, part: bytes) -> Any:
        with self._store.request(self._path, only_bucket=True):
            return self._store.send_part(self._path, self._upload, number, part)

    def _wait(self) -> None:
        if self._sent:
            self._sent[-1].result()

    def _end(self) -> None:
        self._is_closed = True
        self._part = bytearray()
        self._sender.shutdown()


def split_url(path: str) -> tuple[str, str]:
    """Return bucket and key of ``scheme://bucket/key``."""
    bucket, _, key = path.partition("://")[2].partition("/")
    return bucket, key


def run_all(function: Callable[[Any], Any], items: Sequence[Any]) -> None:
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
    """Call a function until it succeeds, at growing intervals, for `RETRY_SECONDS`.

    Only temporary errors lead to another call. Other errors, and the last one, are raised. An error
    may have an attribute `wait_s`, the shortest time until the next call.
    """
    end = time.monotonic() + RETRY_SECONDS
    delay = FIRST_DELAY_SECONDS
    while True:
        try:
            return function()
        except Exception as error:
            wait_s = getattr(error, "wait_s", 0.0)
            if not is_temporary(error) or time.monotonic() + max(delay, wait_s) > end:
                raise
            if 1 <= delay < 2:  # once, when a user begins to wonder
                _LOGGER.warning("a request failed (%s), and is sent again", type(error).__name__)
        # Jitter, so that many workers do not retry at the same moment.
        time.sleep(max(delay * random.uniform(0.5, 1), wait_s))
        delay = min(2 * delay, LONGEST_DELAY_SECONDS)


def _no_bucket(path: str) -> UsageError:
    url = f"{path.partition('://')[0]}://{split_url(path)[0]}"
    word = "container" if url.startswith("az:") else "bucket"
    return UsageError(
        f"cannot use {path!r}: there is no {word} {url!r}: create it, or check its name"
    )
