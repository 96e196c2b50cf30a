"""The fingerprint of a job: equal where input and settings, and so the dataset, are equal."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from beam_tfrecord.manifest import FORMAT
from beam_tfrecord.publish import Identity as Identity
from beam_tfrecord.sources.base import InputFile

if TYPE_CHECKING:
    from beam_tfrecord.job import Settings


def identity(settings: Settings, files: Sequence[InputFile]) -> Identity:
    """Return what a dataset is made from.

    The fingerprint covers the settings that decide the output, the text of the map function's
    module, and names and sizes of the input files; not where the output is, nor runner, workers,
    batch size or reject budget. A function whose text is not known has none, and such a job is
    never taken for one that was done before.
    """
    listed = [{"path": file.name, "bytes": file.bytes} for file in files]
    source = {"kind": settings.source.kind, "files": listed}
    if settings.map is not None and settings.map.sha256 is None:
        return Identity("", source)
    options: dict[str, Any] = dataclasses.asdict(settings.source)  # type: ignore[call-overload]
    options.pop("paths", None)
    text = json.dumps(
        {
            "format": FORMAT,
            "source": source,
            "options": options,
            "layout": dataclasses.asdict(settings.layout),
            "map": _map_of(settings),
            "schema": None if settings.schema is None else settings.schema.to_json(),
            "limit": settings.limit,
        },
        default=_as_text,
        sort_keys=True,
    )
    return Identity(hashlib.sha256(text.encode()).hexdigest()[:32], source)


def _map_of(settings: Settings) -> list[str | None] | None:
    if settings.map is None:
        return None
    return [settings.map.function.__qualname__, settings.map.sha256]


def _as_text(value: Any) -> str:
    return str(value)
