"""Pictures that are written as they are, though TensorFlow refuses them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from beam_tfrecord.images import Header


@dataclasses.dataclass(frozen=True)
class Refused:
    """How many pictures TensorFlow refuses, and the first of them by path.

    Attributes:
        rows: Their number.
        path: Of the first.
        reason: Why that one is refused, to stand behind its path.
        cure: The options that store what TensorFlow decodes.
    """

    rows: int
    path: str
    reason: str
    cure: str

    def merge(self, other: Refused) -> Refused:
        """Join what two parts of the data showed."""
        first = min(self, other, key=lambda one: (one.path, one.reason))
        return dataclasses.replace(first, rows=self.rows + other.rows)


def refused_in(pictures: Iterable[tuple[str, Header | None]]) -> Refused | None:
    """Return what the headers of pictures show, given with their paths; None: nothing."""
    found = None
    for path, header in pictures:
        if header is not None and header.refusal is not None:
            found = merge_refused(found, Refused(1, path, *header.refusal))
    return found


def merge_refused(one: Refused | None, other: Refused | None) -> Refused | None:
    """Join what two parts of the data showed."""
    if one is None or other is None:
        return one or other
    return one.merge(other)


def refused_told(refused: Refused | None) -> dict[str, Any] | None:
    """Return what ``job.json`` tells of refused pictures; None where there are none."""
    return None if refused is None else dataclasses.asdict(refused)


def refused_line(told: Mapping[str, Any]) -> str:
    """Return one line for a human, given what ``job.json`` tells."""
    rows = told["rows"]
    are = "picture is" if rows == 1 else "pictures are"
    which = "it" if rows == 1 else "the first"
    return (
        f"{rows:,} {are} stored that TensorFlow, and so .tf(), cannot decode or decodes wrongly: "
        f"{which} is {told['path']}, which {told['reason']}: pass {told['cure']}"
    )
