"""Publishing: finished shards become a dataset, with its schema and manifest."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

from beam_tfrecord.errors import UsageError
from beam_tfrecord.exchange.merge import MASK64, Piece
from beam_tfrecord.exchange.plan import split_order
from beam_tfrecord.exchange.tally import Tally
from beam_tfrecord.features.feature import LABELS_FILE, labels_text
from beam_tfrecord.features.feature_spec import schema_pbtxt
from beam_tfrecord.hashes import data_hash
from beam_tfrecord.jobs.publishing import put_in_place
from beam_tfrecord.jobs.target import Target
from beam_tfrecord.layout import Layout
from beam_tfrecord.manifest import (
    ASSIGNED,
    BY_BYTES,
    BY_COLUMN,
    BY_GROUP,
    Manifest,
    Shard,
    Split,
)
from beam_tfrecord.preprocess.request import fitted_files
from beam_tfrecord.rejects import SAVED_FILE, join_rejects
from beam_tfrecord.storage import Lease, read_bytes


@dataclasses.dataclass(frozen=True)
class Identity:
    """What a dataset was made from.

    Attributes:
        fingerprint: Of input, settings and writing rules; empty where unknown.
        older: What the fingerprint was under each older number of rules, from 0.
        source: For the manifest; None where rows came through Beam code.
    """

    fingerprint: str = ""
    older: tuple[str, ...] = ()
    source: Mapping[str, Any] | None = None


def publish(
    target: Target,
    layout: Layout,
    identity: Identity,
    tally: Tally,
    pieces: Sequence[Piece],
    *,
    directory: str,
    job: Mapping[str, Any],
    fitted: str | None = None,
    lease: Lease | None = None,
) -> Manifest:
    """Turn finished shards into a dataset.

    Args:
        target: Where to.
        layout: Settings of the dataset.
        identity: What it was made from.
        tally: Sums over all rows.
        pieces: The shards under their temporary names.
        directory: The job's temporary directory, where all of them are.
        job: What varies from run to run, for ``job.json``.
        fitted: Directory of the preprocessing function that the rows went through.
        lease: The right to write there, which is checked before every step; None: nobody else
            writes.

    Raises:
        LeaseLost: The directory is another job's by now; nothing of that job was touched.
    """
    splits = named_shards(pieces, layout)
    saved = os.path.join(directory, SAVED_FILE)
    rejects = join_rejects(tally.reject_files, saved)
    schema = tally.final_schema()
    sidecars = {
        "schema.json": schema.dumps().encode(),
        "schema.pbtxt": schema_pbtxt(schema).encode(),
    }
    if labels := next((feature.labels for feature in schema.features if feature.labels), ()):
        sidecars[LABELS_FILE] = labels_text(labels)
    if fitted is not None:
        sidecars |= {name: read_bytes(os.path.join(fitted, name)) for name in fitted_files(fitted)}
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
        rejects={"rows": rejects.rows, "xxh64": rejects.xxh64},
        sidecars={target.name(name): data_hash(data) for name, data in sidecars.items()},
        splits={
            name: Split(tuple(shard for shard, _ in shards)) for name, shards in splits.items()
        },
        split_by=_split_by(layout, tally),
    )
    published = [pair for shards in splits.values() for pair in shards]
    put_in_place(
        target,
        [(shard.path, piece) for shard, piece in published],
        manifest.dumps(),
        sidecars=sidecars,
        rejects=rejects,
        directory=directory,
        job=job,
        lease=lease,
    )
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


def _split_by(layout: Layout, tally: Tally) -> str | None:
    if tally.splits_assigned:
        return ASSIGNED
    if layout.splits.column is not None:
        return BY_COLUMN
    if layout.splits.is_single:
        return None
    return BY_GROUP if layout.group else BY_BYTES
