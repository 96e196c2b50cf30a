"""Reads and writes Amazon S3 (``s3://``), and stores with the same protocol, through boto3.

The client library repeats requests after temporary failures; ``AWS_ENDPOINT_URL`` points it to
another server. The version of a file is the etag of its object. Conditional writes use S3's headers
``If-None-Match`` and ``If-Match``.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
from collections.abc import Iterator, Sequence
from typing import Any

from beam_tfrecord.errors import BeamTFRecordError, StorageError, UsageError
from beam_tfrecord.storage.object_store import BufferSink, ObjectStore, split_url
from beam_tfrecord.storage.paths import Entry

_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_PROFILE")
# With the delays of the client's standard mode, about as long as `object_store.RETRY_SECONDS`.
ATTEMPTS = 10
_PIECE_BYTES = 2**20


class S3Storage(ObjectStore):
    """The object store for ``s3://bucket/name`` URLs."""

    def client_errors(self) -> tuple[type[Exception], ...]:
        """Return the exceptions of the client library and of the library below it."""
        client()
        from botocore.exceptions import BotoCoreError, ClientError
        from urllib3.exceptions import HTTPError

        return (ClientError, BotoCoreError, HTTPError)

    def status_code(self, error: Any) -> int:
        """Return the HTTP status of an exception, or 0."""
        response = getattr(error, "response", None) or {}
        return int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))

    def translate_error(
        self, error: Exception, path: str, only_bucket: bool, version: str
    ) -> Exception:
        """Return the exception of this package for an exception of the client."""
        from botocore.exceptions import NoCredentialsError

        if isinstance(error, NoCredentialsError):
            return UsageError(
                "there are no credentials for s3://: run 'aws configure', or set "
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            )
        response = getattr(error, "response", None) or {}
        no_bucket = response.get("Error", {}).get("Code") == "NoSuchBucket"
        return super().translate_error(error, path, only_bucket or no_bucket, version)

    def head(self, path: str) -> Entry:
        """Return size and version of an object."""
        head = client().head_object(**_named(path))
        return Entry(path, head["ContentLength"], head["ETag"])

    def listed(self, path: str, *, is_deep: bool) -> Iterator[Entry]:
        """Yield the objects below `path`; if not `is_deep`, directories too, with size 0."""
        bucket = split_url(path)[0]
        for page in _pages(path, "list_objects_v2", **({} if is_deep else {"Delimiter": "/"})):
            for found in page.get("Contents", ()):
                yield Entry(f"s3://{bucket}/{found['Key']}", found["Size"], found["ETag"])
            for found in page.get("CommonPrefixes", ()):
                yield Entry(f"s3://{bucket}/{found['Prefix']}", 0, "")

    def download(
        self, path: str, sink: BufferSink | io.BytesIO, span: tuple[int, int] | None, version: str
    ) -> None:
        """Write an object, or the bytes of `span`, to `sink`."""
        asked = _named(path)
        if span is not None:
            asked["Range"] = f"bytes={span[0]}-{span[1] - 1}"
        if version:
            asked["IfMatch"] = version
        with contextlib.closing(client().get_object(**asked)["Body"]) as body:
            while piece := body.read(_PIECE_BYTES):
                sink.write(piece)

    def is_interrupted(self, error: Exception) -> bool:
        """Return whether an answer ended early, after which the client does not try again."""
        from botocore.exceptions import HTTPClientError, IncompleteReadError, ResponseStreamingError
        from urllib3.exceptions import HTTPError

        broken = (HTTPClientError, IncompleteReadError, ResponseStreamingError, HTTPError, OSError)
        return isinstance(error, broken)

    def put(self, path: str, data: bytes, version: str | None) -> str:
        """Write an object in one request, and return its etag."""
        condition = {"IfMatch": version} if version else {"IfNoneMatch": "*"}
        condition = {} if version is None else condition
        return str(client().put_object(**_named(path), Body=data, **condition)["ETag"])

    def begin_upload(self, path: str) -> str:
        """Begin a multipart upload, and return its id."""
        return str(client().create_multipart_upload(**_named(path))["UploadId"])

    def send_part(self, path: str, upload: str, number: int, part: bytes) -> dict[str, Any]:
        """Upload a part, and return its number, etag and checksum."""
        about: dict[str, Any] = {"PartNumber": number + 1}
        sent = client().upload_part(**_named(path), UploadId=upload, Body=part, **about)
        # The checksum that the client chose goes with the part's number and etag.
        names = {name for name in sent if name == "ETag" or name.startswith("Checksum")}
        return about | {name: sent[name] for name in names - {"ChecksumType"}}

    def finish_upload(self, path: str, upload: str, parts: Sequence[Any], nbytes: int) -> None:
        """Complete the upload."""
        try:
            with self.request(path):
                client().complete_multipart_upload(
                    **_named(path), UploadId=upload, MultipartUpload={"Parts": parts}
                )
        except FileNotFoundError:
            # If an earlier try succeeded but its answer was lost, the upload is gone.
            found = self.status(path)
            if found is None or found.bytes != nbytes:
                raise StorageError(f"cannot complete {path!r}: try again") from None

    def cancel_upload(self, path: str, upload: str) -> None:
        """Discard the parts of an upload."""
        client().abort_multipart_upload(**_named(path), UploadId=upload)

    def delete(self, path: str, version: str) -> None:
        """Remove an object; unless `version` is empty, only if it is the etag of the object."""
        client().delete_object(**_named(path), **({"IfMatch": version} if version else {}))

    def copy(self, source: str, target: str) -> None:
        """Copy an object, in parts if it is large."""
        client().copy(_named(source), *split_url(target))

    def remove_tree(self, path: str) -> None:
        """Remove all objects below a name, and the parts of unfinished uploads there."""
        bucket = split_url(path)[0]
        # The user may be allowed to write but not to list uploads. What stays only costs storage.
        with contextlib.suppress(BeamTFRecordError), self.request(path):
            for page in _pages(f"{path}/", "list_multipart_uploads"):
                for begun in page.get("Uploads", ()):
                    url = f"s3://{bucket}/{begun['Key']}"
                    with contextlib.suppress(FileNotFoundError), self.request(url):
                        self.cancel_upload(url, begun["UploadId"])
        super().remove_tree(path)


def client() -> Any:
    """Return the client of this process; a forked process gets its own connections."""
    return _client_of(tuple(os.environ.get(name) for name in _ENDPOINTS), os.getpid())


@functools.lru_cache(maxsize=2)
def _client_of(environment: tuple[str | None, ...], process: int) -> Any:
    try:
        import boto3
        from botocore.config import Config
    except ImportError as error:
        raise UsageError("s3:// needs boto3: pip install 'beam-tfrecord[aws]'") from error

    retries = {"mode": "standard", "total_max_attempts": ATTEMPTS}
    return boto3.client("s3", config=Config(retries=retries, max_pool_connections=32))


def _named(path: str) -> dict[str, str]:
    bucket, key = split_url(path)
    return {"Bucket": bucket, "Key": key}


def _pages(path: str, operation: str, **arguments: Any) -> Iterator[Any]:
    bucket, prefix = split_url(path)
    pages = client().get_paginator(operation)
    yield from pages.paginate(Bucket=bucket, Prefix=prefix, **arguments)
