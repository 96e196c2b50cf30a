"""Reads files of web servers (``https://``), and of any filesystem of Beam, such as ``hdfs://``.

Nothing is written there: Beam's filesystems have no conditional writes, and do not promise that a
file is visible only when it is complete.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import re
import socket
import ssl
import time
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

from beam_tfrecord.base.extras import require
from beam_tfrecord.errors import InputChanged, StorageError, UsageError
from beam_tfrecord.storage.object_store import BufferSink, ReadableStore, retried
from beam_tfrecord.storage.paths import Entry, plain_path, public_path

CONNECT_SECONDS = 10.0
# How long a server is asked again that has not answered at all.
UNANSWERED_SECONDS = 5.0
# Longest time without a byte.
SILENCE_SECONDS = 60.0
_PIECE_BYTES = 2**20
_CONNECTIONS = 32
_TEMPORARY = frozenset((408, 425, 429, 500, 502, 503, 504))
# Beam has these filesystems, but does not install the packages that they need.
_EXTRAS = {"azfs": "azure", "hdfs": "hadoop"}
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")


class RequestFailed(Exception):
    """A request failed; its text has no secrets."""

    def __init__(
        self, text: str, status: int = 0, *, is_temporary: bool = False, wait_s: float = 0.0
    ) -> None:
        super().__init__(text)
        self.status = status
        self.is_temporary = is_temporary
        self.wait_s = wait_s


class WebServers(ReadableStore):
    """All web servers, whose files requests reads by ranges of bytes.

    A URL names one file, since servers do not list their files. The version of a file is its ETag;
    if that is weak or missing, ETag, time of modification and size together. Every answer states
    them, so no bytes of another version are read. Secrets come from ``~/.netrc`` or are the query
    of a signed URL, so no message has the query: errors of the client do, and are not passed on.
    """

    def client_errors(self) -> tuple[type[Exception], ...]:
        """Return the exception of failed requests."""
        return (RequestFailed,)

    def status_code(self, error: Any) -> int:
        """Return the HTTP status of an exception, or 0."""
        return int(error.status)

    def is_interrupted(self, error: Exception) -> bool:
        """Return whether the same request may succeed later."""
        return isinstance(error, RequestFailed) and error.is_temporary

    def translate_error(
        self, error: Exception, path: str, only_bucket: bool, version: str
    ) -> Exception:
        """Return the exception of this package for a failed request."""
        status = self.status_code(error)
        if status in (404, 410, 416) and version:
            return _changed(path)
        if status in (404, 410):
            return FileNotFoundError(f"no such file: {public_path(path)!r}")
        advice = "try again later" if self.is_interrupted(error) else "check the URL"
        if status in (401, 403):
            advice = (
                "permission denied: check the URL, which may be signed for a time that is over, or "
                "put user and password into ~/.netrc"
            )
        return StorageError(f"cannot read {public_path(path)!r} ({error}): {advice}")

    def head(self, path: str) -> Entry:
        """Return size and version of a file, from the answer for its first byte.

        Signed URLs often allow only GET, and only the answer for a range shows that there are any.
        """

        def ask() -> Entry:
            with _answer(path, (0, 1)) as answer:
                return _entry(path, answer)

        end = time.monotonic() + UNANSWERED_SECONDS

        def may_answer(error: Any) -> bool:
            return self.is_interrupted(error) and (error.status > 0 or time.monotonic() < end)

        return retried(ask, may_answer)

    def download(
        self, path: str, sink: BufferSink | io.BytesIO, span: tuple[int, int] | None, version: str
    ) -> None:
        """Write a file, or the bytes of `span`, to `sink`."""
        read = 0
        with _answer(path, span) as answer:
            if span is not None and version not in ("", _entry(path, answer, span).version):
                raise _changed(path)
            while piece := answer.raw.read(_PIECE_BYTES, decode_content=False):
                sink.write(piece)
                read += len(piece)
        if span is not None and read < span[1] - span[0]:
            raise RequestFailed("the answer ends early", is_temporary=True)

    def is_directory(self, path: str) -> bool:
        """Return False: a URL names a file."""
        return False

    def names(self, directory: str) -> list[str]:
        """Return no name: servers do not list their files."""
        return []

    def files(self, directory: str) -> Iterator[Entry]:
        """Yield nothing: servers do not list their files."""
        return iter(())


def client() -> Any:
    """Return the client of this process; a forked process gets its own connections."""
    return _client_of(os.getpid())


@functools.lru_cache(maxsize=1)
def _client_of(process: int) -> Any:
    import requests
    from requests.adapters import HTTPAdapter

    session = requests.Session()
    for scheme in ("https://", "http://"):
        session.mount(scheme, HTTPAdapter(pool_maxsize=_CONNECTIONS))
    return session


@contextlib.contextmanager
def _answer(path: str, span: tuple[int, int] | None) -> Iterator[Any]:
    """Yield the answer to the request for a file, or for a range of its bytes."""
    if "@" in path.partition("://")[2].partition("/")[0]:
        raise UsageError(
            f"{public_path(path)!r} has a user or password in it, which files of the job would "
            "have, too: put them into ~/.netrc, and leave them out here"
        )
    import requests
    import urllib3

    # Ranges of compressed bytes would not be those of the file.
    headers = {"Accept-Encoding": "identity"}
    if span is not None:
        headers["Range"] = f"bytes={span[0]}-{span[1] - 1}"
    wait = (CONNECT_SECONDS, SILENCE_SECONDS)
    try:
        with client().get(path, headers=headers, stream=True, timeout=wait) as answer:
            _check(path, answer, span)
            yield answer
    except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
        raise _failure(error, path) from None


def _check(path: str, answer: Any, span: tuple[int, int] | None) -> None:
    status = answer.status_code
    if status == 416 and answer.headers.get("Content-Range") == "bytes */0":
        return  # The file has no bytes.
    if status not in (200, 206):
        import urllib3

        after = answer.headers.get("Retry-After")
        raise RequestFailed(
            f"HTTP {status}",
            status,
            is_temporary=status in _TEMPORARY,
            wait_s=urllib3.Retry().parse_retry_after(after) if after else 0.0,
        )
    encoding = answer.headers.get("Content-Encoding", "identity").lower()
    # Some servers call .gz files encoded, which are sent as they are.
    is_stored = encoding in ("gzip", "x-gzip") and plain_path(path).endswith("gz")
    if encoding != "identity" and not is_stored:
        raise _unfit(path, f"sends it with Content-Encoding {encoding}, although asked not to")
    if span is not None and status == 200 and answer.headers.get("Content-Length") != "0":
        raise _unfit(path, "sends no ranges of bytes")


def _entry(path: str, answer: Any, span: tuple[int, int] = (0, 1)) -> Entry:
    """Return size and version of a file as the answer to a request for a range states them."""
    if answer.status_code != 206:
        return Entry(path, 0, _version(path, answer, 0))
    stated = answer.headers.get("Content-Range", "")
    match = _CONTENT_RANGE.fullmatch(stated.strip())
    if match is None or int(match[1]) != span[0] or int(match[2]) >= span[1]:
        asked = f"{span[0]}-{span[1] - 1}"
        raise _unfit(path, f"was asked for bytes {asked}, and sends {stated[:80]!r}")
    nbytes = int(match[3])
    return Entry(path, nbytes, _version(path, answer, nbytes))


def _version(path: str, answer: Any, nbytes: int) -> str:
    etag = str(answer.headers.get("ETag", ""))
    if etag and not etag.startswith("W/"):
        return etag
    stated = [etag, str(answer.headers.get("Last-Modified", ""))]
    if nbytes and not any(stated):
        raise _unfit(
            path,
            "states neither ETag nor Last-Modified, so a change between two requests would not be "
            "noticed",
        )
    return " ".join([*filter(None, stated), str(nbytes)])


def _unfit(path: str, why: str) -> UsageError:
    return UsageError(
        f"cannot read {public_path(path)!r}: its server {why}: download the file first, and give "
        "its path"
    )


def _changed(path: str) -> InputChanged:
    return InputChanged(f"{public_path(path)!r} was replaced while it was read: run the job again")


def _failure(error: Exception, path: str) -> RequestFailed:
    import requests
    import urllib3

    clients = (requests.RequestException, urllib3.exceptions.HTTPError)
    cause: BaseException = error
    # What the client raises names the URL with its query; what it was raised for does not.
    while isinstance(cause, clients) and (inner := cause.__cause__ or cause.__context__):
        cause = inner
    text = str(cause).strip() or type(cause).__name__
    if isinstance(cause, clients):
        text = "no valid URL" if isinstance(cause, ValueError) else text.replace(path, "")
    if isinstance(cause, ssl.SSLCertVerificationError):
        text = f"{cause.verify_message}: if it is right, name its authority in REQUESTS_CA_BUNDLE"
    lasting = (ssl.SSLCertVerificationError, requests.TooManyRedirects, ValueError)
    is_unknown = isinstance(cause, socket.gaierror) and cause.errno != socket.EAI_AGAIN
    return RequestFailed(
        text.splitlines()[0].rstrip(".:, ")[:200],
        is_temporary=not (isinstance(cause, lasting) or is_unknown),
    )


class BeamFilesystem:
    """A read-only filesystem for all URLs that Beam's `FileSystems` can open."""

    def status(self, path: str) -> Entry | None:
        """Return size and version of a file, or None if there is no such file."""
        # Beam matches patterns, so it may find other names.
        return next((entry for entry in _matching(path) if entry.path == path), None)

    def files(self, directory: str) -> Iterator[Entry]:
        """Yield all files below a directory."""
        return iter(_matching(f"{directory}/**"))

    def is_directory(self, path: str) -> bool:
        """Return whether a file lies below that name."""
        return bool(_matching(f"{path}/**"))

    def names(self, directory: str) -> list[str]:
        """Return the sorted names in a directory."""
        below = (entry.path[len(directory) + 1 :] for entry in self.files(directory))
        return sorted({name.partition("/")[0] for name in below})

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
        with _described(path):
            # Beam must not decompress the file: the caller does.
            plain = beam.filesystem.CompressionTypes.UNCOMPRESSED
            return cast(BinaryIO, beam.filesystems.FileSystems.open(path, compression_type=plain))


def _matching(pattern: str) -> list[Entry]:
    """Return the files that match a pattern, in order."""
    beam = _beam(pattern)
    with _described(pattern):
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
def _described(path: str) -> Iterator[None]:
    """Raise Beam's errors as errors of this package, in one line with the URL."""
    try:
        yield
    except FileNotFoundError:
        raise
    except Exception as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        raise StorageError(f"cannot read {path!r} ({first}): try again later") from error
