"""Finished Parquet files become a stage."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from beam_tfrecord.exchange.shard_writers import Piece
from beam_tfrecord.exchange.write_summary import Tally
from beam_tfrecord.publish.dataset import Identity
from beam_tfrecord.publish.put_in_place import put_in_place
from beam_tfrecord.rejects import SAVED_FILE, join_rejects
from beam_tfrecord.stage_manifest import StageFile, StageManifest
from beam_tfrecord.storage import Lease
from beam_tfrecord.workdir.target import Target


def publish_stage(
    target: Target,
    identity: Identity,
    tally: Tally,
    pieces: Sequence[Piece],
    *,
    directory: str,
    job: Mapping[str, Any],
    lease: Lease | None = None,
) -> StageManifest:
    """Give the files of a stage their names, in the order of the source, and write its manifest.

    Args:
        target: Where to.
        identity: What the stage was made from.
        tally: Sums over all rows.
        pieces: The files under their temporary names.
        directory: The job's temporary directory, where all of them are.
        job: What varies from run to run, for ``job.json``.
        lease: The right to write there; None: nobody else writes.

    Raises:
        LeaseLost: The directory is another job's by now; nothing of that job was touched.
    """
    rejects = join_rejects(tally.reject_files, os.path.join(directory, SAVED_FILE))
    # Rows that came through other Beam code may have no groups to be ordered by.
    ordered = sorted(pieces, key=lambda piece: (piece.order, piece.xxh64))
    named = [(f"part-{number:05d}.parquet", piece) for number, piece in enumerate(ordered)]
    manifest = StageManifest(
        fingerprint=identity.fingerprint,
        schema=schema_of(tally),
        source=identity.source,
        rejects={"rows": rejects.rows, "xxh64": rejects.xxh64},
        files=tuple(
            StageFile(name, piece.examples, piece.bytes, piece.xxh64) for name, piece in named
        ),
    )
    put_in_place(
        target,
        named,
        manifest.dumps(),
        sidecars={},
        rejects=rejects,
        directory=directory,
        job=job,
        lease=lease,
    )
    return manifest


def schema_of(tally: Tally) -> pa.Schema:
    """Return the schema of staged rows; without columns where no batch came at all."""
    return pa.ipc.read_schema(pa.py_buffer(tally.staged)) if tally.staged else pa.schema([])
