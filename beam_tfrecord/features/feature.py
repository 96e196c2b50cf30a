"""`Feature`: one column of a schema, with conversions to and from JSON and Arrow fields.

Three properties of a `Feature` have no counterpart in an Arrow field: its storage, its NumPy dtype
and its class names. The metadata of the field carries them from the source that reads the column to
the schema of the dataset.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
import pyarrow as pa

from beam_tfrecord.base.arguments import has_type
from beam_tfrecord.errors import UsageError, did_you_mean
from beam_tfrecord.features.arrow_types import type_of_column, type_to_json, with_shape

# Statistics that a feature has in JSON only if they are not 0.
_COUNTS = ("nan", "null_structs")
STORES = ("auto", "values", "text", "bytes")
LABELS_FILE = "labels.txt"

_LABELS_KEY = b"beam_tfrecord.labels"
_STORE_KEY, _DTYPE_KEY = b"beam_tfrecord.store", b"beam_tfrecord.dtype"


@dataclasses.dataclass(frozen=True)
class ColumnStats:
    """Statistics of one column over all examples of a dataset, collected while writing."""

    missing: int = 0
    min: float | int | None = None
    max: float | int | None = None
    max_relative_error: float = 0.0
    nan: int = 0
    null_structs: int = 0

    def merge(self, other: ColumnStats) -> ColumnStats:
        """Return the statistics over two parts of the data together."""
        lows = [value for value in (self.min, other.min) if value is not None]
        highs = [value for value in (self.max, other.max) if value is not None]
        return ColumnStats(
            missing=self.missing + other.missing,
            min=min(lows, default=None),
            max=max(highs, default=None),
            max_relative_error=max(self.max_relative_error, other.max_relative_error),
            nan=self.nan + other.nan,
            null_structs=self.null_structs + other.null_structs,
        )

    def without(self, copies: ColumnStats) -> ColumnStats:
        """Return the statistics without those of rows of which an equal one stays."""
        # An example does not tell a struct of nulls from a null one.
        absent = self.missing + self.null_structs - copies.missing
        null_structs = min(self.null_structs, absent)
        return dataclasses.replace(
            self,
            missing=absent - null_structs,
            nan=self.nan - copies.nan,
            null_structs=null_structs,
        )

    def to_json(self, arrow: pa.DataType) -> dict[str, Any]:
        """Return the keys that the statistics add to the JSON of a feature of type `arrow`."""
        out: dict[str, Any] = {"missing": self.missing}
        for count in _COUNTS:
            if number := getattr(self, count):
                out[count] = number
        if self.min is not None:
            out |= {"min": self.min, "max": self.max}
        if self.max_relative_error:
            error = float(self.max_relative_error)
            out["loss"] = {"from": str(arrow), "max_relative_error": error}
        return out

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ColumnStats | None:
        """Return the statistics in the JSON of a feature, or None if it has none."""
        if "missing" not in value:
            return None
        error = value.get("loss", {}).get("max_relative_error", 0.0)
        counts = {count: value.get(count, 0) for count in _COUNTS}
        return cls(value["missing"], value.get("min"), value.get("max"), error, **counts)


@dataclasses.dataclass(frozen=True)
class Feature:
    """One column of the rows.

    Attributes:
        name: Name of the column.
        type: Arrow type of its values, or the name of one (``"text"``, ``"int64"``).
        nullable: False if every row has a value.
        default: Value that readers use in place of a missing value.
        store: How values are stored. ``auto``: as usual for the type. ``text``: as decimal digits
            or ISO text, which is exact. ``bytes``: a float64 as its 8 little-endian bytes, which is
            exact. ``values``: a tensor as a flat list of numbers.
        fill: Value that replaces a null inside a list; without a fill, such a row is rejected.
        dtype: NumPy's name of the type in which `Dataset.numpy` returns the values, if the Arrow
            type does not determine it: ``<U5``, ``datetime64[D]``.
        labels: Class names, if the values are class numbers or one-hot vectors, or are text; the
            name of class 0 is first.
        observed: Statistics from writing; None for a schema that does not describe written data.
        shape: Sizes of a list or of nested lists, outermost first, if all rows have the same. The
            type becomes fixed-size lists, and rows of another shape are rejected.
        allowed: Limits on the values. Rows are rejected if a value is below ``min``, above ``max``,
            none of ``values``, or a text that ``pattern`` does not match as a whole. If a larger
            share of the rows than ``max_null_share`` has no value, nothing is published.

    Raises:
        UsageError: The type or the store does not exist, or the shape does not fit the type.

    Example:
        >>> bt.Feature("fare", "float32", default=0.0, allowed={"min": 0}).to_json()
        {...}
    """

    name: str = ""
    type: pa.DataType = dataclasses.field(default_factory=pa.string)
    nullable: bool = True
    default: Any = None
    store: str = "auto"
    fill: Any = None
    dtype: str | None = None
    labels: tuple[str, ...] = ()
    observed: ColumnStats | None = None
    shape: Sequence[int] | None = dataclasses.field(default=None, repr=False, compare=False)
    allowed: Mapping[str, Any] = dataclasses.field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "type", type_of_column(self.name, self.type))
        object.__setattr__(self, "allowed", dict(self.allowed or {}))
        if self.shape is not None:
            object.__setattr__(self, "type", with_shape(self.type, self.shape))
            object.__setattr__(self, "shape", None)
        if self.store not in STORES:
            raise UsageError(
                f"feature {self.name!r} cannot be stored as {self.store!r}: use one of {STORES}"
            )

    @classmethod
    def from_arrow(cls, field: pa.Field) -> Feature:
        """Return the feature of an Arrow field; the inverse of `to_arrow`."""
        return cls(
            field.name,
            field.type,
            nullable=field.nullable,
            store=_metadata(field, _STORE_KEY) or "auto",
            dtype=_metadata(field, _DTYPE_KEY),
            labels=labels_of(field),
        )

    def to_arrow(self) -> pa.Field:
        """Return the Arrow field of the column."""
        metadata = {} if self.store == "auto" else {_STORE_KEY: self.store}
        if self.dtype is not None:
            metadata[_DTYPE_KEY] = self.dtype
        field = pa.field(self.name, self.type, self.nullable, metadata=metadata or None)
        return with_labels(field, self.labels)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object; options with their default value are left out."""
        out: dict[str, Any] = {"name": self.name, "type": type_to_json(self.type)}
        if not self.nullable:
            out["nullable"] = False
        for option in ("default", "fill", "dtype"):
            if (value := getattr(self, option)) is not None:
                out[option] = value
        if self.store != "auto":
            out["store"] = self.store
        if self.labels:
            out["labels"] = list(self.labels)
        if self.allowed:
            out["allowed"] = dict(self.allowed)
        return out if self.observed is None else out | self.observed.to_json(self.type)

    def check(self) -> None:
        """Check that `from_json` accepts the name and the options of the feature, if it is written.

        Raises:
            UsageError: The feature has no name, an option has the wrong type, or JSON cannot hold
                it.
        """
        try:
            text = json.dumps({name: getattr(self, name) for name in _CHECKED}, ensure_ascii=False)
            text.encode()
            fault = _fault_of(json.loads(text))
        except (TypeError, ValueError) as error:
            fault = f"JSON cannot hold its name or one of its options: {error}"
        if fault:
            raise UsageError(f"feature {self.name!r:.80} in the schema: {fault}")

    @classmethod
    def from_json(cls, value: Mapping[str, Any], *, strict: bool = True) -> Feature:
        """Return the feature for JSON that `to_json` returned or that a user wrote.

        Args:
            value: The JSON object.
            strict: Whether to refuse keys that do not exist; else they are ignored.

        Raises:
            UsageError: A key or a type does not exist, or a value has the wrong type.
        """
        if not isinstance(value, Mapping):
            raise UsageError(f"a feature in the schema is not an object: {value!r:.40}")
        if not strict:
            value = {key: value[key] for key in _KEY_TYPES if key in value}
            limits = value.get("allowed") or {}
            value |= {"allowed": {key: limits[key] for key in _LIMIT_TYPES if key in limits}}
        elif "missing" not in value:  # `min` and `max` beside it are statistics
            limits = {key: value[key] for key in _LIMIT_TYPES if key in value}
            if limits and isinstance(given := value.get("allowed") or {}, Mapping):
                value = {key: value[key] for key in value if key not in limits}
                value["allowed"] = {**given, **limits}
        if fault := _fault_of(value):
            raise UsageError(f"feature {value.get('name', '?')!r:.80} in the schema: {fault}")
        try:
            return cls(
                type=value.get("type", "text"),
                labels=tuple(value.get("labels", ())),
                observed=ColumnStats.from_json(value),
                **{option: value[option] for option in _PLAIN_OPTIONS if option in value},
            )
        except (UsageError, RecursionError):
            raise
        except Exception as error:  # What building a type from arbitrary JSON can raise.
            raise UsageError(
                f"feature {value['name']!r} in the schema: the type does not exist: "
                f"{str(error)[:100]}"
            ) from error


