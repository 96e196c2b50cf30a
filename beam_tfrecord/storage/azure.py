"""Azure Blob Storage through azure-storage-blob.

A bucket is a container of one storage account. The account and its credentials come from the
variables of Azure's own command line: ``AZURE_STORAGE_CONNECTION_STRING``, or
``AZURE_STORAGE_ACCOUNT`` with ``AZURE_STORAGE_KEY``, ``AZURE_STORAGE_SAS_TOKEN`` or whatever
azure-identity finds (a login, a managed identity). A version is the etag of a blob.
"""

from __future__ import annotations

import functools
import os
import time
import uuid
from collections.abc import Iterator
from typing import Any

from beam_tfrecord.errors import StorageError, UsageError
from beam_tfrecord.extras import require
from beam_tfrecord.storage import objects
from beam_tfrecord.storage.filesystem import Entry
from beam_tfrecord.storage.objects import ObjectStore, Upload, split_url

_VARIABLES = ("CONNECTION_STRING", "ACCOUNT", "KEY", "SAS_TOKEN")
# Delays of 2, 4, … 64 s: about as long as `objects.RETRY_SECONDS`.
RETRIES, DELAY_BASE = 6, 2
_COPY_LOOK_SECONDS = 0.5


class AzureStorage(ObjectStore):
    """Blobs by ``az://container/name`` URL."""

    def client_errors(self) -> tuple[type[Exception], ...]:
        """Return the exceptions of the client."""
        require("azure", "az://")
        from azure.core.exceptions import AzureError

        return (AzureError,)

    def status_code(self, error: Any) -> int:
        """Return the HTTP status of an exception, or 0."""
        return int(getattr(error, "status_code", None) or 0)

    def meaning(self, error: Exception, path: str, only_bucket: bool, version: str) -> Exception:
        """Return the exception that stands for a client's."""
        from azure.core.exceptions import ClientAuthenticationError

        if isinstance(error, ClientAuthenticationError) and not self.status_code(error):
            return UsageError(
                "there are no credentials for az://: run 'az login', or set AZURE_STORAGE_KEY or "
                "AZURE_STORAGE_SAS_TOKEN"
            )
        no_bucket = getattr(error, "error_code", "") == "ContainerNotFound"
        return super().meaning(error, path, only_bucket or no_bucket, version)

    def status(self, path: str) -> Entry | None:
        """Return a blob, or None if there is no such blob."""
        if not split_url(path)[1]:
            return None  # A container is no blob.
        try:
            with self.request(path):
                found = _blob(path).get_blob_properties()
        except FileNotFoundError:
            return None
        return None if _is_folder(found) else Entry(path, found.size, found.etag.strip('"'))

    def entries(self, path: str) -> Iterator[Entry]:
        """Yield all blobs whose URL begins with `path`."""
        bucket, prefix = split_url(path)
        with self.request(path, only_bucket=True):
            container = client().get_container_client(bucket)
            for found in container.list_blobs(name_starts_with=prefix, include=["metadata"]):
                if not _is_folder(found):
                    etag = found.etag.strip('"')
                    yield Entry(f"az://{bucket}/{found.name}", found.size, etag)

    def children(self, path: str) -> Iterator[str]:
        """Yield what follows `path`, up to the next slash."""
        bucket, prefix = split_url(path)
        with self.request(path, only_bucket=True):
            container = client().get_container_client(bucket)
            for found in container.walk_blobs(name_starts_with=prefix):
                yield found.name[len(prefix) :].rstrip("/")

    def read_into(self, path: str, start: int, out: memoryview, version: str) -> None:
        """Fill `out` with the bytes of a blob from `start`."""
        if not len(out):
            return
        filled = 0

        def fetch() -> None:
            nonlocal filled
            size = len(out) - filled
            body = _blob(path).download_blob(start + filled, size, **_condition(version))
            for piece in body.chunks():
                out[filled : filled + len(piece)] = piece
                filled += len(piece)

        with self.request(path, version=version):
            objects.retried(fetch, self._broke_off)
        if filled < len(out):
            raise EOFError(f"{path!r} ends {len(out) - filled} bytes early")

    def read_bytes(self, path: str) -> bytes:
        """Return all bytes of a blob."""
        with self.request(path):
            return objects.retried(
                lambda: bytes(_blob(path).download_blob().readall()), self._broke_off
            )

    def _broke_off(self, error: Exception) -> bool:
        """Return whether an answer ended early, which the client tries again only for seconds."""
        return isinstance(error, self.client_errors()) and not self.status_code(error)

    def start_upload(self, path: str) -> Upload:
        """Begin an upload in blocks."""
        return _BlockUpload(self, path)

    def put_whole(self, path: str, data: bytes) -> None:
        """Write a blob in one request."""
        with self.request(path, only_bucket=True):
            _blob(path).upload_blob(data, overwrite=True, validate_content=True)

    def put_if(self, path: str, data: bytes, version: str) -> str:
        """Write a blob if it has this etag."""
        with self.request(path):
            written = _blob(path).upload_blob(
                data, overwrite=bool(version), validate_content=True, **_condition(version)
            )
        return str(written["etag"]).strip('"')

    def remove_one(self, path: str, version: str = "") -> None:
        """Remove a blob; with an etag, only if the blob has it."""
        with self.request(path):
            _blob(path).delete_blob(**_condition(version))

    def copy(self, source: str, target: str) -> None:
        """Copy a blob within the account, and wait until all of it is there."""
        blob = _blob(target)
        with self.request(source):
            status = blob.start_copy_from_url(_blob(source).url)["copy_status"]
            while status == "pending":
                time.sleep(_COPY_LOOK_SECONDS)
                status = blob.get_blob_properties().copy.status
        if status != "success":
            raise StorageError(f"cannot copy {source!r} to {target!r}: {status}: try again later")


