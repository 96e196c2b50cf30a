"""Shows a dataset: a summary, its first rows and counts of values, as JSON and as text."""

from __future__ import annotations

import base64
import datetime
import decimal
import itertools
import json
import math
import os
import shlex
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from beam_tfrecord.dataset.load import load
from beam_tfrecord.dataset.values import python_values
from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.arrow_types import is_numpy_tensor
from beam_tfrecord.features.feature import Feature
from beam_tfrecord.manifest import MANIFEST_NAME, Manifest, manifest_path
from beam_tfrecord.rejects import REJECTS_FILE, SCHEMA_WITHOUT_ADDRESS
from beam_tfrecord.sizes import counted, format_size
from beam_tfrecord.tables import text_table

MAX_COUNTED_VALUES = 1000
_CELL_CHARACTERS = 30
_EMPTY = {None: "(missing)", "": "(empty)"}


def show(path: str | os.PathLike[str], *, counts: str | None = None) -> dict[str, Any]:
    """Return a summary of a dataset as a JSON object; without `counts` only the manifest is read.

    Args:
        path: Path of the dataset's directory, its manifest, or its file prefix.
        counts: Column whose values to count in every split, which reads the data; None counts
            nothing.

    Raises:
        UsageError: There is no dataset or no such column, or the column has more than 1,000
            different values in a split, or values that cannot be counted.
    """
    manifest = Manifest.load(path)
    out: dict[str, Any] = {
        "path": os.fspath(path),
        "examples": manifest.examples,
        "bytes": manifest.bytes,
        "order": manifest.order,
        "seed": manifest.seed,
        "compression": manifest.compression,
        "content": manifest.content,
        "rejected_rows": manifest.rejects.get("rows", 0),
        "rejects": _rejects_directory(path) if manifest.rejects.get("rows") else None,
        "splits": {
            name: {
                "examples": split.examples,
                "bytes": split.bytes,
                "shards": len(split.shards),
                "largest_shard_bytes": max((shard.bytes for shard in split.shards), default=0),
            }
            for name, split in manifest.splits.items()
        },
        "features": [_feature(feature, manifest.examples) for feature in manifest.schema.features],
    }
    if counts is not None:
        out["counts"] = {"column": counts, "splits": count_values(path, counts)}
    return out


def _rejects_directory(path: str | os.PathLike[str]) -> str:
    return os.path.dirname(manifest_path(path).removesuffix(MANIFEST_NAME) + REJECTS_FILE)


def _feature(feature: Feature, examples: int) -> dict[str, Any]:
    out: dict[str, Any] = feature.to_json()
    if (missing := out.get("missing")) is not None:
        out["null_share"] = missing / examples if examples else 0.0
    for bound in ("min", "max"):
        if bound in out and pa.types.is_temporal(feature.type):
            # The schema's statistics have times as integers in the unit of their type.
            storage = pa.int32() if feature.type.bit_width == 32 else pa.int64()
            time = pa.array([int(out[bound])], storage).view(feature.type)
            out[bound] = json_value(python_values(time)[0])
    return out


def count_values(path: str | os.PathLike[str], column: str) -> dict[str, list[dict[str, Any]]]:
    """Count the different values of a column in every split, the most frequent value first.

    Returns:
        For every split, objects with ``value`` (None for missing values) and ``count``.

    Raises:
        UsageError: The column does not exist, is a list, struct, map or tensor, or has more than
            `MAX_COUNTED_VALUES` different values in a split.
    """
    out = {}
    for split in Manifest.load(path).splits:
        seen: Counter[str] = Counter()
        values: dict[str, Any] = {}
        for batch in load(path, split=split, columns=[column]).batches():
            for value, count in _counted(batch.column(0)):
                text = json_text(value)
                seen[text] += count
                values.setdefault(text, value)
            if len(seen) > MAX_COUNTED_VALUES:
                raise UsageError(
                    f"column {column!r} has more than {MAX_COUNTED_VALUES:,} values: "
                    "count one with fewer"
                )
        out[split] = [
            {"value": json_value(values[text]), "count": count}
            for text, count in sorted(seen.items(), key=lambda item: (-item[1], item[0]))
        ]
    return out


def _counted(array: pa.Array) -> Iterator[tuple[Any, int]]:
    if pa.types.is_nested(array.type) or is_numpy_tensor(array.type):
        raise UsageError(f"values of type {array.type} cannot be counted: choose a plain column")
    pairs = array.value_counts()
    yield from zip(python_values(pairs.field(0)), pairs.field(1).to_pylist(), strict=True)


def head(
    path: str | os.PathLike[str], n: int = 10, *, split: str | None = None
) -> list[dict[str, Any]]:
    """Return the first `n` rows of a dataset, or of one split, as dicts of Python values."""
    return list(itertools.islice(load(path, split=split).rows(), n))


