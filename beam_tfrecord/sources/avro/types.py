"""How values of each Avro type are decoded and what Arrow types they become."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

_MOST_DIGITS = 76
# A logical type of our own: fastavro would round decimals that have too many digits.
DECIMAL = "beam_tfrecord-decimal"
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
    stored: pa.DataType = pa.null()
    arrow: pa.DataType = pa.null()
    problem: str = ""


def type_of(avro: Any, numbers: Iterator[int]) -> AvroType:
    """Return how to decode values of an expanded Avro type."""
    if isinstance(avro, list):
        return _union(avro, numbers)
    if isinstance(avro, str):
        avro = {"type": avro}
    kind = avro["type"]
    if not isinstance(kind, str):
        return type_of(kind, numbers)
    match kind:
        case "record" | "error":
            return _record(avro, numbers)
        case "array":
            return _list(type_of(avro["items"], numbers))
        case "map":
            return _map(type_of(avro["values"], numbers), numbers)
        case "enum":
            name = f"t{next(numbers)}"
            raw = {"type": "enum", "name": name, "symbols": avro["symbols"]}
            return AvroType(raw, pa.string(), pa.string())
        case _ if kind in _PRIMITIVES or kind == "fixed":
            return _scalar(avro, numbers)
    return AvroType(None, problem=f"holds records of type {kind} inside themselves")


def _union(branches: Sequence[Any], numbers: Iterator[int]) -> AvroType:
    types = [type_of(branch, numbers) for branch in branches]
    raw = None if any(of.raw is None for of in types) else [of.raw for of in types]
    problem = next((of.problem for of in types if of.problem), "")
    values = [of for of in types if of.raw != "null"]
    if len(values) > 1 and not problem:
        names = " and ".join(map(_name_of, (b for b in branches if _name_of(b) != "null")))
        problem = f"holds values of several types, {names}"
    if problem or not values:
        return AvroType(raw, problem=problem)
    return values[0]._replace(raw=raw)


def _name_of(branch: Any) -> str:
    return str(branch.get("logicalType", branch["type"])) if isinstance(branch, dict) else branch


def _record(avro: Any, numbers: Iterator[int]) -> AvroType:
    types = {field["name"]: type_of(field["type"], numbers) for field in avro["fields"]}
    problem = next((of.problem for of in types.values() if of.problem), "")
    if any(of.raw is None for of in types.values()):
        return AvroType(None, problem=problem)
    return AvroType(
        raw_record({name: of.raw for name, of in types.items()}, numbers),
        pa.struct([(name, of.stored) for name, of in types.items()]),
        pa.struct([(name, of.arrow) for name, of in types.items()]),
        problem,
    )


def raw_record(fields: Mapping[str, Any], numbers: Iterator[int]) -> dict[str, Any]:
    """Return the type of a record of some fields."""
    listed = [{"name": name, "type": raw} for name, raw in fields.items()]
    return {"type": "record", "name": f"t{next(numbers)}", "fields": listed}


def _list(item: AvroType) -> AvroType:
    # Damage could state any number of items that take no bytes, and so fill the memory.
    if item.raw is None or has_no_bytes(item.raw):
        return AvroType(None, problem=item.problem or "holds lists of nothing")
    raw = {"type": "array", "items": item.raw}
    return AvroType(raw, pa.list_(item.stored), pa.list_(item.arrow), item.problem)


def _map(item: AvroType, numbers: Iterator[int]) -> AvroType:
    if item.raw is None:
        return item
    pairs = raw_record({"key": "bytes", "value": item.raw}, numbers)
    stored = pa.struct([("key", pa.binary()), ("value", item.stored)])
    arrow = pa.map_(pa.string(), item.arrow)
    return AvroType({"type": "array", "items": pairs}, pa.list_(stored), arrow, item.problem)


def _scalar(avro: Mapping[str, Any], numbers: Iterator[int]) -> AvroType:
    kind, logical = avro["type"], avro.get("logicalType")
    if kind == "fixed":
        size = avro["size"]
        raw: Any = {"type": "fixed", "name": f"t{next(numbers)}", "size": size}
        of = AvroType(raw, pa.binary(size), pa.binary(size))
    else:
        raw, stored, arrow = _PRIMITIVES[kind]
        if isinstance(raw, int):
            raw = {"type": "fixed", "name": f"t{next(numbers)}", "size": raw}
        of = AvroType(raw, stored, arrow)
    if logical == "decimal" and kind in ("bytes", "fixed"):
        return _decimal(avro, of)
    if logical == "duration" and kind == "fixed":
        return of._replace(problem="holds durations in months, days and milliseconds")
    if logical == "uuid" and of.stored == pa.binary(16):
        return of._replace(arrow=pa.uuid())
    # Readers of Avro ignore a logical type that they do not know, or that does not fit.
    return of._replace(arrow=_LOGICAL.get((kind, logical), of.arrow))


def _decimal(avro: Mapping[str, Any], of: AvroType) -> AvroType:
    precision, scale = avro.get("precision", 0), avro.get("scale", 0)
    if not 0 <= scale <= precision <= _MOST_DIGITS or not precision:
        return of._replace(problem=f"holds decimals of precision {precision} and scale {scale}")
    size = _decimal_bytes(precision)
    make = pa.decimal128 if size == 16 else pa.decimal256
    plain = of.raw if isinstance(of.raw, dict) else {"type": of.raw}
    raw = {**plain, "logicalType": DECIMAL, "precision": precision}
    return AvroType(raw, pa.binary(size), make(precision, scale))


def _decimal_bytes(precision: int) -> int:
    return 16 if precision <= 38 else 32


def read_decimal(data: Any, avro: Any, _: Any) -> bytes:
    """Return a decimal in Arrow's form: little-endian and of a fixed size."""
    unscaled = int.from_bytes(data, "big", signed=True)
    return unscaled.to_bytes(_decimal_bytes(avro["precision"]), "little", signed=True)


def has_no_bytes(raw: Any) -> bool:
    """Return whether values of a decoded type take no bytes."""
    if not isinstance(raw, dict):
        return bool(raw == "null")
    if raw["type"] == "record":
        return all(has_no_bytes(field["type"]) for field in raw["fields"])
    return bool(raw["type"] == "fixed" and not raw["size"])


def may_be_null(raw: Any) -> bool:
    """Return whether a value of a decoded type may be null."""
    return raw == "null" or (isinstance(raw, list) and "null" in raw)
