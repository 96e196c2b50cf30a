"""The input of a job, listed once by whoever starts it."""

from __future__ import annotations

import dataclasses
import pickle

from beam_tfrecord.sources.base import InputFile, Source

# What is sent to workers with a pipeline; services refuse one of 10 MB and more.
MOST_SENT_BYTES = 2**20


@dataclasses.dataclass(frozen=True)
class Listing:
    """What a source consists of.

    Attributes:
        outlines: Its files, without what only reading needs.
        bytes: Size of all.
        sent: The same files in full; None where workers had better list millions on their own.
        first: The first file in full.
    """

    outlines: tuple[InputFile, ...] = ()
    bytes: int = 0
    sent: tuple[InputFile, ...] | None = None
    first: InputFile | None = None


def list_input(source: Source) -> Listing:
    """List the files of a source.

    Raises:
        UsageError: There is nothing to read.
    """
    first: InputFile | None = None
    outlines: list[InputFile] = []
    sent: list[InputFile] = []
    left_bytes = MOST_SENT_BYTES
    for file in source.files():
        first = first or file
        outlines.append(file.outline())
        if left_bytes >= 0:
            sent.append(file)
            left_bytes -= len(pickle.dumps(sent[-1]))
        else:
            sent.clear()
    # What is no file is looked at where it is read: a path would not do to find it.
    is_sent = left_bytes >= 0 and source.is_stable
    size = sum(file.bytes for file in outlines)
    return Listing(tuple(outlines), size, tuple(sent) if is_sent else None, first)
