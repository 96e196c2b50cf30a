"""Publishing: shards get their names, then the manifest is written, last and at once.

Whatever happens on the way, there is never a manifest that points to something missing: the old
manifest goes away before the first shard is replaced, and leftovers of the old dataset go away
after the new manifest is there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from beam_tfrecord import native
from beam_tfrecord.errors import BeamTFRecordError, UsageError
from beam_tfrecord.exchange.merge import MASK64, Piece
from beam_tfrecord.exchange.plan import split_order
from beam_tfrecord.exchange.tally import Tally
from beam_tfrecord.layout import Layout
from beam_tfrecord.manifest import Manifest, Shard, Split
from beam_tfrecord.rejects import collect_rejects, save_rejects
from beam_tfrecord.storage import put, sync_directory
from beam_tfrecord.target import Target
from beam_tfrecord.tfmd import schema_pbtxt

REJECTS_FILE = "rejects/rejects-00000.parquet"


@dataclasses.dataclass(frozen=True)
class Identity:
    """What a dataset was made from.

    Attributes:
        fingerprint: Of input and settings; empty where unknown.
        source: For the manifest; None where rows came through Beam code.
    """

    fingerprint: str = ""
    source: Mapping[str, Any] | None = None


def publish(
    target: Target,
    layout: Layout,
    identity: Identity,
    tally: Tally,
    pieces: Sequence[Piece],
    *,
    job: Mapping[str, Any],
) -> Manifest:
    """Turn finished shards into a dataset.

    Args:
        target: Where to.
        layout: Settings of the dataset.
        identity: What it was made from.
        tally: Sums over all rows.
        pieces: The shards under their temporary names.
        job: What varies from run to run, for ``job.json``.
    """
    splits = named_shards(pieces, layout)
    rejects = collect_rejects(tally.reject_files)
    schema = tally.final_schema()
    sidecars = {
        "schema.json": schema.dumps().encode(),
        "schema.pbtxt": schema_pbtxt(schema).encode(),
    }
    manifest = Manifest(
        fingerprint=identity.fingerprint,
        content=f"{sum(piece.content for piece in pieces) & MASK64:016x}",
        order="shuffled" if layout.shuffle else "source",
        seed=layout.seed,
        compression=layout.compression,
        key=layout.key or None,
        group=layout.group or None,
        place=_place_of(layout, tally),
        schema=schema,
        source=identity.source,
        rejects={"rows": rejects.num_rows, "xxh64": _hash_of(rejects)},
        sidecars={
            target.name(name): f"{native.xxh64(data, 0):016x}" for name, data in sidecars.items()
        },
        splits={
            name: Split(tuple(shard for shard, _ in shards)) for name, shards in splits.items()
        },
    )
    old = _take_away_old_manifest(target)
    for shards in splits.values():
        for shard, piece in shards:
            os.replace(piece.path, os.path.join(target.directory, shard.path))
    for name, data in sidecars.items():
        put(target.path(name), data)
    _publish_rejects(target, rejects)
    stored = {shard.path: piece.stored_bytes for s in splits.values() for shard, piece in s}
    put(target.path("job.json"), (json.dumps({**job, "stored_bytes": stored}, indent=1)).encode())
    sync_directory(target.directory)
    put(target.manifest, manifest.dumps().encode())
    sync_directory(target.directory)
    _remove_leftovers(target, old, manifest)
    return manifest


def named_shards(pieces: Sequence[Piece], layout: Layout) -> dict[str, list[tuple[Shard, Piece]]]:
    """Number the shards of every split without gaps, and name them.

    Raises:
        UsageError: Two shards would get one name, or names would not tell splits apart.
    """
    named: dict[str, list[tuple[Shard, Piece]]] = {}
    for split in split_order({piece.split for piece in pieces}, layout):
        of_split = sorted(
            (piece for piece in pieces if piece.split == split and piece.examples),
            key=lambda piece: piece.order,
        )
        named[split] = [
            (
                Shard(
                    layout.names(split, number, len(of_split)),
                    piece.examples,
                    piece.bytes,
                    piece.xxh64,
                ),
                piece,
            )
            for number, piece in enumerate(of_split)
        ]
    if layout.names.prefix is not None and sum(bool(shards) for shards in named.values()) > 1:
        raise UsageError(
            f"splits need a directory: write to '{layout.names.prefix}/' instead of a file prefix"
        )
    names = [shard.path for shards in named.values() for shard, _ in shards]
    if len(set(names)) < len(names):
        raise UsageError(
            f"two shards would be named {max(names, key=names.count)!r}: "
            "number them with S in the shard name template"
        )
    return named


def _place_of(layout: Layout, tally: Tally) -> str:
    if layout.key:
        return "key"
    return "bytes" if tally.places_by_bytes else "origin"


def _hash_of(rejects: pa.Table) -> str:
    text = json.dumps(rejects.to_pylist(), ensure_ascii=False, sort_keys=True)
    return f"{native.xxh64(text.encode(), 0):016x}"


def _publish_rejects(target: Target, rejects: pa.Table) -> None:
    path = target.path(REJECTS_FILE)
    if rejects.num_rows:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        save_rejects(rejects, path)
    else:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.remove(path)
        # Files that are not ours keep the directory.
        with contextlib.suppress(OSError):
            os.rmdir(os.path.dirname(path))


def _take_away_old_manifest(target: Target) -> Manifest | None:
    """Remove the manifest of the dataset that is replaced; return it if it can be read."""
    if not os.path.exists(target.manifest):
        return None
    old = None
    with contextlib.suppress(BeamTFRecordError):
        old = Manifest.load(target.manifest)
    os.remove(target.manifest)
    sync_directory(target.directory)
    return old


def _remove_leftovers(target: Target, old: Manifest | None, new: Manifest) -> None:
    """Remove the files that only the replaced dataset had; others are not ours to touch."""
    if old is None:
        return
    kept = {shard.path for shard in new.shards} | set(new.sidecars)
    for path in [*(shard.path for shard in old.shards), *old.sidecars]:
        if path not in kept and os.path.dirname(path) == "":
            with contextlib.suppress(FileNotFoundError):
                os.remove(os.path.join(target.directory, path))
