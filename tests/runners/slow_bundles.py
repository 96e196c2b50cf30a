"""A pipeline whose bundles emit for seconds, by every way that elements take between stages.

Beam's streams between a runner and its workers may be flushed by time as well as by size. What is
lost then shows only where a bundle emits, or a runner sends, for longer than such a limit.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import sys
import time
import uuid
from collections.abc import Iterator
from typing import Any
from unittest import mock

import apache_beam as beam
import pyarrow as pa
from apache_beam.runners.portability.fn_api_runner.fn_runner import BundleManager

import beam_tfrecord as bt
from beam_tfrecord.exchange import spill, write_steps

PARTS = 2
# Runner and Beam's options of each way to run a pipeline on one machine.
WAYS = {
    "threads": ("direct", ("--direct_num_workers=2",)),
    "processes": ("direct", ("--direct_running_mode=multi_processing", "--direct_num_workers=2")),
    "in memory": ("direct", ("--direct_running_mode=in_memory", "--direct_num_workers=1")),
    "job service": ("portable", ()),
}
SCHEMA = pa.schema({"text": pa.string()})
_WIDTH = 200
_RUN_BYTES = 200_000
_BUSY = 4_000


class Emit(beam.DoFn):
    """Emit numbered elements for some seconds without a pause, and note how many they were."""

    def __init__(self, directory, seconds):
        self._directory = directory
        self._seconds = seconds

    def process(self, part: tuple[int, Any]) -> Iterator[str]:
        """Yield the elements of one part."""
        count = 0
        end_s = time.monotonic() + self._seconds
        while time.monotonic() < end_s:
            for _ in range(_BUSY):
                pass
            yield element(part[0], count)
            count += 1
        (self._directory / f"emitted-{part[0]}").write_text(str(count))


class Note(beam.DoFn):
    """Note the elements that arrive, in a file for each bundle."""

    def __init__(self, directory):
        self._directory = directory

    def start_bundle(self):
        """Begin with none."""
        self._arrived = []

    def process(self, text: str, side: Any = None) -> None:
        """Take one."""
        self._arrived.append(text)

    def finish_bundle(self):
        """Write them down."""
        self._directory.mkdir(exist_ok=True)
        path = self._directory / uuid.uuid4().hex
        path.write_text("".join(f"{text}\n" for text in self._arrived))


def element(part, number):
    """Return an element that says which it is, and that shows when it is torn."""
    return f"{part}:{number}:".ljust(_WIDTH, "x")


def run(way, directory, *, seconds, sends_slowly=False):
    """Run the pipeline.

    Args:
        way: One of `WAYS`.
        directory: Empty, for what is noted and written.
        seconds: How long each bundle emits.
        sends_slowly: The runner takes longer than a second to send its input to a worker, as a
            busy machine, or one with much input, does.

    Returns:
        Number of elements that were emitted.

    Raises:
        AssertionError: By some way between stages an element was lost, torn or doubled.
    """
    runner, options = WAYS[way]
    with contextlib.ExitStack() as stack:
        stack.enter_context(_eager_threads())
        stack.enter_context(_small_runs())
        if sends_slowly:
            stack.enter_context(_slow_sending())
        with bt.pipeline(runner, options=options) as pipeline:
            _build(pipeline, directory, seconds)
    counts = [int((directory / f"emitted-{part}").read_text()) for part in range(PARTS)]
    wanted = collections.Counter(
        element(part, number) for part, count in enumerate(counts) for number in range(count)
    )
    for name, arrived in _arrived(directory):
        lost, more = wanted - arrived, arrived - wanted
        assert not lost, f"{name} lost {lost.total():,} of {wanted.total():,}"
        assert not more, f"{name} gave {more.total():,} too many, such as {next(iter(more))!r}"
    return wanted.total()


def _build(pipeline, directory, seconds):
    def note(name, *sides):
        return f"Note {name}" >> beam.ParDo(Note(directory / f"arrived {name}"), *sides)

    emitted = (
        pipeline
        | "Parts" >> beam.Create([(part, None) for part in range(PARTS)])
        | "Spread" >> beam.GroupByKey()
        | beam.ParDo(Emit(directory, seconds)).with_output_types(str)
    )
    spread = emitted | "Reshuffle" >> beam.Reshuffle()
    spread | note("reshuffled")
    (
        emitted
        | "Key" >> beam.Map(lambda text: (len(text.partition("x")[0]), text))
        | "Group" >> beam.GroupByKey()
        | "Values" >> beam.FlatMap(lambda group: group[1])
        | note("grouped")
    )
    count = emitted | "Count" >> beam.combiners.Count.Globally()
    # Not fused with what emits: the runner keeps the elements until the count is there.
    emitted | note("held back", beam.pvalue.AsSingleton(count))
    (
        pipeline
        | "Once" >> beam.Create([None])
        | "All" >> beam.FlatMap(lambda _, texts: texts, beam.pvalue.AsIter(emitted))
        | note("side input")
    )
    for name, texts, exchange in (
        ("files", emitted, "files"),
        ("runner", emitted, "runner"),
        ("reshuffled rows", spread, "files"),
    ):
        (
            texts
            | f"Rows {name}" >> beam.Map(lambda text: {"text": text})
            | f"Batch {name}" >> bt.BatchRows(SCHEMA, batch_rows=64)
            | f"Write {name}" >> bt.WriteToTFRecord(f"{directory}/{name}/", exchange=exchange)
        )


def _arrived(directory):
    for noted in sorted(directory.glob("arrived *")):
        lines = itertools.chain.from_iterable(
            path.read_text().splitlines() for path in noted.iterdir()
        )
        yield noted.name.removeprefix("arrived "), collections.Counter(lines)
    for manifest in sorted(directory.glob("*/manifest.json")):
        rows = bt.load(manifest.parent).rows()
        yield manifest.parent.name, collections.Counter(row["text"] for row in rows)


@contextlib.contextmanager
def _eager_threads():
    """Let the threads of this process take turns so often that a race is soon lost."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@contextlib.contextmanager
def _small_runs():
    """Let the sink emit runs and blocks all the time, not at the end of a bundle alone."""
    with (
        mock.patch.object(write_steps, "run_bytes_of", return_value=_RUN_BYTES),
        mock.patch.object(spill, "RUN_BYTES", _RUN_BYTES),
    ):
        yield


@contextlib.contextmanager
def _slow_sending():
    """Send every larger input of a bundle in pieces, for longer than a second."""
    send = BundleManager._send_input_to_worker

    def send_slowly(self, bundle, transform, streams):
        data = b"".join(streams or ())
        size = max(1, len(data) // 5)
        pieces = [data[start : start + size] for start in range(0, len(data), size)]
        send(self, bundle, transform, _paced(pieces) if len(data) > 500_000 else pieces)

    with mock.patch.object(BundleManager, "_send_input_to_worker", send_slowly):
        yield


def _paced(pieces):
    for piece in pieces:
        yield piece
        time.sleep(0.25)
