"""What `write` says when it is done, and how a plan is laid out for a human."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from beam_tfrecord.progress import format_seconds
from beam_tfrecord.sizes import format_size
from beam_tfrecord.storage import absolute_path, file_size

if TYPE_CHECKING:
    from beam_tfrecord.manifest import Manifest

_COLUMNS_NAMED = 5


def summary(manifest: Manifest, output: str, *, seconds: float) -> str:
    """Return one line such as ``wrote 1,000 rows in 2 splits, 3 shards (98.1 MB) to out/ …``."""
    parts = [f"{manifest.examples:,} row{_s(manifest.examples)}"]
    if len(manifest.splits) > 1:
        parts[0] += f" in {len(manifest.splits)} splits"
    shards = len(manifest.shards)
    parts.append(f"{shards:,} shard{_s(shards)} ({_size(manifest, output)})")
    return f"wrote {', '.join(parts)} to {output} in {format_seconds(seconds)}"


def warnings_of(manifest: Manifest, output: str) -> list[str]:
    """Return a line for everything about a dataset that its maker should know."""
    lines = []
    if not manifest.examples:
        lines.append("the input holds no rows: the dataset has no shards")
    lines += _losses(manifest)
    if rejected := int(manifest.rejects.get("rows", 0)):
        where = os.path.join(output, "rejects")
        lines.append(f"{rejected:,} row{_s(rejected)} rejected: the reasons are in {where}")
    if manifest.order == "shuffled" and manifest.place == "bytes":
        lines.append("rows have no stable number here: their order follows from their bytes")
    return lines


def _losses(manifest: Manifest) -> list[str]:
    rounded: dict[str, float] = {}
    cut: dict[str, float] = {}
    for feature in manifest.schema.features:
        if feature.observed is not None and (error := feature.observed.max_relative_error) > 0:
            (rounded if feature.store == "auto" else cut)[feature.name] = error
    lines = []
    if rounded:
        lines.append(
            f"values of {_named(rounded)} were rounded to float32 (relative error at most "
            f'{max(rounded.values()):.1e}): "store": "bytes" or "text" in --schema keeps them exact'
        )
    if cut:
        lines.append(
            f"values of {_named(cut)} have more digits than float64 holds (relative error at most "
            f'{max(cut.values()):.1e}): "store": "text" in --schema keeps them exact'
        )
    return lines


def _named(columns: Iterable[str]) -> str:
    names = [repr(name) for name in columns]
    more = f" and {len(names) - _COLUMNS_NAMED} more" if len(names) > _COLUMNS_NAMED else ""
    return ", ".join(names[:_COLUMNS_NAMED]) + more


def _size(manifest: Manifest, output: str) -> str:
    if not manifest.compression:
        return format_size(manifest.bytes)
    directory = absolute_path(output)
    paths = [os.path.join(directory, shard.path) for shard in manifest.shards]
    stored = sum(file_size(path) for path in paths)
    return f"{format_size(stored)} compressed from {format_size(manifest.bytes)}"


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def render(value: Mapping[str, Any], *, indent: int = 0) -> list[str]:
    """Return the lines of a nested mapping, a key a line."""
    lines = []
    for key, item in value.items():
        label = f"{' ' * indent}{key.replace('_', ' ')}:"
        if isinstance(item, Mapping) and item:
            lines += [label, *render(item, indent=indent + 2)]
        else:
            lines.append(f"{label} {_word(key, item)}")
    return lines


def _word(key: str, value: Any) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return format_size(value) if key.endswith("bytes") else f"{value:,}"
    if isinstance(value, list | tuple):
        return ", ".join(_word(key, item) for item in value) or "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={_word(name, item)}" for name, item in value.items()) or "none"
    return str(value)
