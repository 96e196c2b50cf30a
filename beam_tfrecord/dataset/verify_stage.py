"""`verify` of a stage: every file against its manifest."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from beam_tfrecord.dataset.verify_faults import Fault, Verification
from beam_tfrecord.errors import DataError
from beam_tfrecord.hashes import file_hash
from beam_tfrecord.manifest import MANIFEST_NAME
from beam_tfrecord.stage_manifest import StageFile, StageManifest
from beam_tfrecord.storage import absolute_path, file_size, list_names, open_read


def verify_stage(path: str | os.PathLike[str]) -> Verification:
    """Check size, hash and number of rows of every file of a stage, and that no other lies there.

    Args:
        path: Directory of the stage, or its manifest.
    """
    try:
        manifest = StageManifest.load(path)
    except DataError as error:
        return Verification((Fault(MANIFEST_NAME, "", str(error)),))
    directory = absolute_path(path)
    if directory.endswith(".json"):
        directory = os.path.dirname(directory)
    faults = [fault for file in manifest.files for fault in _faults_of(directory, file)]
    known = {file.path for file in manifest.files}
    faults += [
        Fault(name, "", "is named like a file of this stage but is not in its manifest")
        for name in list_names(directory)
        if name.startswith("part-") and name.endswith(".parquet") and name not in known
    ]
    at_fault = {fault.path for fault in faults}
    sound = [file for file in manifest.files if file.path not in at_fault]
    return Verification(
        tuple(faults),
        shards=len(manifest.files),
        examples=sum(file.rows for file in sound),
        bytes=sum(file.bytes for file in sound),
    )


def _faults_of(directory: str, file: StageFile) -> Iterator[Fault]:
    path = os.path.join(directory, file.path)
    try:
        nbytes, xxh64 = file_size(path), file_hash(path)
    except FileNotFoundError:
        yield Fault(file.path, "", "is missing")
        return
    except (OSError, DataError) as error:
        yield Fault(file.path, "", f"cannot be read: {error}")
        return
    if nbytes != file.bytes:
        yield Fault(file.path, "", f"has {nbytes:,} bytes, the manifest says {file.bytes:,}")
    elif xxh64 != file.xxh64:
        yield Fault(file.path, "", f"has hash {xxh64}, the manifest says {file.xxh64}")
    elif (rows := _rows_in(path)) != file.rows:
        yield Fault(file.path, "", f"has {rows:,} rows, the manifest says {file.rows:,}")


def _rows_in(path: str) -> int:
    with open_read(path, buffer_bytes=0) as file:
        return int(pq.ParquetFile(pa.PythonFile(file, mode="r")).metadata.num_rows)
