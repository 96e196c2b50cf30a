"""`ReadFromSource`, the base of the public transforms that read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Unpack

from beam_tfrecord.batch import Batch
from beam_tfrecord.selection.select import SelectOptions, make_selection
from beam_tfrecord.sources.base import Source, with_selection
from beam_tfrecord.transforms.reading import ReadBatches

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


class ReadFromSource(ReadBatches):
    """Base class of the readers: a transform that can also read its source without a pipeline."""

    def __init__(self, source: Source, *, batch_rows: int, **select: Unpack[SelectOptions]) -> None:
        super().__init__(with_selection(source, make_selection(**select)), batch_rows=batch_rows)

    def batches(self) -> Iterator[Batch]:
        """Iterate over the batches of the input in this process, without a pipeline."""
        return self.source.batches(batch_rows=self.batch_rows)
