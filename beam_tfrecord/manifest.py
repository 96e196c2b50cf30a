"""The manifest: what a dataset consists of, and the mark that it is whole.

``manifest.json`` is written last and at once; a directory without it holds no dataset. It holds
nothing that differs from run to run or machine to machine, so equal input and settings give equal
bytes. Its last field is the XXH64 of the file's own text with that field empty.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import typing
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.hashes import data_hash
from beam_tfrecord.layout import is_split_name
from beam_tfrecord.storage import absolute_path, exists, is_directory, is_plain_name, read_small
from beam_tfrecord.type_checks import conforms

FORMAT = "beam_tfrecord/1"
MANIFEST_NAME = "manifest.json"

# What decides the split of a row.
BY_BYTES, BY_GROUP, BY_COLUMN, ASSIGNED = "bytes", "group", "column", "assigned"


@dataclasses.dataclass(frozen=True)
class Shard:
    """One file of records.

    Attributes:
        path: Relative to the manifest.
        examples: Number of records.
        bytes: Size of the record stream: before compression.
        xxh64: Hash of the record stream, 16 hex digits.
    """

    path: str
    examples: int
    bytes: int
    xxh64: str


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
        """Size of the record streams."""
        return sum(shard.bytes for shard in self.shards)


@dataclasses.dataclass(frozen=True)
class Manifest:
    """A dataset's description.

    Attributes:
        fingerprint: Of the input and the settings that shape the output; empty where unknown.
        content: Hash of all examples regardless of order, splits and shards, 16 hex digits.
        order: ``shuffled`` or ``source``.
        seed: The user's seed.
        compression: ``""`` or ``GZIP``.
        key: Columns that decide the order; None: where a row was read.
        group: Columns that decide the split; None: the example's bytes.
        place: What a place follows from: ``origin``, ``key`` or ``bytes``.
        split_by: What a split follows from: the example's ``bytes``, the columns of its ``group``,
            a ``column`` with its name, or ``assigned`` by an earlier step; None: there is one.
        schema: The features, with what was observed of them.
        source: Kind and files of the input; None where it came through Beam code.
        rejects: Rows that could not be written: ``{"rows": …, "xxh64": …}``.
        sidecars: Hash of every other file of the dataset, by name.
        splits: The splits by name, in order.
    """

    fingerprint: str
    content: str
    order: str
    seed: int
    compression: str
    key: tuple[str, ...] | None
    group: tuple[str, ...] | None
    place: str
    schema: Schema
    source: Mapping[str, Any] | None
    rejects: Mapping[str, Any]
    sidecars: Mapping[str, str]
    splits: Mapping[str, Split]
    split_by: str | None = None

    @property
    def examples(self) -> int:
        """Number of examples of all splits."""
        return sum(split.examples for split in self.splits.values())

    @property
    def bytes(self) -> int:
        """Size of all record streams."""
        return sum(split.bytes for split in self.splits.values())

    @property
    def shards(self) -> tuple[Shard, ...]:
        """All shards."""
        return tuple(shard for split in self.splits.values() for shard in split.shards)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object, without the hash of itself."""
        return {
            "format": FORMAT,
            "fingerprint": self.fingerprint,
            "content": self.content,
            "order": self.order,
            "seed": self.seed,
            "compression": self.compression,
            "key": None if self.key is None else list(self.key),
            "group": None if self.group is None else list(self.group),
            "place": self.place,
            "split_by": self.split_by,
            "schema": self.schema.to_json(),
            "source": self.source,
            "rejects": dict(self.rejects),
            "sidecars": dict(self.sidecars),
            "splits": {
                name: {
                    "examples": split.examples,
                    "bytes": split.bytes,
                    "shards": [dataclasses.asdict(shard) for shard in split.shards],
                }
                for name, split in self.splits.items()
            },
        }

    def dumps(self) -> str:
        """Return the text of ``manifest.json``."""
        return sealed(self.to_json())

    @classmethod
    def loads(cls, text: str, *, where: str = MANIFEST_NAME) -> Manifest:
        """Parse the text of a manifest; `where` names it in errors.

        Raises:
            DataError: It is not a manifest, or was changed after it was written.
        """
        try:
            value = json.loads(text)
            if value["format"] != FORMAT:
                if str(value["format"]).startswith("beam_tfrecord-stage/"):
                    raise DataError(f"{where} is that of a stage: write it as a dataset first")
                raise DataError(
                    f"{where} has format {value['format']!r}, not {FORMAT!r}: "
                    "read it with the version of beam_tfrecord that wrote it"
                )
            seal = value.pop("xxh64")
            if sealed(value) != text:
                raise DataError(f"{where} was changed after it was written (hash {seal})")
            return _checked(_from_json(value), value)
        except NOT_READ as error:
            raise DataError(f"{where} is not a manifest: {reason_of(error)}") from error

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Manifest:
        """Read the manifest of a dataset.

        Args:
            path: The dataset's directory, or the manifest itself, such as ``out/p-manifest.json``.

        Raises:
            UsageError: There is no dataset.
            DataError: The manifest is damaged.
        """
        file = manifest_path(path)
        try:
            text = read_small(file).decode()
        except (FileNotFoundError, NotADirectoryError):
            raise UsageError(f"no dataset at {os.fspath(path)!r}: there is no {file!r}") from None
        except UnicodeDecodeError as error:
            raise DataError(f"{file} is not a manifest: {error}") from error
        except IsADirectoryError as error:
            raise DataError(f"{file} is a directory, not a manifest") from error
        return cls.loads(text, where=file)


