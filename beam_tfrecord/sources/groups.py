"""Packs units, the smallest parts of the input that one worker reads, into groups: its tasks."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from beam_tfrecord.sources.base import Unit

GROUP_BYTES = 64 * 2**20
# Groups have their minimum size up to this number of groups; for more input they become larger.
_MANY_GROUPS = 64


@dataclasses.dataclass(frozen=True)
class Group:
    """Neighbouring units that one worker reads as one task."""

    number: int
    first_unit: int
    units: tuple[Unit, ...]

    @property
    def encoded_bytes(self) -> int:
        """Estimate of the size of its records."""
        return sum(unit.encoded_bytes for unit in self.units)


def group_units(units: Iterable[Unit], group_bytes: int = GROUP_BYTES) -> list[Group]:
    """Join neighbouring units into groups of about `group_bytes` of encoded records.

    A group ends if the next unit would make its size differ more from `group_bytes`.
    """
    groups: list[Group] = []
    pending: list[Unit] = []
    first, size = 0, 0
    for index, unit in enumerate(units):
        if pending and abs(size + unit.encoded_bytes - group_bytes) > abs(group_bytes - size):
            groups.append(Group(len(groups), first, tuple(pending)))
            pending, first, size = [], index, 0
        pending.append(unit)
        size += unit.encoded_bytes
    if pending:
        groups.append(Group(len(groups), first, tuple(pending)))
    return groups


def grown_bytes(total_bytes: int, max_bytes: int, min_bytes: int = GROUP_BYTES) -> int:
    """Return the size of groups: it grows with the input, but leaves groups for many workers."""
    return max(min_bytes, min(max_bytes, total_bytes // _MANY_GROUPS))


def one_group(units: Sequence[Unit]) -> list[Group]:
    """Join all units into one group, so that one worker reads all rows in order."""
    return [Group(0, 0, tuple(units))] if units else []
