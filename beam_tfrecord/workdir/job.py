"""`Job`: one value that describes a job, from its first step to its publication."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from beam_tfrecord.features.schema import Schema
from beam_tfrecord.layout import Layout
from beam_tfrecord.places import ONE_INPUT, Inputs
from beam_tfrecord.rejects import RejectBudget
from beam_tfrecord.storage import Lease
from beam_tfrecord.workdir.target import Target


@dataclasses.dataclass(frozen=True)
class Identity:
    """What a dataset or a stage is made from.

    Attributes:
        fingerprint: Hash of input, settings and writing rules, 32 hex digits; empty if unknown.
        older: The fingerprint under each older number of writing rules, from 0.
        source: Description of the input for the manifest; None if rows come through Beam code.
    """

    fingerprint: str = ""
    older: tuple[str, ...] = ()
    source: Mapping[str, Any] | None = None


@dataclasses.dataclass(frozen=True)
class Job:
    """A job that writes a dataset or a stage.

    `WriteToTFRecord`, `ExtractToParquet`, `write` and `extract` all make one, and every step of
    the pipeline gets it.

    Attributes:
        target: Where the output goes.
        directory: Temporary directory; the first step makes it.
        output: ``dataset`` of TFRecord shards, or ``stage`` of Parquet files.
        layout: How records are split, ordered and divided into shards.
        schema: Schema to enforce; None means that of the data.
        budget: Number of rows that may be rejected.
        identity: What the output is made from.
        overwrite: Replace what is at the target.
        exchange: How records travel: ``files`` (spill files) or ``runner`` (GroupByKey).
        is_one_pass: Write each group of units straight to shards, in source order.
        info: Further entries of ``job.json``.
        lease: Lease of the target if the launcher holds it and waits for the job; None if the last
            step of the pipeline takes its own.
        is_resumable: Write checkpoints for another attempt at the same job.
        total_bytes: Estimated size of all records; None if unknown.
        fitted: Directory of the fitted preprocessing function to publish along; None if rows were
            not preprocessed.
        inputs: The inputs that rows come from.
    """

    target: Target
    directory: str
    output: Literal["dataset", "stage"] = "dataset"
    layout: Layout = dataclasses.field(default_factory=Layout)
    schema: Schema | None = None
    budget: RejectBudget = RejectBudget()
    identity: Identity = Identity()
    overwrite: bool = False
    exchange: str = "files"
    is_one_pass: bool = False
    info: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    lease: Lease | None = None
    is_resumable: bool = False
    total_bytes: int | None = None
    fitted: str | None = None
    inputs: Inputs = ONE_INPUT