def manifest_path(path: str | os.PathLike[str]) -> str:
    """Return the path of the manifest of a dataset's directory, file prefix, or itself."""
    text = os.fspath(path).removeprefix("file://")
    if text.endswith(".json") and not is_directory(text):
        return text
    if not is_directory(text) and exists(f"{text}-{MANIFEST_NAME}"):
        return f"{text}-{MANIFEST_NAME}"
    return os.path.join(text, MANIFEST_NAME)


def directory_of(manifest_file: str) -> str:
    """Return the absolute path of the directory that a manifest's paths are relative to."""
    return os.path.dirname(absolute_path(manifest_file))


def sealed(value: Mapping[str, Any]) -> str:
    """Return JSON text, a top-level key a line, with the hash of itself as last field."""
    lines = [f'  "{key}": {_compact(item)}' for key, item in value.items() if key != "splits"]
    lines.append('  "splits": {' + ",".join(_split_lines(value["splits"])) + "\n  }")
    return sealed_lines(lines)


def sealed_lines(lines: Sequence[str]) -> str:
    """Return the fields of a JSON object, a text each, with the hash of all as last field."""
    body = "{\n" + ",\n".join(lines) + ',\n  "xxh64": "'
    tail = '"\n}\n'
    return f"{body}{data_hash((body + tail).encode())}{tail}"


# What reading any JSON as one of ours can raise.
NOT_READ = (
    *(KeyError, TypeError, AttributeError, ValueError, OverflowError, RecursionError),
    UsageError,
)
_SHOWN_CHARACTERS = 200


def reason_of(error: BaseException) -> str:
    """Return in one short line why something is not what it should be."""
    text = str(error) if isinstance(error, UsageError) else repr(error)
    return text.splitlines()[0][:_SHOWN_CHARACTERS] if text else type(error).__name__


def check_fields(made: Any) -> None:
    """Check that every field of a dataclass that was made from a file has its type.

    Raises:
        ValueError: One has not.
    """
    for name, hint in _hints_of(typing.cast(Hashable, type(made))).items():
        if not conforms(getattr(made, name), hint):
            raise ValueError(f"{name} cannot be {getattr(made, name)!r:.40}")


