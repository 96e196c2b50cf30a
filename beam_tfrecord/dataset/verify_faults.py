"""What `verify` gives: faults with their places."""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Fault:
    """One thing that is wrong.

    Attributes:
        path: File, relative to the manifest.
        where: Place within it; empty where the whole file is at fault.
        message: What is wrong.
    """

    path: str
    where: str
    message: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.path, self.where, self.message) if part)


@dataclasses.dataclass(frozen=True)
class Verification:
    """What `verify` found.

    Attributes:
        faults: What is wrong, in the order of the manifest; empty where all is well.
        shards: Shards read.
        examples: Sound examples read.
        bytes: Size of the record streams read.
        notes: What is no fault but worth knowing.
    """

    faults: tuple[Fault, ...]
    shards: int = 0
    examples: int = 0
    bytes: int = 0
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True where there is no fault."""
        return not self.faults

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return dataclasses.asdict(self) | {"ok": self.ok}
