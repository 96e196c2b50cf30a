"""Amazon S3 and what speaks its protocol, through boto3.

The client tries temporary failures again by itself; ``AWS_ENDPOINT_URL`` points it elsewhere.
Conditions on writes (``If-None-Match``, ``If-Match``) are S3's own.
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

    def status(self, path: str) -> Entry | None:
        """Return an object, or None where there is none."""
        if not split_url(path)[1]:
            return None  # A bucket is no object.
        try:
            head = _call(path, "head_object", **_named(path))
        except FileNotFoundError:
            return None
        return Entry(path, head["ContentLength"], head["ETag"])

    def entries(self, path: str) -> Iterator[Entry]:
        """Yield all objects whose URL begins with `path`."""
        bucket, prefix = split_url(path)
        for page in _pages(path, "list_objects_v2", Bucket=bucket, Prefix=prefix):
            for found in page.get("Contents", ()):
                yield Entry(f"s3://{bucket}/{found['Key']}", found["Size"], found["ETag"])

    def children(self, path: str) -> Iterator[str]:
        """Yield what follows `path`, up to the next slash."""
        bucket, prefix = split_url(path)
        asked = {"Bucket": bucket, "Prefix": prefix, "Delimiter": "/"}
        for page in _pages(path, "list_objects_v2", **asked):
            yield from (found["Key"][len(prefix) :] for found in page.get("Contents", ()))
            for found in page.get("CommonPrefixes", ()):
                yield found["Prefix"][len(prefix) :].rstrip("/")

    def read_into(self, path: str, start: int, out: memoryview, version: str) -> None:
        """Fill `out` with the bytes of an object from `start`."""
        filled = 0
        condition = {"IfMatch": version} if version else {}

        def fetch() -> None:
            # A body may break off where the client no longer looks: go on from there.
            nonlocal filled
            while filled < len(out):
                wanted = f"bytes={start + filled}-{start + len(out) - 1}"
                body = _client().get_object(**_named(path), Range=wanted, **condition)["Body"]
                with contextlib.closing(body):
                    while piece := body.read(_PIECE_BYTES):
                        out[filled : filled + len(piece)] = piece
                        filled += len(piece)
                if filled < len(out):
                    raise EOFError(f"{path!r} ends {len(out) - filled} bytes early")

        with _told(path):
            objects.retried(fetch, _broke_off)

    def read_bytes(self, path: str) -> bytes:
        """Return all bytes of an object."""

        def fetch() -> bytes:
            body = _client().get_object(**_named(path))["Body"]
            with contextlib.closing(body):
                data: bytes = body.read()
            return data

        with _told(path):
            return objects.retried(fetch, _broke_off)

    def part_bytes(self, number: int) -> int:
        """Return the size of a part."""
        return objects.PART_BYTES * (1 + number // _PARTS_OF_A_SIZE)

    def start_upload(self, path: str) -> Upload:
        """Begin a multipart upload."""
        return _MultipartUpload(path)

    def put_whole(self, path: str, data: bytes) -> None:
        """Write an object in one request."""
        _call(path, "put_object", **_named(path), Body=data)

    def put_matching(self, path: str, data: bytes, version: str) -> str | None:
        """Write an object on condition of its etag."""
        condition = {"IfMatch": version} if version else {"IfNoneMatch": "*"}
        try:
            written = _call(path, "put_object", **_named(path), Body=data, **condition)
        except (objects.ConditionFailed, FileNotFoundError):
            return self._version_if(path, data)
        return str(written["ETag"])

    def remove_matching(self, path: str, version: str) -> None:
        """Remove an object where its etag is the one given."""
        with contextlib.suppress(FileNotFoundError, objects.ConditionFailed):
            _call(path, "delete_object", **_named(path), IfMatch=version)

    def copy(self, source: str, target: str) -> None:
        """Copy an object, in parts where it is large."""
        bucket, key = split_url(source)
        with _told(source):
            _client().copy({"Bucket": bucket, "Key": key}, *split_url(target))

    def remove_many(self, paths: Sequence[str]) -> None:
        """Remove objects; they may be gone already."""
        for low in range(0, len(paths), _REMOVED_AT_ONCE):
            some = paths[low : low + _REMOVED_AT_ONCE]
            keys = [{"Key": split_url(path)[1]} for path in some]
            asked = {"Objects": keys, "Quiet": True}
            bucket = split_url(some[0])[0]
            done = _call(some[0], "delete_objects", Bucket=bucket, Delete=asked)
            for failed in done.get("Errors", ()):
                raise StorageError(
                    f"cannot remove 's3://{bucket}/{failed['Key']}': {failed['Message']}"
                )

    def cancel_uploads(self, path: str) -> None:
        """Forget uploads below `path` that were never finished."""
        bucket, prefix = split_url(path)
        for page in _pages(path, "list_multipart_uploads", Bucket=bucket, Prefix=prefix):
            for begun in page.get("Uploads", ()):
                with contextlib.suppress(FileNotFoundError):
                    _call(
                        path,
                        "abort_multipart_upload",
                        Bucket=bucket,
                        Key=begun["Key"],
                        UploadId=begun["UploadId"],
                    )


class _MultipartUpload:
    """An upload that becomes an object when it is completed."""

    def __init__(self, path: str) -> None:
        self._path = path
        begun = _call(path, "create_multipart_upload", **_named(path))
        self._upload = {**_named(path), "UploadId": begun["UploadId"]}
        self._parts: list[dict[str, Any]] = []
        self._bytes = 0

    def send(self, part: bytes) -> None:
        """Upload the next part."""
        number = len(self._parts) + 1
        sent = _call(self._path, "upload_part", **self._upload, PartNumber=number, Body=part)
        # The checksum that the client chose goes with the part's number and etag.
        told = {name: sent[name] for name in sent if name == "ETag" or name.startswith("Checksum")}
        told.pop("ChecksumType", None)
        self._parts.append({**told, "PartNumber": number})
        self._bytes += len(part)

    def finish(self, last: bytes) -> None:
        """Upload the last part, and make the object visible."""
        self.send(last)
        parts = {"Parts": self._parts}
        try:
            _call(self._path, "complete_multipart_upload", **self._upload, MultipartUpload=parts)
        except FileNotFoundError:
            # An earlier try got through though its answer was lost: then the upload is no more.
            size = _call(self._path, "head_object", **_named(self._path))["ContentLength"]
            if size != self._bytes:
                raise StorageError(f"cannot complete {self._path!r}: try again") from None

    def cancel(self) -> None:
        """Forget the parts."""
        with contextlib.suppress(FileNotFoundError):
            _call(self._path, "abort_multipart_upload", **self._upload)


def _named(path: str) -> dict[str, str]:
    bucket, key = split_url(path)
    return {"Bucket": bucket, "Key": key}


def _call(path: str, operation: str, **arguments: Any) -> Any:
    with _told(path):
        return getattr(_client(), operation)(**arguments)


def _pages(path: str, operation: str, **arguments: Any) -> Iterator[Any]:
    with _told(path):
        yield from _client().get_paginator(operation).paginate(**arguments)


def _client() -> Any:
    return _client_of(tuple(os.environ.get(name) for name in _ENDPOINTS), os.getpid())


@functools.lru_cache(maxsize=2)
def _client_of(environment: tuple[str | None, ...], process: int) -> Any:
    """Return the client of this process, anew where the environment is another one."""
    try:
        import boto3
        from botocore.config import Config
    except ImportError as error:
        raise UsageError("s3:// needs boto3: pip install 'beam-tfrecord[aws]'") from error

    retries = {"mode": "standard", "total_max_attempts": ATTEMPTS}
    return boto3.client("s3", config=Config(retries=retries, max_pool_connections=32))


def _broke_off(error: Exception) -> bool:
    from botocore.exceptions import HTTPClientError, IncompleteReadError, ResponseStreamingError
    from urllib3.exceptions import HTTPError

    temporary = (HTTPClientError, IncompleteReadError, ResponseStreamingError, HTTPError, OSError)
    return isinstance(error, temporary)


@contextlib.contextmanager
def _told(path: str) -> Iterator[None]:
    """Raise the client's errors as ours, in one line with the URL."""
    _client()
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError
    from urllib3.exceptions import HTTPError

    try:
        yield
    except NoCredentialsError as error:
        raise UsageError(
            "there are no credentials for s3://: run 'aws configure', or set AWS_ACCESS_KEY_ID "
            "and AWS_SECRET_ACCESS_KEY"
        ) from error
    except ClientError as error:
        raise _meaning(error, path) from error
    except (BotoCoreError, HTTPError) as error:
        raise StorageError(
            f"cannot reach {path!r}: {objects.one_line(error)}: try again later"
        ) from error


def _meaning(error: Any, path: str) -> Exception:
    told = error.response.get("Error", {})
    code = str(told.get("Code", ""))
    if code == "NoSuchBucket":
        return objects.no_bucket(path)
    if code in ("NoSuchKey", "NoSuchUpload", "404"):
        return FileNotFoundError(f"no such object: {path!r}")
    if code in ("PreconditionFailed", "ConditionalRequestConflict", "412"):
        return objects.replaced(path)
    if code in ("InvalidRange", "416"):
        return EOFError(f"{path!r} ends early")
    if code in ("AccessDenied", "403", "401", "InvalidAccessKeyId", "SignatureDoesNotMatch"):
        return objects.not_permitted(path)
    return StorageError(f"cannot reach {path!r}: {objects.one_line(error)}: try again later")
