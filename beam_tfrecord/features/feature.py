"""`Feature`: one column of a schema."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import pyarrow as pa

from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.arrow_types import type_from_json, type_to_json, with_shape
from beam_tfrecord.type_checks import conforms

STORES = ("auto", "values", "text", "bytes")


@dataclasses.dataclass(frozen=True)
class Feature:
    """One column of the rows.

    Attributes:
        name: Name of the column.
        type: Arrow type of its values, or the name of one (``"text"``, ``"int64"``).
        nullable: False where every row has a value.
        default: What a reader is told to use where the value is missing.
        store: ``auto``: as the type contract says. ``text``: as decimal digits or ISO text,
            ``bytes``: float64 as its 8 little-endian bytes, both exact. ``values``: a tensor as a
            flat list of numbers.
        fill: What replaces a null inside a list; without it such a row is rejected.
        dtype: NumPy's name of the type in which `Dataset.numpy` gives the values, where the Arrow
            type does not say it: ``<U5``, ``datetime64[D]``.
        labels: Names of the classes that its values number, that of 0 first.
        observed: What writing saw; None before.
        shape: Sizes of a list or of nested lists, outermost first, where all rows have the same:
            the type becomes that of lists of a fixed size, and rows of another are rejected.
    """

    name: str = ""
    type: pa.DataType = dataclasses.field(default_factory=pa.string)
    nullable: bool = True
    default: Any = None
    store: str = "auto"
    fill: Any = None
    dtype: str | None = None
    labels: tuple[str, ...] = ()
    observed: Observed | None = None
    shape: dataclasses.InitVar[Sequence[int] | None] = None

    def __post_init__(self, shape: Sequence[int] | None) -> None:
        if not isinstance(self.type, pa.DataType):
            object.__setattr__(self, "type", type_from_json(self.type))
        if shape is not None:
            object.__setattr__(self, "type", with_shape(self.type, shape))
        if self.store not in STORES:
            raise UsageError(
                f"feature {self.name!r} cannot be stored as {self.store!r}: use one of {STORES}"
            )

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object; what has its default value is left out."""
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
        if self.observed is not None:
            out |= observed_to_json(self.type, self.observed)
        return out

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Feature:
        """Read what `to_json` wrote, or what a person edited.

        Raises:
            UsageError: An unknown key or type.
        """
        if not isinstance(value, Mapping):
            raise UsageError(f"a feature in the schema is no object but {value!r:.40}")
        unknown = set(value) - set(_FEATURE_KEYS)
        wrong_types = [k for k, hint in _FEATURE_KEYS.items() if not conforms(value.get(k), hint)]
        wrong = ""
        if unknown:
            wrong = f"unknown key {min(unknown)!r}"
        elif not value.get("name"):
            wrong = "no name"
        elif wrong_types:
            wrong = f"{wrong_types[0]} {value[wrong_types[0]]!r:.40}, which it cannot have"
        if wrong:
            raise UsageError(f"feature {value.get('name', '?')!r:.80} in the schema has {wrong}")
        try:
            return cls._from_checked(value)
        except UsageError:
            raise
        except _MISTAKES as error:
            raise UsageError(
                f"feature {value['name']!r} in the schema has a type that does not exist: "
                f"{str(error)[:100]}"
            ) from error

    @classmethod
    def _from_checked(cls, value: Mapping[str, Any]) -> Feature:
        return cls(
            name=value["name"],
            type=type_from_json(value.get("type", "text")),
            nullable=value.get("nullable", True),
            default=value.get("default"),
            store=value.get("store", "auto"),
            fill=value.get("fill"),
            labels=tuple(value.get("labels", ())),
            dtype=value.get("dtype"),
            observed=observed_from_json(value),
            shape=value.get("shape"),
        )


