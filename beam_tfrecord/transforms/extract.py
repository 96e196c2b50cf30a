"""`ExtractToParquet`: a transform that writes the rows of a pipeline as Parquet files.

The files and their manifest are a *stage*: a copy of the rows, with their Arrow types, that later
jobs read in place of the source.
"""

from __future__ import annotations

import dataclasses
import os
import uuid
from typing import Any

import apache_beam as beam

from beam_tfrecord.format.layout import Layout
from beam_tfrecord.format.rejects import parse_budget
from beam_tfrecord.format.sort_keys import Inputs
from beam_tfrecord.rows.beam import in_one_window
from beam_tfrecord.transforms.graph import Sink, step_paths_to
from beam_tfrecord.transforms.rows import batches_of
from beam_tfrecord.transforms.write import write_batches
from beam_tfrecord.work.job import Job, Target, check_free, directory_target


def stage_job(target: Target, directory: str, **fields: Any) -> Job:
    """Return a job that writes a stage; `fields` are further fields of `Job`."""
    layout = Layout(shuffle=False)
    return Job(target, directory, "stage", layout, is_one_pass=True, **fields)


class ExtractToParquet(Sink):
    """Write rows as a stage, and return the paths of its files.

    A stage is a directory of Parquet files with a manifest; it keeps the Arrow types of the rows.
    `ReadFromParquet`, `load` and `write` read it. The input is a bounded PCollection of `Batch`,
    dict, NamedTuple or `beam.Row`.

    Args:
        output: Directory of the stage.
        max_rejects: Rows that may be rejected: a number, ``"1%"`` or ``"any"``.
        overwrite: Replace an earlier output in the directory.

    Raises:
        UsageError: The arguments do not fit together, or the elements cannot be written.
    """

    def __init__(
        self,
        output: str | os.PathLike[str],
        *,
        max_rejects: int | str = 0,
        overwrite: bool = False,
    ) -> None:
        super().__init__()
        self.target = target = directory_target(output)
        check_free(target, overwrite=overwrite)
        self._job = stage_job(
            target,
            target.temporary(uuid.uuid4().hex[:12]),
            budget=parse_budget(max_rejects),
            overwrite=overwrite,
            info={"runner": "beam"},
        )

    def expand(self, elements: beam.PCollection) -> beam.PCollection[str]:
        """Add the steps that write the stage to the pipeline."""
        self.check_elements(elements)
        found = batches_of(in_one_window(elements), None, None)
        batches = found[0] if len(found) == 1 else found | "AllBatches" >> beam.Flatten()
        job = dataclasses.replace(self._job, inputs=Inputs(step_paths_to(elements)))
        return write_batches((batches,), job)