def _fault_of(value: Mapping[str, Any]) -> str:
    """Return the first error in the JSON of a feature, for a message; empty if there is none."""
    if unknown := set(value) - set(_KEY_TYPES):
        every = f"the keys are {', '.join(_KEY_TYPES)}"
        known = did_you_mean(str(min(unknown)), _KEY_TYPES, every)
        return f"unknown key {min(unknown)!r}: {known}"
    if not value.get("name"):
        return "it has no name: rename the column, or leave it out"
    for key, hint in _KEY_TYPES.items():
        if not has_type(value.get(key), hint):
            return f"invalid value {value[key]!r:.40} for {key!r}"
    for key, limit in (value.get("allowed") or {}).items():
        if key not in _LIMIT_TYPES or not has_type(limit, _LIMIT_TYPES[key]):
            keys = ", ".join(_LIMIT_TYPES)
            return f"invalid limit {key!r}: {limit!r:.40} in 'allowed': the limits are {keys}"
    return ""


_PLAIN_OPTIONS = ("name", "nullable", "default", "store", "fill", "dtype", "shape", "allowed")
_CHECKED = ("name", "nullable", "default", "store", "fill", "dtype", "labels", "allowed")
_LIMIT_TYPES: Mapping[str, Any] = {
    **dict.fromkeys(("min", "max"), int | float | str),
    "values": list[int | float | str],
    "pattern": str,
    "max_null_share": Annotated[float, msgspec.Meta(ge=0, le=1)],
}
_NUMBER = float | int | None
_KEY_TYPES: Mapping[str, Any] = {
    **dict.fromkeys(("name", "store", "dtype", "kind"), str | None),
    "nullable": bool | None,
    **dict.fromkeys(("type", "default", "fill"), Any),
    "shape": Sequence[int] | None,
    "labels": Sequence[str] | None,
    "allowed": dict[str, Any] | None,
    **dict.fromkeys(("missing", *_COUNTS), int | None),
    **dict.fromkeys(("min", "max"), _NUMBER),
    "loss": dict[str, str | float] | None,
}


def with_labels(field: pa.Field, labels: Sequence[str]) -> pa.Field:
    """Return `field` with class names in its metadata, the name of class 0 first."""
    if not labels:
        return field
    text = json.dumps(list(labels), ensure_ascii=False)
    return field.with_metadata({**(field.metadata or {}), _LABELS_KEY: text.encode()})


def labels_of(field: pa.Field) -> tuple[str, ...]:
    """Return the class names of `field`, the name of class 0 first; empty if it has none."""
    text = _metadata(field, _LABELS_KEY)
    return tuple(json.loads(text)) if text else ()


def labels_text(labels: Sequence[str]) -> bytes:
    """Return the text of a labels file: one class name per line, the name of class 0 first."""
    return "".join(f"{label}\n" for label in labels).encode()


def _metadata(field: pa.Field, key: bytes) -> str | None:
    value = (field.metadata or {}).get(key)
    return None if value is None else value.decode()
