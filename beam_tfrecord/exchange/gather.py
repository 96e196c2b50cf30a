"""What the exchange gathers in one place: tallies, rejects and runs, all of them small."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator

import apache_beam as beam

from beam_tfrecord.exchange.plan import RunSet, name_of
from beam_tfrecord.exchange.runs import Run
from beam_tfrecord.exchange.tally import Tally, merge_tallies
from beam_tfrecord.rejects import SAVED_FILE, RejectBudget, join_rejects, rejected
from beam_tfrecord.workdir.faults import recorded


class MergeTallies(beam.CombineFn):
    """Join tallies; where they do not go together, that is a fault of the data.

    Args:
        directory: Where it is recorded.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def create_accumulator(self) -> Tally:
        """Return the tally of nothing."""
        return Tally()

    def add_input(self, total: Tally, tally: Tally) -> Tally:
        """Join one tally."""
        return self.merge_accumulators((total, tally))

    def merge_accumulators(self, tallies: Iterable[Tally]) -> Tally:
        """Join any number of tallies."""
        merge = recorded(_merged, self._directory, instead=[Tally()])
        total: Tally = next(merge(tallies))
        return total

    def extract_output(self, total: Tally) -> Tally:
        """Return the sum."""
        return total


def _merged(tallies: Iterable[Tally]) -> Iterator[Tally]:
    yield merge_tallies(tallies)


class GatherRuns(beam.CombineFn):
    """Join runs to one set."""

    def create_accumulator(self) -> RunSet:
        """Return the set of none."""
        return RunSet()

    def add_input(self, total: RunSet, run: Run) -> RunSet:
        """Join one run."""
        return total.merge(RunSet((name_of(run),), run.counts))

    def merge_accumulators(self, totals: Iterable[RunSet]) -> RunSet:
        """Join any number of sets."""
        merged = RunSet()
        for total in totals:
            merged = merged.merge(total)
        return merged

    def extract_output(self, total: RunSet) -> RunSet:
        """Return the set."""
        return total


@dataclasses.dataclass(frozen=True)
class CheckRejects:
    """Let a tally pass; where its rejects are over the budget, that is a fault of the data.

    Attributes:
        budget: Rejects that are allowed.
        directory: The job's temporary directory, where the fault is recorded and all are listed.
    """

    budget: RejectBudget
    directory: str

    def __call__(self, tally: Tally) -> Iterator[Tally]:
        """Yield the tally."""
        yield from recorded(self._check, self.directory)(tally)
        # Who waits for it always gets it: an end without reason is worse than a fault.
        yield tally

    def _check(self, tally: Tally) -> Iterator[Tally]:
        if not self.budget.allows(tally.rejects, tally.rows):
            path = os.path.join(self.directory, SAVED_FILE)
            join_rejects(tally.reject_files, path)
            raise rejected(self.budget, tally.rejects, tally.rows, tally.sample, path)
        yield from ()
