"""Values of rows as JSON, each kind in one documented way."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
import uuid
from collections.abc import Mapping
from typing import Any

import numpy as np

_MICROSECONDS = 1_000_000


def json_text(value: Any) -> str:
    """Return one line of valid JSON."""
    return json.dumps(json_value(value), ensure_ascii=False, allow_nan=False)


def json_value(value: Any) -> Any:
    """Return a row's value as JSON has it.

    Bytes that are UTF-8 become text, others ``{"b64": …}``; dates and times ISO 8601, durations
    too (``PT1.5S``); decimals, UUIDs and complex numbers text. NaN and the infinities, which JSON
    does not have, become the texts ``NaN``, ``Infinity`` and ``-Infinity`` as in protobuf's JSON:
    null would stand for a missing value.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _not_finite(value)
    if isinstance(value, bytes):
        return _bytes(value)
    if isinstance(value, Mapping):
        return {str(key): json_value(item) for key, item in value.items()}
    if isinstance(value, np.ndarray) and not value.ndim:
        return json_value(value[()])
    if isinstance(value, list | tuple | np.ndarray):
        return [json_value(item) for item in value]
    return _scalar(value)


def _not_finite(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _bytes(value: bytes) -> Any:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(value).decode("ascii")}


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
    if isinstance(value, np.datetime64 | decimal.Decimal | uuid.UUID):
        return str(value)
    if isinstance(value, complex):
        return str(value)
    if isinstance(value, np.generic):
        # The numbers of ml_dtypes have no counterpart in Python but a float.
        item = value.item()
        return json_value(float(item) if isinstance(item, np.generic) else item)
    raise TypeError(f"a value of type {type(value).__name__} has no form in JSON")


def _duration(count: int, per_second: int) -> str:
    """Return `count` parts of a second in ISO 8601, exactly."""
    sign = "-" if count < 0 else ""
    seconds, part = divmod(abs(count), per_second)
    digits = f"{part:0{len(str(per_second)) - 1}d}".rstrip("0") if part else ""
    return f"{sign}PT{seconds}{'.' if digits else ''}{digits}S"
