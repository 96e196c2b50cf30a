"""The result of checking a dataset or a stage: its faults, and what was read."""

from __future__ import annotations

import dataclasses
from typing import Any

from beam_tfrecord.base.text import counted


@dataclasses.dataclass(frozen=True)
class Fault:
    """One disagreement between a dataset and its manifest."""

    path: str
    where: str
    message: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.path, self.where, self.message) if part)


@dataclasses.dataclass(frozen=True)
class Verification:
    """The result of `verify`."""

    faults: tuple[Fault, ...]
    shards: int = 0
    examples: int = 0
    bytes: int = 0
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True if there is no fault."""
        return not self.faults

    def __str__(self) -> str:
        notes = (f"note: {note}" for note in self.notes)
        return "\n".join([*map(str, self.faults), *notes, self.summary])

    @property
    def summary(self) -> str:
        """The numbers of shards, examples and faults, in words."""
        faults = counted(len(self.faults), "fault") if self.faults else "no faults"
        shards, examples = counted(self.shards, "shard"), counted(self.examples, "example")
        return f"verified {shards}, {examples}: {faults}"

    def to_json(self) -> dict[str, Any]:
        """Return the result as a JSON object."""
        return dataclasses.asdict(self) | {"ok": self.ok}
