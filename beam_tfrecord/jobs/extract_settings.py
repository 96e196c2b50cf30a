"""`ExtractSettings`: the arguments of a job that extracts, checked and as values."""

from __future__ import annotations

import dataclasses

from beam_tfrecord.rejects import RejectBudget
from beam_tfrecord.sources.base import Source
from beam_tfrecord.workdir.target import Target


@dataclasses.dataclass(frozen=True)
class ExtractSettings:
    """The arguments of `extract`, checked and as values.

    Attributes:
        source: What to read.
        target: Where to write.
        limit: Rows to read; None: all.
        budget: Rows that may be rejected.
        overwrite: Replace what is at the target.
        runner: Name of the Beam runner.
        pipeline_options: Further Beam options, as on a command line.
    """

    source: Source
    target: Target
    limit: int | None
    budget: RejectBudget
    overwrite: bool
    runner: str
    pipeline_options: tuple[str, ...]

    @property
    def is_mapped(self) -> bool:
        """False: rows stay as they are."""
        return False
