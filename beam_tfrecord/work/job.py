"""`Job`: the description of a job, which every step gets, from the first to the publication."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from beam_tfrecord.features.schema import Schema
from beam_tfrecord.format.layout import Layout
from beam_tfrecord.format.places import ONE_INPUT, Inputs
from beam_tfrecord.format.rejects import RejectBudget
from beam_tfrecord.storage import Lease
from beam_tfrecord.work.target import Target


@dataclasses.dataclass(frozen=True)
class Identity:
    """The origin of a dataset or a stage: its input, settings and writing rules."""

    fingerprint: str = ""
    source: Mapping[str, Any] | None = None
    without_functions: str = ""


@dataclasses.dataclass(frozen=True)
class Job:
    """A job that writes a dataset, or a stage (a directory of Parquet files with the rows).

    `WriteToTFRecord`, `ExtractToParquet`, `write` and `extract` each make a `Job`, and every step
    of the pipeline gets it.
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
