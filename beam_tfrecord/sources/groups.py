"""Groups: neighbouring units that are read, and spilled, together."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from beam_tfrecord.sources.base import Unit

GROUP_BYTES = 64 * 2**20
# Groups grow once there are so many of them.
_MANY_GROUPS = 64


@dataclasses.dataclass(frozen=True)
class Group:
    """A task of reading.

    Attributes:
        number: Position among the groups, from 0.
        first_unit: Position of the first unit in source order over the whole input.
        units: The units, in order.
    """

    number: int
    first_unit: int
    units: tuple[Unit, ...]

    @property
    def encoded_bytes(self) -> int:
        """Estimate of the size of its records."""
        return sum(unit.encoded_bytes for unit in self.units)


def group_units(units: Iterable[Unit], group_bytes: int = GROUP_BYTES) -> list[Group]:
    """Join neighbouring units to groups of about `group_bytes` of encoded records.

    A group closes where one more unit would take it further from the size than it is.
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


def grown(units: Iterable[Unit], least_bytes: int, most_bytes: int) -> int:
    """Return the size of groups that are few where there is much, yet enough for many workers."""
    total = sum(unit.encoded_bytes for unit in units)
    return grown_bytes(total, most_bytes, least_bytes)


def grown_bytes(total_bytes: int, most_bytes: int, least_bytes: int = GROUP_BYTES) -> int:
    """Return the same, given the size of all units together."""
    return max(least_bytes, min(most_bytes, total_bytes // _MANY_GROUPS))


def one_group(units: Sequence[Unit]) -> list[Group]:
    """Join all units to one group, so that one worker sees the rows in order."""
    return [Group(0, 0, tuple(units))] if units else []
