"""Reads and writes Google Cloud Storage (``gs://``) through google-cloud-storage.

The client library repeats requests after temporary failures, resumes broken uploads and downloads,
and checks uploads by CRC-32C. ``STORAGE_EMULATOR_HOST`` points it to another server. The version of
a file is the generation of its object.
"""

from __future__ import annotations

import functools
import io
import os
from collections.abc import Iterator, Sequence
from typing import Any

from beam_tfrecord.base.extras import require
from beam_tfrecord.errors import UsageError
from beam_tfrecord.storage import object_store
from beam_tfrecord.storage.object_store import BufferSink, ObjectStore, split_url
from beam_tfrecord.storage.paths import Entry

_ENDPOINT = "STORAGE_EMULATOR_HOST"
_CREDENTIALS = "GOOGLE_APPLICATION_CREDENTIALS"
_FIELDS = "items(name,size,generation),prefixes,nextPageToken"


class GcsStorage(ObjectStore):
    """The object store for ``gs://bucket/name`` URLs."""

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

    def head(self, path: str) -> Entry:
        """Return size and version of an object."""
        blob = _blob(path)
        blob.reload(retry=_retry())
        return _entry(path, blob)

    def listed(self, path: str, *, is_deep: bool) -> Iterator[Entry]:
        """Yield the objects below `path`; if not `is_deep`, directories too, with size 0."""
        bucket, prefix = split_url(path)
        delimiter = None if is_deep else "/"
        found = client().list_blobs(
            bucket, prefix=prefix, delimiter=delimiter, fields=_FIELDS, retry=_retry()
        )
        for page in found.pages:
            for blob in page:
                yield _entry(f"gs://{bucket}/{blob.name}", blob)
            for name in page.prefixes:
                yield Entry(f"gs://{bucket}/{name}", 0, "")

    def download(
        self, path: str, sink: BufferSink | io.BytesIO, span: tuple[int, int] | None, version: str
    ) -> None:
        """Write an object, checked by CRC-32C, or a range of its bytes, unchecked, to `sink`."""
        options: dict[str, Any] = {"checksum": "crc32c"}
        if span is not None:
            options = {"start": span[0], "end": span[1] - 1, "checksum": None}
        # Raw, since the client would decompress an object with Content-Encoding gzip.
        _blob(path, version).download_to_file(sink, raw_download=True, retry=_retry(), **options)

    def put(self, path: str, data: bytes, version: str | None) -> str:
        """Write an object in one request, and return its generation."""
        blob = _blob(path)
        condition = None if version is None else int(version or 0)
        blob.upload_from_string(
            data, checksum="crc32c", if_generation_match=condition, retry=_retry()
        )
        return str(blob.generation)

    def begin_upload(self, path: str) -> Any:
        """Begin a resumable upload, and return its file object."""
        return _blob(path).open(
            "wb",
            chunk_size=object_store.PART_BYTES,
            ignore_flush=True,
            checksum="crc32c",
            retry=_retry(),
        )

    def send_part(self, path: str, upload: Any, number: int, part: bytes) -> None:
        """Upload the next part."""
        upload.write(part)

    def finish_upload(self, path: str, upload: Any, parts: Sequence[Any], nbytes: int) -> None:
        """Complete the upload."""
        from google.cloud.storage.exceptions import DataCorruption

        try:
            upload.close()
        except DataCorruption:
            # The client finds the damage only when the object exists, with wrong bytes.
            self.delete(path, "")
            raise

    def cancel_upload(self, path: str, upload: Any) -> None:
        """Discard the parts of an upload."""
        upload.terminate()

    def delete(self, path: str, version: str) -> None:
        """Remove an object; unless `version` is empty, only if it is the object's generation."""
        condition = {"if_generation_match": int(version)} if version else {}
        _blob(path).delete(**condition, retry=_retry())

    def copy(self, source: str, target: str) -> None:
        """Copy an object; within one bucket the store copies only its metadata."""
        blob = _blob(target)
        token, _, _ = blob.rewrite(_blob(source), retry=_retry())
        while token is not None:
            token, _, _ = blob.rewrite(_blob(source), token=token, retry=_retry())


def client() -> Any:
    """Return the client of this process; a forked process gets its own connections."""
    return _client_of(os.environ.get(_ENDPOINT, ""), os.getpid())


@functools.lru_cache(maxsize=2)
def _client_of(endpoint: str, process: int) -> Any:
    require("gcp", "gs://")
    from google.auth.exceptions import DefaultCredentialsError
    from google.cloud import storage

    try:
        return storage.Client()
    except DefaultCredentialsError as error:
        if os.environ.get(_CREDENTIALS):
            raise UsageError(f"{_CREDENTIALS} has no credentials for gs://: {error}") from error
        raise UsageError(
            "there are no credentials for gs://: run 'gcloud auth application-default login', or "
            "set GOOGLE_APPLICATION_CREDENTIALS"
        ) from error


def _retry() -> Any:
    from google.cloud.storage.retry import DEFAULT_RETRY

    return DEFAULT_RETRY.with_delay(
        initial=object_store.FIRST_DELAY_SECONDS,
        maximum=object_store.LONGEST_DELAY_SECONDS,
        multiplier=2,
    ).with_timeout(object_store.RETRY_SECONDS)


def _blob(path: str, version: str = "") -> Any:
    bucket, key = split_url(path)
    return client().bucket(bucket).blob(key, generation=int(version) if version else None)


def _entry(path: str, blob: Any) -> Entry:
    return Entry(path, blob.size, str(blob.generation))
