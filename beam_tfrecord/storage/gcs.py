"""Google Cloud Storage, through its Python client.

The client tries temporary failures again by itself, resumes uploads and downloads where they
broke off, and checks uploads by CRC-32C; ``STORAGE_EMULATOR_HOST`` points it elsewhere.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator, Sequence
from typing import Any

from beam_tfrecord.errors import BeamTFRecordError, StorageError, UsageError
from beam_tfrecord.extras import require
from beam_tfrecord.storage import objects
from beam_tfrecord.storage.filesystem import Entry
from beam_tfrecord.storage.objects import ObjectStore, Upload, all_of, split_url

_ENDPOINT = "STORAGE_EMULATOR_HOST"
_FIELDS = "items(name,size,generation),nextPageToken"
_NAMES = "items(name),prefixes,nextPageToken"


class GoogleStorage(ObjectStore):
    """Objects by ``gs://`` URL."""

    def status(self, path: str) -> Entry | None:
        """Return an object, or None where there is none."""
        if not split_url(path)[1]:
            return None  # A bucket is no object.
        blob = self._blob(path)
        try:
            with _told(path):
                blob.reload(retry=_retry())
        except FileNotFoundError:
            return None
        return Entry(path, blob.size, str(blob.generation))

    def entries(self, path: str) -> Iterator[Entry]:
        """Yield all objects whose URL begins with `path`."""
        bucket, prefix = split_url(path)
        with _told(path, bucket_only=True):
            for blob in _client().list_blobs(bucket, prefix=prefix, fields=_FIELDS, retry=_retry()):
                yield Entry(f"gs://{bucket}/{blob.name}", blob.size, str(blob.generation))

    def children(self, path: str) -> Iterator[str]:
        """Yield what follows `path`, up to the next slash."""
        bucket, prefix = split_url(path)
        with _told(path, bucket_only=True):
            listed = _client().list_blobs(
                bucket, prefix=prefix, delimiter="/", fields=_NAMES, retry=_retry()
            )
            for page in listed.pages:
                yield from (blob.name[len(prefix) :] for blob in page)
                yield from (name[len(prefix) :].rstrip("/") for name in page.prefixes)

    def read_into(self, path: str, start: int, out: memoryview, version: str) -> None:
        """Fill `out` with the bytes of an object from `start`."""
        if not len(out):
            return
        blob = self._blob(path, version)
        sink = _Sink(out)
        with _told(path, version=version):
            # As it is stored: a gzip file must not be decompressed on the way.
            blob.download_to_file(
                sink,
                start=start,
                end=start + len(out) - 1,
                raw_download=True,
                checksum=None,
                retry=_retry(),
            )
        if sink.filled < len(out):
            raise EOFError(f"{path!r} ends {len(out) - sink.filled} bytes early")

    def read_bytes(self, path: str) -> bytes:
        """Return all bytes of an object, checked by its CRC-32C."""
        with _told(path):
            data: bytes = self._blob(path).download_as_bytes(
                raw_download=True, checksum="crc32c", retry=_retry()
            )
        return data

    def part_bytes(self, number: int) -> int:
        """Return the size of a part: all are equal."""
        return objects.PART_BYTES

    def start_upload(self, path: str) -> Upload:
        """Begin a resumable upload."""
        return _ResumableUpload(self._blob(path), path)

    def put_whole(self, path: str, data: bytes) -> None:
        """Write an object in one request."""
        with _told(path, bucket_only=True):
            self._blob(path).upload_from_string(data, checksum="crc32c", retry=_retry())

    def put_matching(self, path: str, data: bytes, version: str) -> str | None:
        """Write an object on condition of its generation."""
        from google.api_core.exceptions import PreconditionFailed

        blob = self._blob(path)
        try:
            with _told(path, bucket_only=True):
                blob.upload_from_string(
                    data,
                    checksum="crc32c",
                    if_generation_match=int(version or 0),
                    retry=_retry(),
                )
        except PreconditionFailed:
            return self._version_if(path, data)
        return str(blob.generation)

    def remove_matching(self, path: str, version: str) -> None:
        """Remove an object where its generation is the one given."""
        from google.api_core.exceptions import PreconditionFailed

        with contextlib.suppress(FileNotFoundError, PreconditionFailed), _told(path):
            self._blob(path).delete(if_generation_match=int(version), retry=_retry())

    def copy(self, source: str, target: str) -> None:
        """Copy an object: within one bucket only its metadata is written anew."""
        blob = self._blob(target)
        token = None
        with _told(source):
            while True:
                token, _, _ = blob.rewrite(self._blob(source), token=token, retry=_retry())
                if token is None:
                    return

    def remove_many(self, paths: Sequence[str]) -> None:
        """Remove objects; they may be gone already."""
        all_of(self._remove_one, paths)

    def _remove_one(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError), _told(path):
            self._blob(path).delete(retry=_retry())

    def _blob(self, path: str, version: str = "") -> Any:
        bucket, key = split_url(path)
        return _client().bucket(bucket).blob(key, generation=int(version) if version else None)


