"""The parts of a manifest: shards, splits, and generations, which are the jobs that wrote them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import msgspec

from beam_tfrecord.format.job_file import JOB_NAME
from beam_tfrecord.format.rejects import REJECTS_FILE
from beam_tfrecord.storage import is_plain_name

# It grows with each change to this package that alters the bytes of datasets, and is part of the
# fingerprint of a job, so a job is never "nothing to do" for a dataset of other bytes.
RULES = 1

Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


@dataclasses.dataclass(frozen=True)
class Shard:
    """One file of records."""

    path: str
    examples: Count
    bytes: Count
    xxh64: str
    generation: Annotated[int, msgspec.Meta(ge=1)] = 1

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object; the first generation is not named."""
        value = dataclasses.asdict(self)
        return value if self.generation > 1 else {k: value[k] for k in value if k != "generation"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Generation:
    """What a manifest says about one job that wrote rows, and about its input.

    Attributes:
        fingerprint: Hash of the input and of the settings that shape the output; empty if unknown.
        source: Kind and files of the input; None if Beam code made the input.
        rejects: Number and hash of the rows that could not be written: ``{"rows": …, "xxh64": …}``.
        rules: Number of the writing rules of the writer (see `RULES`).
        content: Hash of the examples of this generation; empty for the first one.
        job_files: Names of its ``job.json`` and of its files of rejects; empty for the usual ones.
    """

    fingerprint: str
    source: Mapping[str, Any] | None
    rejects: Mapping[str, Any]
    rules: int = RULES
    content: str = ""
    job_files: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        msgspec.convert((self.source or {}).get("files", []), list[dict[str, Any]])
        msgspec.convert(self.rejects.get("rows", 0), Count)
        check_names(self.job_files)

    def names(self, prefix: str) -> tuple[str, ...]:
        """Return the names of its ``job.json`` and of its files of rejects."""
        usual = (JOB_NAME, REJECTS_FILE) if self.rejects.get("rows") else (JOB_NAME,)
        return self.job_files or tuple(f"{prefix}{name}" for name in usual)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        value = {
            "rules": self.rules,
            "fingerprint": self.fingerprint,
            "source": self.source,
            "rejects": dict(self.rejects),
        }
        more = {"content": self.content, "job_files": list(self.job_files)}
        return value | {name: of for name, of in more.items() if of}


@dataclasses.dataclass(frozen=True)
class Split:
    """The shards of a split, in order."""

    shards: tuple[Shard, ...]

    @property
    def examples(self) -> int:
        """Number of examples."""
        return sum(shard.examples for shard in self.shards)

    @property
    def bytes(self) -> int:
        """Size of the records of all shards, before compression."""
        return sum(shard.bytes for shard in self.shards)


def check_names(names: Iterable[str]) -> None:
    """Check that the names of files are different, and lead to no other directory."""
    seen = set()
    for name in names:
        if not is_plain_name(name):
            raise ValueError(f"{name!r:.80} is not the plain name of a file")
        if name in seen:
            raise ValueError(f"{name!r:.80} is named twice")
        seen.add(name)
