"""What `verify` checks beside the shards: sidecars, rejects, ``job.json``, and stray files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from beam_tfrecord.dataset.verify_faults import Fault
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.hashes import data_hash, file_hash
from beam_tfrecord.manifest import MANIFEST_NAME, Manifest, directory_of
from beam_tfrecord.rejects import REJECTS_FILE, REJECTS_SCHEMA, rejects_hash
from beam_tfrecord.storage import exists, list_names, read_bytes, read_small
from beam_tfrecord.workdir.job_file import JOB_NAME, STORED_HASHES, load_job

SCHEMA_FILE = "schema.json"
# Ends of the names of files that are small.
_TEXTS = (".json", ".pbtxt")
_SHARD_LIKE = re.compile(r"[^._].*-\d+-of-\d+\.tfrecord(\.gz)?")


class DatasetFiles:
    """The files of a dataset beside its shards.

    Args:
        manifest_file: Path of the manifest, which the names of the others follow.
        manifest: What it says.
    """

    def __init__(self, manifest_file: str, manifest: Manifest) -> None:
        self._directory = directory_of(manifest_file)
        # Of a dataset with a file prefix, that prefix and a dash.
        self._prefix = os.path.basename(manifest_file).removesuffix(MANIFEST_NAME)
        self._manifest = manifest

    def faults(self) -> Iterator[Fault]:
        """Yield the faults of all of them."""
        for name, digest in self._manifest.sidecars.items():
            of_hash = list(self._hash_faults(name, digest, "the manifest"))
            yield from of_hash
            if name == self._prefix + SCHEMA_FILE and not of_hash:
                yield from self._schema_faults(name)
        of_job = list(self._job_faults())
        yield from of_job
        # What is known to be damaged is not worth parsing.
        if self._prefix + REJECTS_FILE not in {fault.path for fault in of_job}:
            yield from self._rejects_faults()
        yield from self._stray_faults()

    def notes(self) -> Iterator[str]:
        """Yield what could not be checked."""
        covers_more = self._manifest.compression or self._manifest.rejects.get("rows")
        if covers_more and not exists(self._path(self._prefix + JOB_NAME)):
            yield (
                f"{self._prefix}{JOB_NAME} is missing: gzip headers and the file of rejects are "
                "checked by their content alone"
            )

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)

    def _hash_faults(self, name: str, digest: str, source: str) -> Iterator[Fault]:
        try:
            path = self._path(name)
            seen = data_hash(read_small(path)) if name.endswith(_TEXTS) else file_hash(path)
        except (OSError, DataError) as error:
            yield Fault(name, "", f"the file cannot be read: {_reason(error)}")
            return
        if seen != digest:
            yield Fault(name, "", f"the hash is {seen}, {source} says {digest}")

    def _schema_faults(self, name: str) -> Iterator[Fault]:
        try:
            schema = Schema.loads(read_small(self._path(name)).decode())
        except (UsageError, UnicodeDecodeError) as error:
            yield Fault(name, "", f"the file cannot be read: {error}")
            return
        if schema.dumps() != self._manifest.schema.dumps():
            yield Fault(name, "", "the schema is not that of the manifest")

    def _job_faults(self) -> Iterator[Fault]:
        name = self._prefix + JOB_NAME
        try:
            job = load_job(read_small(self._path(name)).decode())
        except FileNotFoundError:
            return
        except OSError as error:
            yield Fault(name, "", f"the file cannot be read: {error.strerror}")
            return
        except (DataError, UnicodeDecodeError) as error:
            yield Fault(name, "", f"the file {_reason(error)}")
            return
        stored: Mapping[str, Any] = job.get(STORED_HASHES, {})
        for path, digest in stored.items():
            # Files that are gone are told where they are read.
            if exists(self._path(path)):
                yield from self._hash_faults(path, digest, name)

    def _rejects_faults(self) -> Iterator[Fault]:
        known = self._manifest.rejects
        name = self._prefix + REJECTS_FILE
        if not known.get("rows"):
            return
        try:
            table = load_rejects(self._path(name))
        except FileNotFoundError:
            yield Fault(name, "", "the file is missing")
            return
        except (OSError, DataError) as error:
            yield Fault(name, "", f"the file cannot be read: {str(error).splitlines()[0]}")
            return
        seen = rejects_hash(table)
        if table.num_rows != known["rows"]:
            yield Fault(name, "", f"{table.num_rows:,} rows, the manifest says {known['rows']:,}")
        elif seen != known.get("xxh64"):
            yield Fault(name, "", f"the hash is {seen}, the manifest says {known.get('xxh64')}")

    def _stray_faults(self) -> Iterator[Fault]:
        """Yield the files that readers who go by names would take for shards."""
        known = {shard.path for shard in self._manifest.shards}
        alike = _shard_names(known)
        for name in list_names(self._directory):
            if name in known or name.startswith((".", "_")):
                continue
            if alike.fullmatch(name):
                yield Fault(
                    name,
                    "",
                    "named like a shard of this dataset but not in its manifest: remove it",
                )


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "was changed after it was written"
    return (getattr(error, "strerror", None) or str(error)).splitlines()[0]


def load_rejects(path: str) -> pa.Table:
    """Read a file of rejects.

    Raises:
        OSError: It cannot be read.
        DataError: It is no file of rejects.
    """
    try:
        table = pq.read_table(pa.BufferReader(read_bytes(path)))
    except (ValueError, pa.ArrowException) as error:
        raise DataError(str(error)) from error
    if not table.schema.equals(REJECTS_SCHEMA):
        raise DataError("it has other columns than a file of rejects")
    return table


def _shard_names(known: set[str]) -> re.Pattern[str]:
    """Return what shards are named like: those of the manifest, but for their numbers.

    A dataset without shards, or one of several splits, may have lost a split: so every usual name
    counts, unless the manifest's own names are of another form.
    """
    if all(_SHARD_LIKE.fullmatch(name) for name in known):
        return _SHARD_LIKE
    forms = {re.sub(r"\d+", "0", name) for name in known}
    return re.compile("|".join(re.escape(form).replace("0", r"\d+") for form in sorted(forms)))
