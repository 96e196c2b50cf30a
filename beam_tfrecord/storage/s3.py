"""Amazon S3, and stores with the same protocol, through boto3.

The client tries temporary failures again; ``AWS_ENDPOINT_URL`` points it to another server. A
version is the etag of an object. Conditions on writes are S3's own (``If-None-Match``,
``If-Match``).
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator, Sequence
from typing import Any

from beam_tfrecord.errors import StorageError, UsageError
from beam_tfrecord.storage import objects
from beam_tfrecord.storage.filesystem import Entry
from beam_tfrecord.storage.objects import ObjectStore, Upload, split_url

_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_PROFILE")
# With the delays of the client's standard mode, about as long as `objects.RETRY_SECONDS`.
ATTEMPTS = 10
_REMOVED_AT_ONCE = 1000
_PIECE_BYTES = 2**20
# An upload has at most 10,000 parts: later ones are larger, so that 880 GB go into one object.
_PARTS_OF_A_SIZE = 1000


class AmazonStorage(ObjectStore):
    """Objects by ``s3://`` URL."""

    def client_errors(self) -> tuple[type[Exception], ...]:
        """Return the exceptions of the client and of the library below it."""
        client()
        from botocore.exceptions import BotoCoreError, ClientError
        from urllib3.exceptions import HTTPError

        return (ClientError, BotoCoreError, HTTPError)

    def status_code(self, error: Any) -> int:
        """Return the HTTP status of an exception, or 0."""
        response = getattr(error, "response", None) or {}
        return int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))

    def meaning(self, error: Exception, path: str, only_bucket: bool, version: str) -> Exception:
        """Return the exception that stands for a client's."""
        from botocore.exceptions import NoCredentialsError

        if isinstance(error, NoCredentialsError):
            return UsageError(
                "there are no credentials for s3://: run 'aws configure', or set "
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            )
        response = getattr(error, "response", None) or {}
        no_bucket = response.get("Error", {}).get("Code") == "NoSuchBucket"
        return super().meaning(error, path, only_bucket or no_bucket, version)

    def status(self, path: str) -> Entry | None:
        """Return an object, or None if there is no such object."""
        if not split_url(path)[1]:
            return None  # A bucket is no object.
        try:
            head = self._call(path, "head_object")
        except FileNotFoundError:
            return None
        return Entry(path, head["ContentLength"], head["ETag"])

    def entries(self, path: str) -> Iterator[Entry]:
        """Yield all objects whose URL begins with `path`."""
        bucket = split_url(path)[0]
        for page in self._pages(path, "list_objects_v2"):
            for found in page.get("Contents", ()):
                yield Entry(f"s3://{bucket}/{found['Key']}", found["Size"], found["ETag"])

    def children(self, path: str) -> Iterator[str]:
        """Yield what follows `path`, up to the next slash."""
        prefix = split_url(path)[1]
        for page in self._pages(path, "list_objects_v2", Delimiter="/"):
            yield from (found["Key"][len(prefix) :] for found in page.get("Contents", ()))
            for found in page.get("CommonPrefixes", ()):
                yield found["Prefix"][len(prefix) :].rstrip("/")

    def read_into(self, path: str, start: int, out: memoryview, version: str) -> None:
        """Fill `out` with the bytes of an object from `start`."""
        filled = 0
        condition = {"IfMatch": version} if version else {}

        def fetch() -> None:
            nonlocal filled
            while filled < len(out):
                wanted = f"bytes={start + filled}-{start + len(out) - 1}"
                body = client().get_object(**_named(path), Range=wanted, **condition)["Body"]
                with contextlib.closing(body):
                    while piece := body.read(_PIECE_BYTES):
                        out[filled : filled + len(piece)] = piece
                        filled += len(piece)
                if filled < len(out):
                    raise EOFError(f"{path!r} ends {len(out) - filled} bytes early")

        with self.request(path, version=version):
            objects.retried(fetch, _broke_off)

    def read_bytes(self, path: str) -> bytes:
        """Return all bytes of an object."""

        def fetch() -> bytes:
            body = client().get_object(**_named(path))["Body"]
            with contextlib.closing(body):
                data: bytes = body.read()
            return data

        with self.request(path):
            return objects.retried(fetch, _broke_off)

    def part_bytes(self, number: int) -> int:
        """Return the size of a part."""
        return objects.PART_BYTES * (1 + number // _PARTS_OF_A_SIZE)

    def start_upload(self, path: str) -> Upload:
        """Begin a multipart upload."""
        return _MultipartUpload(self, path)

    def put_whole(self, path: str, data: bytes) -> None:
        """Write an object in one request."""
        self._call(path, "put_object", Body=data)

    def put_if(self, path: str, data: bytes, version: str) -> str:
        """Write an object if it has this etag."""
        condition = {"IfMatch": version} if version else {"IfNoneMatch": "*"}
        return str(self._call(path, "put_object", Body=data, **condition)["ETag"])

    def remove_one(self, path: str, version: str = "") -> None:
        """Remove an object; with an etag, only if the object has it."""
        self._call(path, "delete_object", **({"IfMatch": version} if version else {}))

    def copy(self, source: str, target: str) -> None:
        """Copy an object, in parts if it is large."""
        with self.request(source):
            client().copy(_named(source), *split_url(target))

    def remove_many(self, paths: Sequence[str]) -> None:
        """Remove objects, if they exist, many with one request."""
        for low in range(0, len(paths), _REMOVED_AT_ONCE):
            some = paths[low : low + _REMOVED_AT_ONCE]
            asked = {"Objects": [{"Key": split_url(path)[1]} for path in some], "Quiet": True}
            bucket = split_url(some[0])[0]
            with self.request(some[0]):
                done = client().delete_objects(Bucket=bucket, Delete=asked)
            for failed in done.get("Errors", ()):
                raise StorageError(
                    f"cannot remove 's3://{bucket}/{failed['Key']}': {failed['Message']}"
                )

    def cancel_uploads(self, path: str) -> None:
        """Discard the parts of unfinished uploads below `path`."""
        bucket = split_url(path)[0]
        for page in self._pages(path, "list_multipart_uploads"):
            for begun in page.get("Uploads", ()):
                url = f"s3://{bucket}/{begun['Key']}"
                with contextlib.suppress(FileNotFoundError):
                    self._call(url, "abort_multipart_upload", UploadId=begun["UploadId"])

    def _call(self, path: str, operation: str, **arguments: Any) -> Any:
        with self.request(path):
            return getattr(client(), operation)(**_named(path), **arguments)

    def _pages(self, path: str, operation: str, **arguments: Any) -> Iterator[Any]:
        bucket, prefix = split_url(path)
        with self.request(path):
            pages = client().get_paginator(operation)
            yield from pages.paginate(Bucket=bucket, Prefix=prefix, **arguments)


class _MultipartUpload:
    """An upload that becomes an object when it is completed."""

    def __init__(self, store: AmazonStorage, path: str) -> None:
        self._path = path
        upload = store._call(path, "create_multipart_upload")["UploadId"]
        self._call = functools.partial(store._call, path, UploadId=upload)
        self._store = store
        self._parts: list[dict[str, Any]] = []
        self._bytes = 0

    def send(self, part: bytes) -> None:
        """Upload the next part."""
        number = len(self._parts) + 1
        sent = self._call(operation="upload_part", PartNumber=number, Body=part)
        # The checksum that the client chose goes with the part's number and etag.
        names = [name for name in sent if name == "ETag" or name.startswith("Checksum")]
        about = {name: sent[name] for name in names if name != "ChecksumType"}
        self._parts.append({**about, "PartNumber": number})
        self._bytes += len(part)

    def finish(self, last: bytes) -> None:
        """Upload the last part, and make the object visible."""
        self.send(last)
        try:
            self._call(
                operation="complete_multipart_upload", MultipartUpload={"Parts": self._parts}
            )
        except FileNotFoundError:
            # An earlier try got through though its answer was lost: then the upload is gone.
            found = self._store.status(self._path)
            if found is None or found.bytes != self._bytes:
                raise StorageError(f"cannot complete {self._path!r}: try again") from None

    def cancel(self) -> None:
        """Discard the parts."""
        self._call(operation="abort_multipart_upload")


def client() -> Any:
    """Return the client of this process; a forked process must not share connections."""
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


def _broke_off(error: Exception) -> bool:
    """Return whether an answer ended early, which the client does not look at."""
    from botocore.exceptions import HTTPClientError, IncompleteReadError, ResponseStreamingError
    from urllib3.exceptions import HTTPError

    temporary = (HTTPClientError, IncompleteReadError, ResponseStreamingError, HTTPError, OSError)
    return isinstance(error, temporary)