_NUMBER = float | int | None
_FEATURE_KEYS: Mapping[str, Any] = {
    **dict.fromkeys(("name", "store", "dtype", "kind"), str | None),
    "type": str | dict[str, Any] | pa.DataType | None,
    "nullable": bool | None,
    **dict.fromkeys(("default", "fill"), Any),
    "shape": Sequence[int] | None,
    "labels": Sequence[str] | None,
    "missing": int | None,
    **dict.fromkeys(("min", "max"), _NUMBER),
    "loss": dict[str, str | float] | None,
}
# What building a type from any JSON can raise.
_MISTAKES = (TypeError, ValueError, KeyError, AttributeError, OverflowError, pa.ArrowException)


@dataclasses.dataclass(frozen=True)
class Observed:
    """What writing saw of a feature, over all examples of the dataset.

    Attributes:
        missing: Examples without the feature.
        min: Smallest value of a numeric or time feature, as stored; None where there is none.
        max: Largest value, likewise.
        max_relative_error: Largest relative error of rounding to float32, or to float64 where that
            is stored (0 where all is exact). A number as text counts as the float64 that stands for
            it, if one does: see `beam_tfrecord.features.arrow_arrays`.
    """

    missing: int = 0
    min: float | int | None = None
    max: float | int | None = None
    max_relative_error: float = 0.0

    def merge(self, other: Observed) -> Observed:
        """Join what two parts of the data showed."""
        lows = [value for value in (self.min, other.min) if value is not None]
        highs = [value for value in (self.max, other.max) if value is not None]
        return Observed(
            missing=self.missing + other.missing,
            min=min(lows, default=None),
            max=max(highs, default=None),
            max_relative_error=max(self.max_relative_error, other.max_relative_error),
        )


def observed_to_json(arrow: pa.DataType, observed: Observed) -> dict[str, Any]:
    """Return the keys that what was observed adds to a feature of type `arrow`."""
    out: dict[str, Any] = {"missing": observed.missing}
    if observed.min is not None:
        out |= {"min": observed.min, "max": observed.max}
    if observed.max_relative_error:
        error = float(observed.max_relative_error)
        out["loss"] = {"from": str(arrow), "max_relative_error": error}
    return out


def observed_from_json(value: Mapping[str, Any]) -> Observed | None:
    """Read what `observed_to_json` wrote; None where nothing was."""
    if "missing" not in value:
        return None
    error = value.get("loss", {}).get("max_relative_error", 0.0)
    return Observed(value["missing"], value.get("min"), value.get("max"), error)


_STORE, _DTYPE = b"beam_tfrecord.store", b"beam_tfrecord.dtype"


class Notes(TypedDict):
    """The notes on a field; see `beam_tfrecord.features.feature.Feature` for what they mean."""

    store: str
    dtype: str | None


def noted_field(
    name: str,
    arrow: pa.DataType,
    *,
    nullable: bool = True,
    store: str = "auto",
    dtype: str | None = None,
) -> pa.Field:
    """Return an Arrow field with the notes that are not those of every field."""
    notes = {} if store == "auto" else {_STORE: store}
    if dtype is not None:
        notes[_DTYPE] = dtype
    return pa.field(name, arrow, nullable, metadata=notes or None)


def notes_of(field: pa.Field) -> Notes:
    """Return the notes on a field."""
    found = field.metadata or {}
    dtype = found.get(_DTYPE)
    return Notes(
        store=found.get(_STORE, b"auto").decode(), dtype=None if dtype is None else dtype.decode()
    )


LABELS_KEY = b"beam_tfrecord.labels"
LABELS_FILE = "labels.txt"


def with_labels(field: pa.Field, labels: Sequence[str]) -> pa.Field:
    """Return `field` with the names of its classes, the name of class 0 first."""
    if not labels:
        return field
    text = json.dumps(list(labels), ensure_ascii=False)
    return field.with_metadata({**(field.metadata or {}), LABELS_KEY: text.encode()})


def labels_of(field: pa.Field) -> tuple[str, ...]:
    """Return the names of the classes of `field`; none where it is no label."""
    text = (field.metadata or {}).get(LABELS_KEY)
    return tuple(json.loads(text)) if text else ()


def labels_text(labels: Sequence[str]) -> bytes:
    """Return the text of a file of labels: one name a line, the name of class 0 first."""
    return "".join(f"{label}\n" for label in labels).encode()
