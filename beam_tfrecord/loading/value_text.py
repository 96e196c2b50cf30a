"""Shows values of rows as text: as JSON, or in a few characters for people."""

from __future__ import annotations

import base64
import datetime
import decimal
import itertools
import json
import math
import re
import uuid
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from beam_tfrecord.base.text import cell, format_size
from beam_tfrecord.features.arrow_types import shape_text
from beam_tfrecord.images.headers import shown

_MICROSECONDS = 1_000_000
_CELL_CHARACTERS = 30
_ARRAY_VALUES = 4
SINGLES = (pa.float16(), pa.float32())


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
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        # json.dumps returns NaN, Infinity or -Infinity, which are valid JSON only as text.
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


def short_floats(value: Any) -> Any:
    """Return a value in which floats that a float32 equals print as briefly as that."""
    if isinstance(value, float):
        with np.errstate(over="ignore"):
            single = np.float32(value)
        # NumPy would compare as float32.
        return float(str(single)) if float(single) == value else float(value)
    if isinstance(value, Mapping):
        return {name: short_floats(item) for name, item in value.items()}
    return list(map(short_floats, value)) if isinstance(value, list | tuple) else value


def _scalar(value: Any) -> Any:
    if isinstance(value, datetime.timedelta):
        microseconds = value // datetime.timedelta(microseconds=1)
        return _duration(microseconds, _MICROSECONDS)
    if isinstance(value, datetime.date | datetime.time):
        # Readers of milliseconds refuse microseconds.
        return re.sub(r"(\.\d{3})000", r"\1", value.isoformat())
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
        # The text of a number is its shortest one.
        return json_value(float(str(value)) if isinstance(item, float | np.generic) else item)
    raise TypeError(f"a value of type {type(value).__name__} has no form in JSON")


def _duration(count: int, per_second: int) -> str:
    """Return the exact ISO 8601 text of a duration of `count` / `per_second` seconds."""
    sign = "-" if count < 0 else ""
    seconds, part = divmod(abs(count), per_second)
    digits = f"{part:0{len(str(per_second)) - 1}d}".rstrip("0") if part else ""
    return f"{sign}PT{seconds}{'.' if digits else ''}{digits}S"


def short_text(value: Any) -> str:
    """Return a value as text of at most 30 characters, on one line; empty for None."""
    return "" if value is None else cell(" ".join(_text(value).split()), _CELL_CHARACTERS)


def _text(value: Any) -> str:
    """Return a value as text for people; what would be cut anyway is left out."""
    if isinstance(value, float):
        return str(short_floats(value)).removesuffix(".0")
    if isinstance(value, bytes):
        return _bytes_text(value)
    if isinstance(value, np.ndarray) and value.size > _ARRAY_VALUES:
        return f"<{value.dtype}{shape_text(value.shape)}>"
    if isinstance(value, Mapping):
        items = itertools.islice(value.items(), _CELL_CHARACTERS)
        return "{" + ", ".join(f"{key}: {_text(item)}" for key, item in items) + "}"
    if isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim):
        return "[" + ", ".join(map(_text, value[:_CELL_CHARACTERS])) + "]"
    found = json_value(value)
    return found if isinstance(found, str) else json.dumps(found)


def _bytes_text(value: bytes) -> str:
    """Return bytes as text if they are UTF-8, else the size of the image, or of the bytes."""
    if isinstance(text := json_value(value), str):
        return text
    return shown(value) or f"<{format_size(len(value))}>"
