"""`Job`: the description of a job, which every step gets, from the first to the publication."""

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
    """The origin of a dataset or a stage: its input, settings and writing rules.

    Attributes:
        fingerprint: Hash of input, settings and writing rules, 32 hex digits; empty if unknown.
        older: The fingerprints under all older numbers of writing rules, from 0.
        source: Description of the input for the manifest; None if rows come through Beam code.
        without_functions: The fingerprint of everything but the user's functions, if there are some
            and the job was started from a notebook or another interactive session; else empty.
    """

    fingerprint: str = ""
    older: tuple[str, ...] = ()
    source: Mapping[str, Any] | None = None
    without_functions: str = ""


@dataclasses.dataclass(frozen=True)
class Job:
    """A job that writes a dataset, or a stage (a directory of Parquet files with the rows).

    `WriteToTFRecord`, `ExtractToParquet`, `write` and `extract` each make a `Job`, and every step
    of the pipeline gets it.

    Attributes:
        target: Location of the output.
        directory: Temporary directory, which the first step makes.
        output: ``dataset`` of TFRecord shards, or ``stage`` of Parquet files.
        layout: How records are split, ordered and divided into shards.
        schema: Schema to enforce; None means the schema of the data.
        budget: Number of rows that may be rejected.
        identity: Origin of the output.
        overwrite: Replace a dataset or stage at the target.
        exchange: Means by which records reach their shards: ``files`` (spill files) or ``runner``
            (GroupByKey).
        is_one_pass: Write each group of units of the input straight to shards, in source order.
        info: Further entries of ``job.json``.
        lease: Lease of the target, held by a launcher that waits for the job; None if the last step
            of the pipeline takes the lease itself.
        is_resumable: Write checkpoints for another attempt at the same job.
        total_bytes: Estimated size of all records; None if unknown.
        fitted: Directory of the fitted preprocessing function, to publish with the dataset; None if
            rows were not preprocessed.
        inputs: The inputs that rows come from.
        known: Schema of the examples that are copied from datasets, with the statistics that it has
            if `known_examples` are written; None means that it is found in the examples.
        known_examples: Number of examples of these datasets.
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
    known: Schema | None = None
    known_examples: int = 0
