"""Packs units into *groups*: a group is what one worker reads as one task.

Groups decide neither the records nor their order, but those of single-pass jobs decide the files.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from beam_tfrecord.rows.batch import DEFAULT_BATCH_ROWS
from beam_tfrecord.sources.base import Source, Unit
from beam_tfrecord.storage import is_in_zip, is_remote

GROUP_BYTES = 64 * 2**20
# Groups have their minimum size up to this number of groups; for more input they become larger.
_MANY_GROUPS = 64
# For rows of 64 bytes.
_USUAL_BATCH_BYTES = 64 * DEFAULT_BATCH_ROWS


@dataclasses.dataclass(frozen=True)
class Group:
    """Neighbouring units that one worker reads as one task, or a share of one large unit.

    The `share` (k, n) of a unit is every n-th of its batches, from batch k on.
    """

    number: int
    first_unit: int
    units: tuple[Unit, ...]
    share: tuple[int, int] = (0, 1)

    @property
    def encoded_bytes(self) -> int:
        """Estimate of the size of its records."""
        return sum(unit.encoded_bytes for unit in self.units) // self.share[1]


def groups_for_workers(
    source: Source, units: Sequence[Unit], workers: int, most_bytes: int
) -> list[Group]:
    """Join or share units so that each worker has two groups or more, of similar sizes.

    The records do not depend on it. A unit is shared only if to read it takes little of the time of
    Python code for its rows: each share reads all of it.
    """
    total = sum(unit.encoded_bytes for unit in units)
    group_bytes = max(1, min(most_bytes, total // (2 * workers)))
    groups: list[Group] = []
    for group in group_units(units, group_bytes):
        shares = 1
        if len(group.units) == 1 and _may_share(source, group.units[0]):
            shares = max(1, min(-(-group.encoded_bytes // group_bytes), _batches(group.units[0])))
        for share in range(shares):
            groups.append(dataclasses.replace(group, number=len(groups), share=(share, shares)))
    return groups


def _may_share(source: Source, unit: Unit) -> bool:
    # A remote file, or a member of a zip file, would be copied for each share.
    path = unit.file.path
    return source.is_shared and not is_remote(path) and not is_in_zip(path)


def _batches(unit: Unit) -> int:
    """Return how many batches a unit has, by a guess if nobody has counted its rows."""
    if unit.rows is None:
        return unit.encoded_bytes // _USUAL_BATCH_BYTES
    return unit.rows // DEFAULT_BATCH_ROWS


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
