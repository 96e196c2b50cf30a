"""Reads and writes Azure Blob Storage (``az://``) through azure-storage-blob.

A bucket is a container of one storage account. The account and its credentials come from the
variables of Azure's own command line: ``AZURE_STORAGE_CONNECTION_STRING``, or
``AZURE_STORAGE_ACCOUNT`` with ``AZURE_STORAGE_KEY``, ``AZURE_STORAGE_SAS_TOKEN``, or a login or
managed identity that azure-identity finds. The version of a file is the etag of its blob.
"""

from __future__ import annotations

import functools
import io
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from beam_tfrecord.base.extras import require
from beam_tfrecord.errors import StorageError, UsageError
from beam_tfrecord.storage import object_store
from beam_tfrecord.storage.object_store import BufferSink, ObjectStore, split_url
from beam_tfrecord.storage.paths import Entry

_VARIABLES = ("CONNECTION_STRING", "ACCOUNT", "KEY", "SAS_TOKEN")
# Delays of 2, 4, … 64 s: about as long as `object_store.RETRY_SECONDS`.
RETRIES, DELAY_BASE = 6, 2
_COPY_POLL_SECONDS = 0.5


class AzureStorage(ObjectStore):
    """The object store for ``az://container/name`` URLs."""

    def client_errors(self) -> tuple[type[Exception], ...]:
        """Return the exceptions of the client library."""
        require("azure", "az://")
        from azure.core.exceptions import AzureError

        return (AzureError,)

    def status_code(self, error: Any) -> int:
        """Return the HTTP status of an exception, or 0."""
        return int(getattr(error, "status_code", None) or 0)

    def translate_error(
        self, error: Exception, path: str, only_bucket: bool, version: str
    ) -> Exception:
        """Return the exception of this package for an exception of the client."""
        from azure.core.exceptions import ClientAuthenticationError

        if isinstance(error, ClientAuthenticationError) and not self.status_code(error):
            return UsageError(
                "there are no credentials for az://: run 'az login', or set AZURE_STORAGE_KEY or "
                "AZURE_STORAGE_SAS_TOKEN"
            )
        no_bucket = getattr(error, "error_code", "") == "ContainerNotFound"
        return super().translate_error(error, path, only_bucket or no_bucket, version)

    def head(self, path: str) -> Entry | None:
        """Return size and version of a blob; None if the blob stands for a directory."""
        found = _blob(path).get_blob_properties()
        return None if _is_folder(found) else _entry(path, found)

    def listed(self, path: str, *, is_deep: bool) -> Iterator[Entry]:
        """Yield the blobs below `path`; if not `is_deep`, directories too, and all with size 0."""
        bucket, prefix = split_url(path)
        container = client().get_container_client(bucket)
        if not is_deep:
            for found in container.walk_blobs(name_starts_with=prefix):
                yield Entry(f"az://{bucket}/{found.name}", 0, "")
            return
        for found in container.list_blobs(name_starts_with=prefix, include=["metadata"]):
            if not _is_folder(found):
                yield _entry(f"az://{bucket}/{found.name}", found)

    def download(
        self, path: str, sink: BufferSink | io.BytesIO, span: tuple[int, int] | None, version: str
    ) -> None:
        """Write a blob, or the bytes of `span`, to `sink`."""
        start, size = (None, None) if span is None else (span[0], span[1] - span[0])
        for piece in _blob(path).download_blob(start, size, **_condition(version)).chunks():
            sink.write(piece)

    def is_interrupted(self, error: Exception) -> bool:
        """Return whether an answer ended early, which the client retries only for seconds."""
        return isinstance(error, self.client_errors()) and not self.status_code(error)

    def put(self, path: str, data: bytes, version: str | None) -> str:
        """Write a blob in one request, and return its etag."""
        condition = _condition(version or "")
        written = _blob(path).upload_blob(
            data, overwrite=version != "", validate_content=True, **condition
        )
        return str(written["etag"]).strip('"')

    def begin_upload(self, path: str) -> str:
        """Return a random text with which the names of an upload's blocks begin."""
        return uuid.uuid4().hex

    def send_part(self, path: str, upload: str, number: int, part: bytes) -> str:
        """Upload a block, and return its name."""
        block = f"{upload}{number:08d}"
        _blob(path).stage_block(block, part, validate_content=True)
        return block

    def finish_upload(self, path: str, upload: str, parts: Sequence[str], nbytes: int) -> None:
        """Commit the list of blocks."""
        from azure.storage.blob import BlobBlock

        _blob(path).commit_block_list([BlobBlock(block) for block in parts])

    def cancel_upload(self, path: str, upload: str) -> None:
        """Do nothing: the store drops blocks that nobody commits within a week."""

    def delete(self, path: str, version: str) -> None:
        """Remove a blob; unless `version` is empty, only if it is the etag of the blob."""
        _blob(path).delete_blob(**_condition(version))

    def copy(self, source: str, target: str) -> None:
        """Copy a blob within the account, and wait until the copy is complete."""
        blob = _blob(target)
        status = blob.start_copy_from_url(_blob(source).url)["copy_status"]
        while status == "pending":
            time.sleep(_COPY_POLL_SECONDS)
            status = blob.get_blob_properties().copy.status
        if status != "success":
            raise StorageError(f"cannot copy {source!r} to {target!r} ({status}): try again later")


def client() -> Any:
    """Return the client of this process; a forked process gets its own connections."""
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
            initial_backoff=object_store.FIRST_DELAY_SECONDS,
            increment_base=DELAY_BASE,
            retry_total=RETRIES,
            random_jitter_range=object_store.FIRST_DELAY_SECONDS,
        ),
        "max_single_get_size": object_store.READ_BYTES,
        "max_chunk_get_size": object_store.READ_BYTES,
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
    """Return the arguments of a request for one version; an empty version means any."""
    from azure.core import MatchConditions

    if not version:
        return {}
    return {"etag": f'"{version}"', "match_condition": MatchConditions.IfNotModified}


def _is_folder(found: Any) -> bool:
    """Return whether a blob stands for a directory of a hierarchical namespace."""
    return (found.metadata or {}).get("hdi_isfolder") == "true"


def _entry(path: str, found: Any) -> Entry:
    return Entry(path, found.size, found.etag.strip('"'))
