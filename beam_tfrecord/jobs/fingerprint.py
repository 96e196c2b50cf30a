"""The fingerprint of a job: equal where input and settings, and so the dataset, are equal."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from beam_tfrecord import rules
from beam_tfrecord.hashes import sum_hashes
from beam_tfrecord.manifest import FORMAT
from beam_tfrecord.publish.dataset import Identity as Identity
from beam_tfrecord.sources.base import InputFile, Source

if TYPE_CHECKING:
    from beam_tfrecord.jobs.settings import Settings


def identity(settings: Settings, files: Sequence[InputFile]) -> Identity:
    """Return what a dataset is made from.

    The fingerprint covers the settings that decide the output, the text of the map function's
    module, and names and sizes of the input files; not where the output is, nor runner, workers,
    batch size or reject budget. A function whose text is not known has none, nor has an
    input whose files do not tell that it changed; such a job is never taken for one that was done
    before.
    """
    source = source_of(settings.source, files)
    transform = None if settings.transform is None else settings.transform.identity()
    is_known = (settings.map is None or settings.map.sha256 is not None) and (
        settings.transform is None or transform is not None
    )
    if not (is_known and settings.source.is_stable):
        return Identity(source=source)
    told = {
        "format": FORMAT,
        "source": source,
        "options": options_of(settings.source),
        "layout": dataclasses.asdict(settings.layout),
        "map": _map_of(settings),
        "schema": None if settings.schema is None else settings.schema.to_json(),
        "limit": settings.limit,
        **({} if transform is None else {"transform": transform}),
    }
    return Identity(*fingerprints_of(told), source=source)


def source_of(source: Source, files: Sequence[InputFile]) -> dict[str, Any]:
    """Return what a manifest tells of the input."""
    return {"kind": source.kind, "files": [_listed(file) for file in files], **source.facts}


def options_of(source: Source) -> dict[str, Any]:
    """Return the options of a source; which files it reads is told apart from them."""
    options: dict[str, Any] = dataclasses.asdict(source)  # type: ignore[call-overload]
    options.pop("paths", None)
    return options


def fingerprints_of(told: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """Return the fingerprint of all that decides an output, and what it was under older rules.

    Args:
        told: What decides the output, besides the writing rules.

    Returns:
        Fingerprints of 32 hex digits: of the rules in force; and of each number of rules before
        them, from 0, which adds nothing to the text that is hashed.
    """
    text = json.dumps(told, default=_as_text, sort_keys=True)
    digest = hashlib.sha256(text.encode())
    older = [digest.hexdigest()[:32]]
    for number in range(1, len(rules.RULES) + 1):
        of_rules = digest.copy()
        of_rules.update(f"rules {number}".encode())
        older.append(of_rules.hexdigest()[:32])
    current = older.pop()
    return current, tuple(older)


def input_sha256(files: Sequence[InputFile]) -> str:
    """Return a hash that changes when a file is edited, also where its size stays the same.

    It tells of one place alone: a copy of the same files may have other modification times.
    """
    listed = sorted((file.name, file.bytes, file.version, file.digest) for file in files)
    return hash_of_each(listed)


def state_sha256(files: Sequence[InputFile]) -> str | None:
    """Return a hash that changes also when a file is replaced by one of its size and time.

    A copy of the same bytes and a chmod change it, too. None where files have no such state.
    """
    if not all(file.state for file in files):
        return None
    return hash_of_each(sorted((file.name, file.state) for file in files))


def content_xxh64(source: Source, total_bytes: int) -> str:
    """Read the input, and return the hash that a job notes of the bytes it has read.

    Args:
        source: What to read.
        total_bytes: Of all files.

    Raises:
        DataError: A file is damaged.
        OSError: It cannot be read.
        EOFError: It has become shorter.
    """
    source = source.sized(total_bytes)
    try:
        units = source.all_units(source.all_scans())
        with ThreadPoolExecutor(os.cpu_count() or 1, "content") as pool:
            return xxh64_text(sum_hashes(pool.map(source.content, units)))
    finally:
        source.release()


def xxh64_text(value: int) -> str:
    """Return a hash of 64 bits as 16 hex digits."""
    return f"{value:016x}"


def hash_of_each(values: Iterable[Any]) -> str:
    """Return the SHA-256 of the text of a list of values, without making that text at once."""
    digest = hashlib.sha256(b"[")
    for number, value in enumerate(values):
        digest.update(f"{', ' if number else ''}{value!r}".encode())
    digest.update(b"]")
    return digest.hexdigest()


def _listed(file: InputFile) -> dict[str, Any]:
    listed = {"path": file.name, "bytes": file.bytes}
    return listed if not file.digest else {**listed, "files": file.inside, "digest": file.digest}


def _map_of(settings: Settings) -> list[str | None] | None:
    if settings.map is None:
        return None
    return [settings.map.function.__qualname__, settings.map.sha256]


def _as_text(value: Any) -> str:
    return str(value)
