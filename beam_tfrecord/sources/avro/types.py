"""How values of each Avro type are decoded and what Arrow types they become."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

_MOST_DIGITS = 76
# A logical type of our own: fastavro would round decimals that have too many digits.
_DECIMAL = "beam_tfrecord-decimal"
# The types that values are decoded as (a number is the size of a ``fixed``), stored and viewed as.
_PRIMITIVES: dict[str, tuple[Any, pa.DataType, pa.DataType]] = {
    "null": ("null", pa.null(), pa.null()),
    "boolean": ("boolean", pa.bool_(), pa.bool_()),
    "int": ("int", pa.int32(), pa.int32()),
    "long": ("long", pa.int64(), pa.int64()),
    "float": (4, pa.binary(4), pa.float32()),
    "double": (8, pa.binary(8), pa.float64()),
    "bytes": ("bytes", pa.binary(), pa.binary()),
    "string": ("bytes", pa.binary(), pa.string()),
}
_UNITS = {"millis": "ms", "micros": "us", "nanos": "ns"}
_LOGICAL: dict[tuple[str, Any], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    **{("long", f"timestamp-{name}"): pa.timestamp(unit, "UTC") for name, unit in _UNITS.items()},
    **{("long", f"local-timestamp-{name}"): pa.timestamp(unit) for name, unit in _UNITS.items()},
}


class AvroType(NamedTuple):
    """How values of an Avro type are decoded."""

    raw: Any
    stored: pa.DataType
    arrow: pa.DataType
    problem: str = ""
    has_bytes: bool = True
    is_nullable: bool = False


def type_of(avro: Any, numbers: Iterator[int]) -> AvroType:
    """Return how to decode values of an expanded Avro type."""
    match avro:
        case list():
            return _union([type_of(branch, numbers) for branch in avro])
        case str():
            return type_of({"type": avro}, numbers)
        case {"type": "record" | "error"}:
            fields = {field["name"]: type_of(field["type"], numbers) for field in avro["fields"]}
            return record_of(fields, numbers)
        case {"type": "array"}:
            return _list(type_of(avro["items"], numbers))
        case {"type": "map"}:
            key = AvroType("bytes", pa.binary(), pa.string())
            value = type_of(avro["values"], numbers)
            pairs = _list(record_of({"key": key, "value": value}, numbers))
            return pairs._replace(arrow=pa.map_(pa.string(), value.arrow))
        case {"type": "enum"}:
            raw = {"type": "enum", "name": f"t{next(numbers)}", "symbols": avro["symbols"]}
            return AvroType(raw, pa.string(), pa.string())
        case {"type": str(kind)} if kind in _PRIMITIVES or kind == "fixed":
            return _scalar(avro, numbers)
        case {"type": str(kind)}:
            raise ValueError(f"it holds records of type {kind} inside themselves")
    return type_of(avro["type"], numbers)


def _union(branches: Sequence[AvroType]) -> AvroType:
    values = [of for of in branches if of.raw != "null"] or [*branches]
    found = values[0]
    if len(values) > 1:
        found = found._replace(problem="holds values of several types")
    is_nullable = len(values) < len(branches) or found.is_nullable
    raw = [of.raw for of in branches]
    return found._replace(raw=raw, has_bytes=True, is_nullable=is_nullable)


def record_of(fields: Mapping[str, AvroType], numbers: Iterator[int]) -> AvroType:
    """Return how to decode records of some fields."""
    listed = [{"name": name, "type": of.raw} for name, of in fields.items()]
    return AvroType(
        {"type": "record", "name": f"t{next(numbers)}", "fields": listed},
        pa.struct([(name, of.stored) for name, of in fields.items()]),
        pa.struct([(name, of.arrow) for name, of in fields.items()]),
        next((of.problem for of in fields.values() if of.problem), ""),
        any(of.has_bytes for of in fields.values()),
    )


def _list(item: AvroType) -> AvroType:
    if not item.has_bytes:
        # Damage could state any number of them, and so fill the memory.
        raise ValueError("it holds lists of nothing")
    raw = {"type": "array", "items": item.raw}
    return AvroType(raw, pa.list_(item.stored), pa.list_(item.arrow), item.problem)


def _scalar(avro: Mapping[str, Any], numbers: Iterator[int]) -> AvroType:
    kind, logical = avro["type"], avro.get("logicalType")
    if kind == "fixed":
        raw, stored, arrow = avro["size"], pa.binary(avro["size"]), pa.binary(avro["size"])
    else:
        raw, stored, arrow = _PRIMITIVES[kind]
    has_bytes = raw not in ("null", 0)
    if isinstance(raw, int):
        raw = {"type": "fixed", "name": f"t{next(numbers)}", "size": raw}
    # Readers of Avro ignore a logical type that they do not know, or that does not fit.
    arrow = _LOGICAL.get((kind, logical), arrow)
    if logical == "uuid" and stored == pa.binary(16):
        arrow = pa.uuid()
    of = AvroType(raw, stored, arrow, has_bytes=has_bytes, is_nullable=kind == "null")
    if logical == "duration" and kind == "fixed":
        return of._replace(problem="holds durations in months, days and milliseconds")
    if logical == "decimal" and kind in ("bytes", "fixed"):
        return _decimal(avro.get("precision", 0), avro.get("scale", 0), of)
    return of


def _decimal(precision: int, scale: int, of: AvroType) -> AvroType:
    if not 0 <= scale <= precision <= _MOST_DIGITS or not precision:
        return of._replace(problem=f"holds decimals of precision {precision} and scale {scale}")
    size = _decimal_bytes(precision)
    make = pa.decimal128 if size == 16 else pa.decimal256
    plain = of.raw if isinstance(of.raw, dict) else {"type": of.raw}
    raw = {**plain, "logicalType": _DECIMAL, "precision": precision}
    return of._replace(raw=raw, stored=pa.binary(size), arrow=make(precision, scale))


def _decimal_bytes(precision: int) -> int:
    return 16 if precision <= 38 else 32


def _read_decimal(data: Any, avro: Any, _: Any) -> bytes:
    """Return a decimal in Arrow's form: little-endian and of a fixed size."""
    unscaled = int.from_bytes(data, "big", signed=True)
    return unscaled.to_bytes(_decimal_bytes(avro["precision"]), "little", signed=True)


DECIMAL_READERS = {f"{kind}-{_DECIMAL}": _read_decimal for kind in ("bytes", "fixed")}
