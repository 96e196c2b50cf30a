"""`verify`: check everything a manifest says about a dataset against its files."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from beam_tfrecord.dataset.verify_duplicates import DuplicateFinder
from beam_tfrecord.dataset.verify_faults import Fault, Verification
from beam_tfrecord.dataset.verify_files import DatasetFiles
from beam_tfrecord.dataset.verify_shards import CheckedShard, ShardChecker
from beam_tfrecord.dataset.verify_splits import SplitChecker
from beam_tfrecord.dataset.verify_stage import verify_stage
from beam_tfrecord.errors import DataError
from beam_tfrecord.manifest import BY_BYTES, Manifest, directory_of, manifest_path
from beam_tfrecord.stage_manifest import is_stage

__all__ = ["Fault", "Verification", "verify"]

_CONTENT_BITS = 64
_DUPLICATES_SHOWN = 10


def verify(path: str | os.PathLike[str], *, threads: int | None = None) -> Verification:
    """Check a dataset, or a stage: every CRC, count, size and hash, the schema, and stray files.

    Where the bytes of an example, its group or a column decides its split, that is checked too: of
    every example in shards of up to 4 MiB, of one in 16 in larger ones.

    Every shard is read once, several at a time; memory is a few blocks a thread. Examples that are
    in more than one split with the same bytes are a fault where the bytes decide the split, a note
    where they may be. It takes 8 bytes for each example outside of the largest split and, above 64
    million of them, looks at a fixed part only.

    Args:
        path: The dataset's directory, file prefix, or manifest.
        threads: How many shards to read at a time; None: as many as there are cores.

    Raises:
        UsageError: There is no dataset.
    """
    if is_stage(path):
        return verify_stage(path)
    file = manifest_path(path)
    try:
        manifest = Manifest.load(path)
    except DataError as error:
        return Verification((Fault(os.path.basename(file), "", str(error)),))
    duplicates = DuplicateFinder(manifest)
    splits = SplitChecker(manifest)
    checker = ShardChecker(directory_of(file), manifest, duplicates, splits)
    checked = _check_all(manifest, checker, duplicates.largest, threads)
    others = DatasetFiles(file, manifest)
    faults = [*others.faults(), *(fault for one in checked for fault in one.faults)]
    faults += _content_faults(os.path.basename(file), manifest, checked)
    shared = duplicates.shared()
    if not any(one.faults for one in checked):
        faults += _schema_faults(os.path.basename(file), manifest, checker.unseen_features())
        if not len(shared):
            faults += _split_faults(manifest, checker, splits)
    notes = list(others.notes())
    if len(shared) and manifest.split_by == BY_BYTES:
        faults += _duplicate_faults(manifest, checker, duplicates.largest, shared)
    elif len(shared):
        part = f" (of one in {duplicates.parts} looked at)" if duplicates.parts > 1 else ""
        notes.append(f"{len(shared):,} distinct examples{part} are in more than one split")
    return Verification(
        faults=tuple(faults),
        shards=len(checked),
        examples=sum(one.examples for one in checked),
        bytes=sum(one.bytes for one in checked),
        notes=tuple(notes),
    )


def _check_all(
    manifest: Manifest, checker: ShardChecker, largest: str, threads: int | None
) -> list[CheckedShard]:
    """Return what checking gave, in the order of the manifest."""
    # The largest split last: its examples are looked up among those of the others.
    order = sorted(manifest.splits, key=lambda name: name == largest)
    shards = [shard for name in order for shard in manifest.splits[name].shards]
    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        of_path = dict(zip((s.path for s in shards), pool.map(checker.check, shards), strict=True))
    return [of_path[shard.path] for shard in manifest.shards]


def _content_faults(name: str, manifest: Manifest, checked: list[CheckedShard]) -> Iterator[Fault]:
    # A damaged shard has told its own story: the sum over all would only repeat it.
    content = sum(one.content for one in checked) % 2**_CONTENT_BITS
    if not any(one.faults for one in checked) and f"{content:016x}" != manifest.content:
        yield Fault(
            name, "content", f"the hash of all examples is {content:016x}, not {manifest.content}"
        )


def _schema_faults(name: str, manifest: Manifest, unseen: tuple[str, ...]) -> Iterator[Fault]:
    """Yield what the schema says of columns that no example has."""
    for column in unseen:
        observed = manifest.schema[column].observed
        if observed is not None and (having := manifest.examples - observed.missing):
            yield Fault(
                name, f"column {column!r}", f"no example has it, the schema says {having:,}"
            )
    described = [feature.observed is not None for feature in manifest.schema.features]
    if any(described) and not all(described):
        column = manifest.schema.names[described.index(False)]
        yield Fault(
            name, f"column {column!r}", "the schema lacks what was seen when it was written"
        )


def _split_faults(manifest: Manifest, checker: ShardChecker, splits: SplitChecker) -> list[Fault]:
    misnamed = list(splits.misnamed())
    misplaced = list(splits.misplaced())
    if misplaced and manifest.split_by == BY_BYTES:
        # Examples that came encoded were split by their canonical form.
        splits.clear()
        for shard in manifest.shards:
            checker.look_again(shard)
        misplaced = list(splits.misplaced())
    return misnamed + misplaced


def _duplicate_faults(
    manifest: Manifest,
    checker: ShardChecker,
    largest: str,
    shared: npt.NDArray[np.uint64],
) -> Iterator[Fault]:
    """Yield where examples are that another split has too, outside of the largest split."""
    places = (
        (shard.path, record)
        for name, split in manifest.splits.items()
        if name != largest
        for shard in split.shards
        for record in checker.records_of(shard, shared)
    )
    for path, record in itertools.islice(places, _DUPLICATES_SHOWN):
        yield Fault(path, f"record {record}", "another split has the same example")
    if len(shared) > _DUPLICATES_SHOWN:
        yield Fault("", "", f"{len(shared):,} distinct examples are in more than one split")
