"""The splits that rows come with to a step: which `AssignSplits` they pass, found in the graph."""

from __future__ import annotations

import dataclasses

import apache_beam as beam

from beam_tfrecord.layout import Splits
from beam_tfrecord.transforms.elements import is_plain_kind
from beam_tfrecord.transforms.reading import ReadBatches
from beam_tfrecord.transforms.ways import inputs_of, is_step


@dataclasses.dataclass(frozen=True)
class Assigned:
    """What the graph tells of the splits that rows come with.

    Attributes:
        splits: Of the `AssignSplits` steps that the rows pass.
        kept: Those behind which only steps of this package follow: their rows have a split for
            certain. What code of one's own makes of it shows in the rows alone.
        are_everywhere: There is one on every way.
        are_missing: Some rows have no split for certain: only steps of this package lead from
            their reader, and none gives one.
        are_lost: Some rows had a split, and came out of their batches.
    """

    splits: tuple[Splits, ...]
    kept: tuple[Splits, ...]
    are_everywhere: bool
    are_missing: bool
    are_lost: bool


def mark_splits(batches: beam.PCollection, splits: Splits) -> None:
    """Let it be found in the graph which split rows have from here on."""
    batches.beam_tfrecord_splits = splits


def assigned_splits(rows: beam.PCollection, *, is_plain: bool = False) -> Assigned:
    """Find the `AssignSplits` steps that rows pass.

    Args:
        rows: What a step is given.
        is_plain: They are given in a form that carries no split.
    """
    splits: list[Splits] = []
    kept: list[Splits] = []
    are_everywhere, are_missing, are_lost = True, False, False
    # What is on the way from each: rows in a form that carries no split, and only our own steps.
    pending = [(rows, is_plain, True)]
    seen = set()
    while pending:
        state = one, is_plain, is_ours = pending.pop()
        if state in seen:
            continue
        seen.add(state)
        is_plain = is_plain or is_plain_kind(one)
        given: Splits | None = getattr(one, "beam_tfrecord_splits", None)
        if given is not None:
            are_lost |= is_plain
            if not is_plain:
                splits.append(given)
                kept += [given] if is_ours else []
            continue
        is_ours &= is_step(one)
        if is_ours and isinstance(getattr(one, "beam_tfrecord_reader", None), ReadBatches):
            are_missing = True
        inputs = inputs_of(one)
        are_everywhere &= bool(inputs)
        pending += [(before, is_plain, is_ours) for before in inputs]
    return Assigned(tuple(splits), tuple(kept), are_everywhere, are_missing, are_lost)