@functools.cache
def _hints_of(kind: Hashable) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def check_names(names: Iterable[object]) -> None:
    """Check names of files of a dataset: plain ones, relative to its manifest, each there once.

    Raises:
        ValueError: One would lead to another directory, or is there twice.
    """
    seen = set()
    for name in names:
        if not is_plain_name(name):
            raise ValueError(f"{name!r:.80} is not the plain name of a file")
        if name in seen:
            raise ValueError(f"{name!r:.80} is named twice")
        seen.add(name)


def check_counts(made: Any, *names: str) -> None:
    """Check that fields are numbers that can count records or bytes of files.

    Raises:
        ValueError: One is negative, or more than any file has.
    """
    for name in names:
        if not 0 <= getattr(made, name) < _MOST:
            raise ValueError(f"{name} cannot be {getattr(made, name)!r:.40}")


def _checked(made: Manifest, value: Mapping[str, Any]) -> Manifest:
    """Return a manifest whose hash anyone may have made, if it can be that of a dataset.

    Raises:
        ValueError: It cannot.
    """
    check_fields(made)
    for shard in made.shards:
        check_fields(shard)
        check_counts(shard, "examples", "bytes")
    check_names([*(shard.path for shard in made.shards), *made.sidecars])
    for name, allowed in _ALLOWED.items():
        if getattr(made, name) not in allowed:
            raise ValueError(f"{name} cannot be {getattr(made, name)!r:.40}")
    if not 0 <= made.seed < _SEEDS:
        raise ValueError(f"seed cannot be {made.seed!r:.40}")
    if not conforms(made.rejects.get("rows", 0), int) or made.rejects.get("rows", 0) < 0:
        raise ValueError(f"rejects cannot be {made.rejects!r:.40}")
    files = [] if made.source is None else made.source.get("files", [])
    if not conforms(files, list[dict[str, Any]]):
        raise ValueError("source has no list of files")
    for name, split in made.splits.items():
        if not is_split_name(name):
            raise ValueError(f"{name!r:.80} cannot be the name of a split")
        for what in ("examples", "bytes"):
            if value["splits"][name][what] != getattr(split, what):
                raise ValueError(
                    f"split {name!r} has {getattr(split, what):,} {what} in its shards, not "
                    f"{value['splits'][name][what]!r:.40}"
                )
    return made


_MOST, _SEEDS = 2**63, 2**64
_ALLOWED: Mapping[str, tuple[str | None, ...]] = {
    "order": ("shuffled", "source"),
    "compression": ("", "GZIP"),
    "place": ("origin", "key", "bytes"),
    "split_by": (None, BY_BYTES, BY_GROUP, BY_COLUMN, ASSIGNED),
}


def _split_lines(splits: Mapping[str, Any]) -> list[str]:
    out = []
    for name, split in splits.items():
        shards = ",\n        ".join(_compact(shard) for shard in split["shards"])
        counts = f'"examples": {split["examples"]}, "bytes": {split["bytes"]}'
        out.append(f'\n    {json.dumps(name)}: {{{counts}, "shards": [\n        {shards}\n    ]}}')
    return out


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=False)


def _from_json(value: dict[str, Any]) -> Manifest:
    def columns(of: list[str] | None) -> tuple[str, ...] | None:
        return None if of is None else tuple(of)

    return Manifest(
        fingerprint=value["fingerprint"],
        content=value["content"],
        order=value["order"],
        seed=value["seed"],
        compression=value["compression"],
        key=columns(value["key"]),
        group=columns(value["group"]),
        place=value["place"],
        split_by=value.get("split_by"),
        schema=Schema.from_json(value["schema"]),
        source=value["source"],
        rejects=value["rejects"],
        sidecars=value["sidecars"],
        splits={
            name: Split(tuple(Shard(**shard) for shard in split["shards"]))
            for name, split in value["splits"].items()
        },
    )