class _ResumableUpload:
    """An upload that becomes an object with its last part."""

    def __init__(self, blob: Any, path: str) -> None:
        self._blob = blob
        self._path = path
        self._writer = blob.open(
            "wb",
            chunk_size=objects.PART_BYTES,
            ignore_flush=True,
            checksum="crc32c",
            retry=_retry(),
        )

    def send(self, part: bytes) -> None:
        """Upload the next part."""
        with _told(self._path, bucket_only=True):
            self._writer.write(part)

    def finish(self, last: bytes) -> None:
        """Upload the last part, and make the object visible."""
        from google.cloud.storage.exceptions import DataCorruption

        with _told(self._path, bucket_only=True):
            self._writer.write(last)
            try:
                self._writer.close()
            except DataCorruption:
                # Known only once the object is there: it is not what was written.
                self._blob.delete(retry=_retry())
                raise

    def cancel(self) -> None:
        """Forget the parts."""
        with _told(self._path):
            self._writer.terminate()


class _Sink:
    """Writes what comes into a buffer."""

    def __init__(self, out: memoryview) -> None:
        self._out = out
        self.filled = 0

    def write(self, data: bytes) -> int:
        """Take the next bytes; more than were asked for are dropped."""
        taken = min(len(data), len(self._out) - self.filled)
        self._out[self.filled : self.filled + taken] = data[:taken]
        self.filled += taken
        return len(data)


def _client() -> Any:
    return _client_of(os.environ.get(_ENDPOINT, ""), os.getpid())


@functools.lru_cache(maxsize=2)
def _client_of(endpoint: str, process: int) -> Any:
    """Return the client of this process, anew where the endpoint is another one."""
    require("gcp", "gs://")
    from google.auth.exceptions import DefaultCredentialsError
    from google.cloud import storage

    try:
        client = storage.Client()
    except DefaultCredentialsError as error:
        raise UsageError(
            "there are no credentials for gs://: run 'gcloud auth application-default login', or "
            "set GOOGLE_APPLICATION_CREDENTIALS"
        ) from error
    return client


def _retry() -> Any:
    from google.cloud.storage.retry import DEFAULT_RETRY

    return DEFAULT_RETRY.with_delay(
        initial=objects.FIRST_DELAY_SECONDS, maximum=objects.LONGEST_DELAY_SECONDS, multiplier=2
    ).with_timeout(objects.RETRY_SECONDS)


@contextlib.contextmanager
def _told(path: str, *, bucket_only: bool = False, version: str = "") -> Iterator[None]:
    """Raise the client's errors as ours, in one line with the URL.

    Args:
        path: What is asked for.
        bucket_only: Nothing but the bucket can be missing.
        version: The version that is asked for; empty: any.
    """
    require("gcp", "gs://")
    from google.api_core.exceptions import PreconditionFailed, RetryError
    from google.auth.exceptions import GoogleAuthError
    from google.cloud.exceptions import GoogleCloudError
    from google.cloud.storage.exceptions import DataCorruption, InvalidResponse
    from requests.exceptions import RequestException

    try:
        yield
    except (BeamTFRecordError, PreconditionFailed, FileNotFoundError):
        raise
    except (
        GoogleCloudError,
        GoogleAuthError,
        InvalidResponse,
        DataCorruption,
        RequestException,
        RetryError,
        OSError,
    ) as error:
        raise _meaning(error, path, bucket_only, version) from error


def _meaning(error: Exception, path: str, bucket_only: bool, version: str) -> Exception:
    code = getattr(error, "code", None) or getattr(
        getattr(error, "response", None), "status_code", None
    )
    if code == 404 and bucket_only:
        return objects.no_bucket(path)
    if code == 404:
        return objects.replaced(path) if version else FileNotFoundError(f"no such object: {path!r}")
    if code == 416:
        return EOFError(f"{path!r} ends early")
    if code in (401, 403):
        return objects.not_permitted(path)
    cause = getattr(error, "cause", None) or error
    return StorageError(f"cannot reach {path!r}: {objects.one_line(cause)}: try again later")