def json_lines(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield every row as one line of JSON; see `json_value`."""
    return map(json_text, rows)


def render_show(shown: Mapping[str, Any]) -> str:
    """Return the result of `show` as text for users."""
    kinds = [f"{shown['order']}, seed {shown['seed']}", shown["compression"].lower()]
    parts = [
        f"{shown['path']}: {counted(shown['examples'], 'example')}, {format_size(shown['bytes'])} "
        f"({', '.join(filter(None, kinds))})"
    ]
    if shown["rejected_rows"]:
        command = f"beam-tfrecord head {shlex.quote(shown['rejects'])}"
        rejected = counted(shown["rejected_rows"], "row")
        parts.append(f"rejected: {rejected} (for the reasons, run {command})")
    splits = [
        (name, f"{of['examples']:,}", f"{of['shards']:,}", format_size(of["bytes"]))
        for name, of in shown["splits"].items()
    ]
    features = [
        (
            of["name"],
            of["type"] if isinstance(of["type"], str) else json_text(of["type"]),
            _share(of.get("null_share")),
            _cell(of.get("min")),
            _cell(of.get("max")),
            _notes(of),
        )
        for of in shown["features"]
    ]
    parts.append(text_table(("split", "examples", "shards", "size"), splits, right=(1, 2, 3)))
    parts.append(
        text_table(("feature", "type", "null", "min", "max", ""), features, right=(2, 3, 4))
    )
    if "counts" in shown:
        parts.append(_render_counts(shown["counts"]))
    return "\n\n".join(parts) + "\n"


def _render_counts(counts: Mapping[str, Any]) -> str:
    splits = counts["splits"]
    by_value: dict[str, dict[str, int]] = {}
    for split, values in splits.items():
        for item in values:
            text = _cell(item["value"]) or _EMPTY.get(item["value"], "(blank)")
            by_value.setdefault(text, {})[split] = item["count"]
    rows = [
        (value, *(f"{of.get(split, 0):,}" for split in splits)) for value, of in by_value.items()
    ]
    return text_table((counts["column"], *splits), rows, right=range(1, len(splits) + 1))


def _share(share: float | None) -> str:
    if not share:
        return "" if share is None else "0%"
    return f"{share:.1%}" if share >= 0.001 else "<0.1%"


def _notes(feature: Mapping[str, Any]) -> str:
    notes = []
    if feature.get("store"):
        notes.append(f"stored as {feature['store']}")
    if "default" in feature:
        notes.append(f"default {_cell(feature['default'])}")
    if "fill" in feature:
        notes.append(f"nulls in lists are {_cell(feature['fill'])}")
    if "loss" in feature:
        error = feature["loss"]["max_relative_error"]
        to = "" if feature.get("store") else " to float32"
        notes.append(f"rounded{to}, relative error ≤ {error:.1e}")
    return ", ".join(notes)


def _cell(value: Any) -> str:
    """Return a value as text of at most 30 characters, on one line."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    text = value if isinstance(value, str) else json_text(value)
    text = " ".join(text.split())
    return text if len(text) <= _CELL_CHARACTERS else text[: _CELL_CHARACTERS - 1] + "…"


def render_rows(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as a text table for users; a missing value is an empty cell.

    A table would cut the messages of rejects, which name address, column and value: these are a
    line each.
    """
    if not rows:
        return ""
    header = tuple(rows[0])
    if set(header) >= set(SCHEMA_WITHOUT_ADDRESS.names):
        return "".join(f"{row['message']}\n" for row in rows)
    cells = [tuple(_cell(json_value(row[name])) for name in header) for row in rows]
    numbers = [
        column
        for column, name in enumerate(header)
        if all(isinstance(row[name], int | float | None) for row in rows)
    ]
    return text_table(header, cells, right=numbers)


_MICROSECONDS = 1_000_000


def json_text(value: Any) -> str:
    """Return a value of a row as one line of valid JSON; see `json_value`."""
    return json.dumps(json_value(value), ensure_ascii=False, allow_nan=False)


def json_value(value: Any) -> Any:
    """Return a value of a row as a JSON value.

    * Bytes become text if they are UTF-8, else ``{"b64": …}`` in base64.
    * Dates, times and durations (``PT1.5S``) become text in ISO 8601.
    * Decimals, UUIDs and complex numbers become text.
    * NaN and the infinities, which JSON does not have, become the texts ``NaN``, ``Infinity`` and
      ``-Infinity`` as in protobuf's JSON. Null always means a missing value.

    Raises:
        TypeError: The value is of another type.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        # json.dumps returns these three names, which as bare literals are not valid JSON.
        return value if math.isfinite(value) else json.dumps(float(value))
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return {"b64": base64.b64encode(value).decode("ascii")}
    if isinstance(value, Mapping):
        return {str(key): json_value(item) for key, item in value.items()}
    if isinstance(value, np.ndarray) and not value.ndim:
        return json_value(value[()])
    if isinstance(value, list | tuple | np.ndarray):
        return [json_value(item) for item in value]
    return _scalar(value)


def _scalar(value: Any) -> Any:
    if isinstance(value, datetime.timedelta):
        microseconds = value // datetime.timedelta(microseconds=1)
        return _duration(microseconds, _MICROSECONDS)
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, np.timedelta64):
        unit, step = np.datetime_data(value.dtype)
        per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}.get(unit)
        if per_second is None or np.isnat(value):
            return str(value)
        return _duration(int(value.astype(np.int64)) * step, per_second)
    if isinstance(value, np.datetime64 | decimal.Decimal | uuid.UUID | complex):
        return str(value)
    if isinstance(value, np.generic):
        # Numbers of ml_dtypes, such as bfloat16, have no Python type of their own.
        item = value.item()
        return json_value(float(item) if isinstance(item, np.generic) else item)
    raise TypeError(f"a value of type {type(value).__name__} has no form in JSON")


def _duration(count: int, per_second: int) -> str:
    """Return the exact ISO 8601 text of a duration of `count` / `per_second` seconds."""
    sign = "-" if count < 0 else ""
    seconds, part = divmod(abs(count), per_second)
    digits = f"{part:0{len(str(per_second)) - 1}d}".rstrip("0") if part else ""
    return f"{sign}PT{seconds}{'.' if digits else ''}{digits}S"