class _BlockUpload:
    """An upload that becomes a blob when its list of blocks is committed."""

    def __init__(self, store: AzureStorage, path: str) -> None:
        self._store = store
        self._path = path
        self._name = uuid.uuid4().hex
        self._blocks: list[str] = []

    def send(self, part: bytes) -> None:
        """Upload the next block."""
        block = f"{self._name}{len(self._blocks):08d}"
        with self._store.request(self._path, only_bucket=True):
            _blob(self._path).stage_block(block, part, validate_content=True)
        self._blocks.append(block)

    def finish(self, last: bytes) -> None:
        """Upload the last block, and make the blob visible."""
        from azure.storage.blob import BlobBlock

        self.send(last)
        with self._store.request(self._path, only_bucket=True):
            _blob(self._path).commit_block_list([BlobBlock(block) for block in self._blocks])

    def cancel(self) -> None:
        """Leave the blocks: the store drops what nobody commits within a week."""


def client() -> Any:
    """Return the client of this process; a forked process must not share connections."""
    variables = tuple(os.environ.get(f"AZURE_STORAGE_{name}", "") for name in _VARIABLES)
    return _client_of(variables, os.getpid())


@functools.lru_cache(maxsize=2)
def _client_of(variables: tuple[str, ...], process: int) -> Any:
    require("azure", "az://")
    from azure.identity import DefaultAzureCredential
    from azure.storage.blob import BlobServiceClient, ExponentialRetry

    connection, account, key, token = variables
    options = {
        "retry_policy": ExponentialRetry(
            initial_backoff=objects.FIRST_DELAY_SECONDS,
            increment_base=DELAY_BASE,
            retry_total=RETRIES,
            random_jitter_range=objects.FIRST_DELAY_SECONDS,
        ),
        "max_single_get_size": objects.READ_BYTES,
        "max_chunk_get_size": objects.READ_BYTES,
    }
    if connection:
        return BlobServiceClient.from_connection_string(connection, **options)
    if not account:
        raise UsageError(
            "az:// needs a storage account: set AZURE_STORAGE_ACCOUNT, or "
            "AZURE_STORAGE_CONNECTION_STRING"
        )
    credential = key or token or DefaultAzureCredential()
    url = f"https://{account}.blob.core.windows.net"
    return BlobServiceClient(url, credential=credential, **options)


def _blob(path: str) -> Any:
    bucket, key = split_url(path)
    return client().get_blob_client(bucket, key)


def _condition(version: str) -> dict[str, Any]:
    """Return the arguments of a request for one version; empty: for any."""
    from azure.core import MatchConditions

    if not version:
        return {}
    return {"etag": f'"{version}"', "match_condition": MatchConditions.IfNotModified}


def _is_folder(found: Any) -> bool:
    """Return whether a blob stands for a directory of a hierarchical namespace."""
    return (found.metadata or {}).get("hdi_isfolder") == "true"
