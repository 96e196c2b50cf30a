"""`AssignSplits`: a transform that assigns every row to a split before the dataset is written."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence

import apache_beam as beam
import numpy as np

from beam_tfrecord.base.arguments import check_seed
from beam_tfrecord.exchange.block import Block
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.format.layout import Layout, make_splits
from beam_tfrecord.rows.batch import Batch
from beam_tfrecord.transforms.graph import apply_step


class AssignSplits(beam.PTransform):
    """Assign every row to a split by its present values.

    The arguments are those with which `WriteToTFRecord` would split rows. Each batch of the output
    has the rows of one split, and `WriteToTFRecord` writes them to that split. Rows are split only
    once: another `AssignSplits`, or a `WriteToTFRecord` with `splits`, `split_column` or `group`,
    refuses rows that have a split, even an equal one.

    Args:
        splits: Shares by name: ``{"train": .9, "test": .1}`` or ``"train=0.9,test=0.1"``.
        split_column: Column that names the split.
        group: Columns whose equal values share a split; without it, equal examples do.
        seed: Seed of the hash that decides the split.

    Raises:
        UsageError: The arguments do not fit together.
    """

    def __init__(
        self,
        splits: Mapping[str, float] | str | None = None,
        *,
        split_column: str | None = None,
        group: Sequence[str] | str = (),
        seed: int | None = 0,
    ) -> None:
        super().__init__()
        self._layout = Layout(
            make_splits(splits, column=split_column, group=group), seed=check_seed(seed)
        )
        self._schema: Schema | None = None
        self.faults: str | None = None

    @classmethod
    def of_layout(
        cls, layout: Layout, *, schema: Schema | None = None, faults: str | None = None
    ) -> AssignSplits:
        """Return the transform that splits rows as a job with this layout and schema does."""
        step = cls()
        step._layout, step._schema, step.faults = layout, schema, faults
        return step

    def expand(self, batches: beam.PCollection[Batch]) -> beam.PCollection[Batch]:
        """Add the step that divides every batch by split."""
        split = functools.partial(split_batch, layout=self._layout, schema=self._schema)
        assigned = apply_step(self, batches, "AssignSplits", split)
        assigned.beam_tfrecord_has_splits = True
        return assigned


def split_batch(batch: Batch, layout: Layout, schema: Schema | None = None) -> Iterator[Batch]:
    """Yield one batch for each split that occurs in a batch, in order of the splits' numbers."""
    block = Block(layout, schema)
    written = block.add(batch)
    numbers = block.splits
    if numbers is None:
        numbers = np.zeros(len(written), np.uint16)
    rejects, read, refused = tuple(block.rejects), batch.rows_counted, batch.refused
    for number in np.unique(numbers):
        part = batch.take(written[numbers == number])
        yield part.replace(
            split=block.split_names[number], rejects=rejects, rows_read=read, refused=refused
        )
        rejects, read, refused = (), 0, None
    if rejects or read:
        yield batch.slice(0, 0).replace(rejects=rejects, rows_read=read)
