"""Checks TFRecord files of other programs, which no manifest describes."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

from beam_tfrecord.base.progress import Progress, adder
from beam_tfrecord.check.verification import Fault, Verification
from beam_tfrecord.dataset.foreign import foreign_files
from beam_tfrecord.errors import DataError
from beam_tfrecord.records.examples import Discovered, ForeignRecord, merge_discovered, types_in
from beam_tfrecord.records.tfrecord import RecordFault, read_blocks
from beam_tfrecord.sources.base import InputFile

_FAULTS_A_FILE = 100
_NO_MANIFEST = (
    "there is no manifest: missing files, records and columns, other values, order and splits "
    "cannot be noticed"
)


def verify_foreign(
    path: str | os.PathLike[str], threads: int | None, progress: Progress | None
) -> Verification:
    """Check TFRecord files: checksums, that records are Examples, and the kinds of features."""
    _, files = foreign_files(path)
    advance = adder(progress, "verifying", sum(file.bytes for file in files))

    def check(file: InputFile) -> _Checked:
        checked = _check(file)
        advance(file.bytes)
        return checked

    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        results = list(pool.map(check, files))
    faults = [fault for one in results for fault in one.faults]
    faults += _kind_faults(results)
    return Verification(
        tuple(faults),
        shards=len(files),
        examples=sum(one.records for one in results),
        bytes=sum(one.bytes for one in results),
        notes=(_NO_MANIFEST,),
    )


@dataclasses.dataclass(frozen=True)
class _Checked:
    faults: list[Fault]
    records: int
    bytes: int
    features: Mapping[str, Discovered]


def _check(file: InputFile) -> _Checked:
    faults: list[Fault] = []
    records = nbytes = 0
    features: dict[str, Discovered] = {}

    def add(fault: RecordFault) -> None:
        faults.append(Fault(file.name, fault.where, fault.reason))

    try:
        for block in read_blocks(file.path, on_fault=add, is_once=True):
            records += len(block.starts)
            nbytes += len(block.data)
            try:
                features = merge_discovered(features, types_in(block.data, block.starts, file.name))
            except ForeignRecord as error:
                where = f"record {block.first_record + error.index}"
                faults.append(Fault(file.name, where, error.reason))
            except DataError as error:
                where = f"records from {block.first_record} on"
                faults.append(Fault(file.name, where, str(error)))
    except (DataError, OSError) as error:
        faults.append(Fault(file.name, "", str(error)))
    if (more := len(faults) - _FAULTS_A_FILE) > 0:
        faults[_FAULTS_A_FILE:] = [Fault(file.name, "", f"{more:,} more faults")]
    return _Checked(faults, records, nbytes, features)


def _kind_faults(results: list[_Checked]) -> Iterator[Fault]:
    """Yield a fault for each file in which a feature has another kind than in the files before."""
    features: dict[str, Discovered] = {}
    for one in results:
        try:
            features = merge_discovered(features, one.features)
        except DataError as error:
            file = next(iter(one.features.values())).file
            yield Fault(file, "", str(error))
