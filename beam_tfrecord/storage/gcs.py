"""Google Cloud Storage through google-cloud-storage.

The client tries temporary failures again, resumes uploads and downloads after a break, and checks
uploads by CRC-32C. ``STORAGE_EMULATOR_HOST`` points it to another server. A version is the
generation of an object.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from typing import Any

from beam_tfrecord.errors import UsageError
from beam_tfrecord.extras import require
from beam_tfrecord.storage import objects
from beam_tfrecord.storage.filesystem import Entry
from beam_tfrecord.storage.objects import ObjectStore, Upload, split_url

_ENDPOINT = "STORAGE_EMULATOR_HOST"
_FIELDS = "items(name,size,generation),nextPageToken"
_NAMES = "items(name),prefixes,nextPageToken"


class GoogleStorage(ObjectStore):
    """Objects by ``gs://`` URL."""

    def client_errors(self) -> tuple[type[Exception], ...]:
        """Return the exceptions of the client and of the libraries below it."""
        require("gcp", "gs://")
        from google.api_core.exceptions import RetryError
        from google.auth.exceptions import GoogleAuthError
        from google.cloud.exceptions import GoogleCloudError
        from google.cloud.storage.exceptions import DataCorruption, InvalidResponse
        from requests.exceptions import RequestException

        answers = (GoogleCloudError, InvalidResponse, DataCorruption)
        return (*answers, GoogleAuthError, RequestException, RetryError, OSError)

    def status_code(self, error: Any) -> int:
        """Return the HTTP status of an exception, or 0."""
        response = getattr(error, "response", None)
        return int(getattr(error, "code", None) or getattr(response, "status_code", None) or 0)

    def status(self, path: str) -> Entry | None:
        """Return an object, or None if there is no such object."""
        if not split_url(path)[1]:
            return None  # A bucket is no object.
        blob = _blob(path)
        try:
            with self.request(path):
                blob.reload(retry=_retry())
        except FileNotFoundError:
            return None
        return Entry(path, blob.size, str(blob.generation))

    def entries(self, path: str) -> Iterator[Entry]:
        """Yield all objects whose URL begins with `path`."""
        bucket, prefix = split_url(path)
        with self.request(path, only_bucket=True):
            found = client().list_blobs(bucket, prefix=prefix, fields=_FIELDS, retry=_retry())
            for blob in found:
                yield Entry(f"gs://{bucket}/{blob.name}", blob.size, str(blob.generation))

    def children(self, path: str) -> Iterator[str]:
        """Yield what follows `path`, up to the next slash."""
        bucket, prefix = split_url(path)
        with self.request(path, only_bucket=True):
            found = client().list_blobs(
                bucket, prefix=prefix, delimiter="/", fields=_NAMES, retry=_retry()
            )
            for page in found.pages:
                yield from (blob.name[len(prefix) :] for blob in page)
                yield from (name[len(prefix) :].rstrip("/") for name in page.prefixes)

    def read_into(self, path: str, start: int, out: memoryview, version: str) -> None:
        """Fill `out` with the bytes of an object from `start`."""
        if not len(out):
            return
        sink = _Sink(out)
        with self.request(path, version=version):
            # As it is stored: a gzip file must not be decompressed on the way.
            _blob(path, version).download_to_file(
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
        with self.request(path):
            data: bytes = _blob(path).download_as_bytes(
                raw_download=True, checksum="crc32c", retry=_retry()
            )
        return data

    def start_upload(self, path: str) -> Upload:
        """Begin a resumable upload."""
        return _ResumableUpload(self, path)

    def put_whole(self, path: str, data: bytes) -> None:
        """Write an object in one request."""
        with self.request(path, only_bucket=True):
            _blob(path).upload_from_string(data, checksum="crc32c", retry=_retry())

    def put_if(self, path: str, data: bytes, version: str) -> str:
        """Write an object if it has this generation."""
        blob = _blob(path)
        with self.request(path, only_bucket=True):
            blob.upload_from_string(
                data,
                checksum="crc32c",
                if_generation_match=int(version or 0),
                retry=_retry(),
            )
        return str(blob.generation)

    def remove_one(self, path: str, version: str = "") -> None:
        """Remove an object; with a generation, only if the object has it."""
        condition = {"if_generation_match": int(version)} if version else {}
        with self.request(path):
            _blob(path).delete(**condition, retry=_retry())

    def copy(self, source: str, target: str) -> None:
        """Copy an object; within one bucket the store only writes its metadata anew."""
        blob = _blob(target)
        token = None
        with self.request(source):
            while True:
                token, _, _ = blob.rewrite(_blob(source), token=token, retry=_retry())
                if token is None:
                    return


class _ResumableUpload:
    """An upload that becomes an object with its last part."""

    def __init__(self, store: GoogleStorage, path: str) -> None:
        self._store = store
        self._path = path
        self._blob = _blob(path)
        self._writer = self._blob.open(
            "wb",
            chunk_size=objects.PART_BYTES,
            ignore_flush=True,
            checksum="crc32c",
            retry=_retry(),
        )

    def send(self, part: bytes) -> None:
        """Upload the next part."""
        with self._store.request(self._path, only_bucket=True):
            self._writer.write(part)

    def finish(self, last: bytes) -> None:
        """Upload the last part, and make the object visible."""
        from google.cloud.storage.exceptions import DataCorruption

        with self._store.request(self._path, only_bucket=True):
            self._writer.write(last)
            try:
                self._writer.close()
            except DataCorruption:
                # The client sees it only once the object exists, with other bytes than ours.
                self._blob.delete(retry=_retry())
                raise

    def cancel(self) -> None:
        """Discard the parts."""
        with self._store.request(self._path):
            self._writer.terminate()


class _Sink:
    """A file object that fills a buffer, and drops what is too much."""

    def __init__(self, out: memoryview) -> None:
        self._out = out
        self.filled = 0

    def write(self, data: bytes) -> int:
        """Append bytes to the buffer."""
        fitting = min(len(data), len(self._out) - self.filled)
        self._out[self.filled : self.filled + fitting] = data[:fitting]
        self.filled += fitting
        return len(data)


def client() -> Any:
    """Return the client of this process; a forked process must not share connections."""
    return _client_of(os.environ.get(_ENDPOINT, ""), os.getpid())


@functools.lru_cache(maxsize=2)
def _client_of(endpoint: str, process: int) -> Any:
    require("gcp", "gs://")
    from google.auth.exceptions import DefaultCredentialsError
    from google.cloud import storage

    try:
        return storage.Client()
    except DefaultCredentialsError as error:
        raise UsageError(
            "there are no credentials for gs://: run 'gcloud auth application-default login', or "
            "set GOOGLE_APPLICATION_CREDENTIALS"
        ) from error


def _retry() -> Any:
    from google.cloud.storage.retry import DEFAULT_RETRY

    return DEFAULT_RETRY.with_delay(
        initial=objects.FIRST_DELAY_SECONDS, maximum=objects.LONGEST_DELAY_SECONDS, multiplier=2
    ).with_timeout(objects.RETRY_SECONDS)


def _blob(path: str, version: str = "") -> Any:
    bucket, key = split_url(path)
    return client().bucket(bucket).blob(key, generation=int(version) if version else None)
