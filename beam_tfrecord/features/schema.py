"""`Schema`: the features of a dataset, as JSON and Arrow, and as a feature spec of TensorFlow.

A feature is one column of the rows. Its Arrow type says what the values mean, and the module
`tf_columns` says how they are stored in examples. The schema of a written dataset also has the
statistics of each feature: missing values, range, rounding.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa

from beam_tfrecord.base.extras import import_tensorflow, require
from beam_tfrecord.base.text import MAX_ROWS, cell, html_table, not_found, text_table
from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.arrow_types import has_values, item_and_shape, shape_text
from beam_tfrecord.features.feature import ColumnStats, Feature

_HEADER = ("column", "type", "shape", "null", "")


@dataclasses.dataclass(frozen=True)
class Schema:
    """The features of a dataset, in order.

    Attributes:
        features: The features, with distinct names.

    Raises:
        UsageError: Two features have the same name.

    Example:
        >>> bt.Schema((bt.Feature("id", "int64"), bt.Feature("name", "text"))).names
        ('id', 'name')
    """

    features: tuple[Feature, ...]

    def __post_init__(self) -> None:
        if doubled := [name for name, count in Counter(self.names).items() if count > 1]:
            raise UsageError(f"two features are named {min(doubled)!r}: rename one of them")

    def __repr__(self) -> str:
        return "Schema:\n" + text_table(_HEADER, self._rows(), max_rows=MAX_ROWS)

    def _repr_html_(self) -> str:
        return html_table(_HEADER, self._rows())

    def _rows(self) -> list[tuple[str, ...]]:
        return [tuple(map(cell, _described(feature))) for feature in self.features]

    def __getitem__(self, name: str) -> Feature:
        for feature in self.features:
            if feature.name == name:
                return feature
        raise KeyError(not_found(name, self.names, where="the schema"))

    def __contains__(self, name: object) -> bool:
        return any(feature.name == name for feature in self.features)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features, in order."""
        return tuple(feature.name for feature in self.features)

    @classmethod
    def from_arrow(cls, schema: pa.Schema) -> Schema:
        """Return a schema with the columns of `schema` whose types have values but null."""
        fields = (field for field in schema if has_values(field.type))
        return cls(tuple(map(Feature.from_arrow, fields)))

    def to_arrow(self) -> pa.Schema:
        """Return the Arrow schema of the rows."""
        return pa.schema([feature.to_arrow() for feature in self.features])

    def feature_spec(self, *, ragged: bool = True) -> dict[str, Any]:
        """Return the feature spec for `tf.io.parse_example`; imports TensorFlow.

        A scalar that is never null, or has a default, is a `FixedLenFeature`; another scalar is a
        `VarLenFeature`. Fixed-size lists are a `FixedLenFeature` of their shape under the same
        conditions. Other lists are `RaggedFeature`s, with partitions if they are nested.

        Args:
            ragged: True to read lists as `tf.io.RaggedFeature`, False as `tf.io.VarLenFeature`.

        Raises:
            UsageError: A default does not fit its column.
        """
        require("tensorflow", "Schema.feature_spec()")
        import_tensorflow("tensorflow")
        from beam_tfrecord.features.feature_spec import feature_spec

        return feature_spec(self, ragged=ragged)

    def edit(self, **features: Feature | None) -> Schema:
        """Return a copy with features replaced, removed, or added at the end.

        Args:
            **features: The new features by name, or None to remove the feature of that name. Each
                feature is renamed to its keyword.

        Raises:
            UsageError: A feature to remove does not exist.
        """
        for name, new in features.items():
            if new is None and name not in self:
                raise UsageError(not_found(name, self.names, where="the schema"))
        renamed = {
            name: None if new is None else dataclasses.replace(new, name=name)
            for name, new in features.items()
        }
        merged = {old.name: old for old in self.features} | renamed
        left = tuple(feature for feature in merged.values() if feature is not None)
        return dataclasses.replace(self, features=left)

    def select(self, names: Iterable[str]) -> Schema:
        """Return a copy with only the features `names`, in that order.

        Raises:
            UsageError: A feature does not exist.
        """
        known = {feature.name: feature for feature in self.features}
        names = tuple(names)
        if missing := [name for name in names if name not in known]:
            raise UsageError(not_found(missing[0], known, where="the schema"))
        return dataclasses.replace(self, features=tuple(known[name] for name in names))

    def with_labels_of(self, read: Schema) -> Schema:
        """Return a copy in which columns without class names get the class names from `read`."""
        labels = {feature.name: feature.labels for feature in read.features}
        return self._map(
            lambda feature: dataclasses.replace(
                feature, labels=feature.labels or labels.get(feature.name, ())
            )
        )

    def with_observed(self, observed: Mapping[str, ColumnStats]) -> Schema:
        """Return a copy with the statistics of written data; nullable if a value is missing."""

        def described(feature: Feature) -> Feature:
            stats = observed.get(feature.name, ColumnStats())
            return dataclasses.replace(feature, nullable=stats.missing > 0, observed=stats)

        return self._map(described)

    def with_more(self, more: Schema) -> Schema:
        """Return a copy with the statistics of more rows added, which `more` has.

        Statistics that either of the two lacks are left out.
        """

        def joined(feature: Feature) -> Feature:
            of, others = feature.observed, more[feature.name].observed
            seen = None if of is None or others is None else of.merge(others)
            return dataclasses.replace(feature, observed=seen)

        return self._map(joined)

    def without_observed(self) -> Schema:
        """Return a copy without the statistics of written data, to write other data with it."""
        return self._map(lambda feature: dataclasses.replace(feature, observed=None))

    def _map(self, function: Callable[[Feature], Feature]) -> Schema:
        return dataclasses.replace(self, features=tuple(map(function, self.features)))

    def check(self) -> None:
        """Check that the names and options of the features can be read from their JSON.

        Raises:
            UsageError: A feature has no name, or JSON cannot hold an option of it.
        """
        for feature in self.features:
            feature.check()

    def to_json(self) -> dict[str, Any]:
        """Return the schema as a JSON object."""
        return {"features": [feature.to_json() for feature in self.features]}

    @classmethod
    def from_json(cls, value: Mapping[str, Any], *, strict: bool = True) -> Schema:
        """Return the schema for a JSON object from `to_json`.

        Args:
            value: The JSON object.
            strict: Whether to refuse keys of features that do not exist; else they are ignored.

        Raises:
            UsageError: The value is not a schema.
        """
        if not isinstance(value, Mapping) or not isinstance(value.get("features"), list):
            raise UsageError("not a schema: it has no list of features")
        if "separator" in value:
            raise UsageError("the schema has a separator: the parts of nested names have / between")
        try:
            features = tuple(Feature.from_json(of, strict=strict) for of in value["features"])
        except RecursionError as error:
            raise UsageError("not a schema: its types are nested too deeply") from error
        return cls(features)

    def dumps(self) -> str:
        """Return the JSON text of ``schema.json``, one feature per line."""
        lines = ",\n    ".join(json.dumps(f.to_json(), ensure_ascii=False) for f in self.features)
        return f'{{\n  "features": [\n    {lines}\n  ]\n}}\n'

    @classmethod
    def loads(cls, text: str, *, where: str = "schema") -> Schema:
        """Return the schema for the text of a schema file.

        Args:
            text: The text, as from `dumps`.
            where: Name of the text in errors.

        Raises:
            UsageError: The text is not JSON, or not a schema.
        """
        try:
            return cls.from_json(json.loads(text))
        except (RecursionError, ValueError) as error:
            raise UsageError(f"{where} is not JSON: {error}") from error


def _described(feature: Feature) -> tuple[str, ...]:
    """Return name, type, shape, nullability and further properties of a feature, for a table."""
    item, shape = item_and_shape(feature.type)
    notes = [] if feature.store == "auto" else [f"stored as {feature.store}"]
    notes += [] if feature.default is None else [f"default {feature.default!r}"]
    notes += [] if feature.fill is None else [f"nulls in lists are {feature.fill!r}"]
    notes += [f"{len(feature.labels):,} class names"] if feature.labels else []
    notes += [f"{limit} {value!r:.40}" for limit, value in feature.allowed.items()]
    seen = feature.observed or ColumnStats()
    notes += [f"{seen.missing:,} missing"] if seen.missing else []
    notes += [f"{seen.nan:,} NaN"] if seen.nan else []
    notes += [f"{seen.null_structs:,} structs of nulls"] if seen.null_structs else []
    nullable = "yes" if feature.nullable else "no"
    return feature.name, item, shape_text(shape), nullable, ", ".join(notes)
