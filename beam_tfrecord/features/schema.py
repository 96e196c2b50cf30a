"""`Schema`: the features of a dataset, as a value.

A feature is one column of the rows: its Arrow type says what the values mean, and the type
contract in `leaves.py` says which TFRecord features it becomes. What was observed while writing
(missing values, range, rounding) is kept beside it, so that the schema on disk describes the data.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from beam_tfrecord.errors import UsageError
from beam_tfrecord.extras import require
from beam_tfrecord.features.feature import (
    Feature,
    labels_of,
    noted_field,
    notes_of,
    with_labels,
)
from beam_tfrecord.features.feature import Observed as Observed


@dataclasses.dataclass(frozen=True)
class Schema:
    """The features of a dataset, in order.

    Attributes:
        features: The features, with distinct names.
        separator: Between the parts of the name of a nested feature.
    """

    features: tuple[Feature, ...]
    separator: str = "/"

    def __post_init__(self) -> None:
        names = [feature.name for feature in self.features]
        if doubled := {name for name in names if names.count(name) > 1}:
            raise UsageError(f"two features are named {min(doubled)!r}: rename one of them")

    def __getitem__(self, name: str) -> Feature:
        for feature in self.features:
            if feature.name == name:
                return feature
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        return any(feature.name == name for feature in self.features)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features, in order."""
        return tuple(feature.name for feature in self.features)

    @classmethod
    def from_arrow(cls, schema: pa.Schema) -> Schema:
        """Return a schema with the columns of `schema`; columns of null type are left out."""
        return cls(
            tuple(
                Feature(
                    field.name,
                    field.type,
                    nullable=field.nullable,
                    labels=labels_of(field),
                    **notes_of(field),
                )
                for field in schema
                if not pa.types.is_null(field.type)
            )
        )

    def to_arrow(self) -> pa.Schema:
        """Return the Arrow schema of the rows."""
        return pa.schema(
            [
                with_labels(
                    noted_field(f.name, f.type, nullable=f.nullable, store=f.store, dtype=f.dtype),
                    f.labels,
                )
                for f in self.features
            ]
        )

    @classmethod
    def from_feature_spec(cls, spec: Mapping[str, Any]) -> Schema:
        """Return the schema of a TensorFlow feature spec: see the module `feature_spec`."""
        require("tensorflow", "Schema.from_feature_spec()")
        from beam_tfrecord.features.feature_spec import schema_from_feature_spec

        return schema_from_feature_spec(spec)

    def feature_spec(self, *, ragged: bool = True) -> dict[str, Any]:
        """Return the feature spec for `tf.io.parse_example`; imports TensorFlow.

        Args:
            ragged: Read lists as `tf.io.RaggedFeature`, else as `tf.io.VarLenFeature`.
        """
        require("tensorflow", "Schema.feature_spec()")
        from beam_tfrecord.features.feature_spec import feature_spec

        return feature_spec(self, ragged=ragged)

    def edit(self, **features: Feature | None) -> Schema:
        """Return a copy with features replaced, added (at the end) or, by None, taken out.

        The name of a given `Feature` is that of its keyword.
        """
        renamed = {
            name: None if new is None else dataclasses.replace(new, name=name)
            for name, new in features.items()
        }
        kept = (renamed.get(old.name, old) for old in self.features)
        added = (new for name, new in renamed.items() if name not in self)
        together = (feature for feature in (*kept, *added) if feature is not None)
        return dataclasses.replace(self, features=tuple(together))

    def select(self, names: Iterable[str]) -> Schema:
        """Return a copy with the features `names`, in that order.

        Raises:
            UsageError: One of them is not there.
        """
        missing = [name for name in names if name not in self]
        if missing:
            raise UsageError(
                f"column {missing[0]!r} does not exist: the columns are {', '.join(self.names)}"
            )
        return dataclasses.replace(self, features=tuple(self[name] for name in names))

    def with_labels_of(self, read: Schema) -> Schema:
        """Return a copy in which columns without labels have those that they were read with."""
        labelled = {f.name: f for f in self.features if f.name in read and not f.labels}
        labels = {name: read[name].labels for name in labelled if read[name].labels}
        return self.edit(
            **{name: dataclasses.replace(labelled[name], labels=labels[name]) for name in labels}
        )

    def with_observed(self, observed: Mapping[str, Observed]) -> Schema:
        """Return a copy that describes written data: ranges, losses, and what is never missing."""
        seen = {name: observed.get(name, Observed()) for name in self.names}
        return dataclasses.replace(
            self,
            features=tuple(
                dataclasses.replace(
                    feature,
                    nullable=seen[feature.name].missing > 0,
                    observed=seen[feature.name],
                )
                for feature in self.features
            ),
        )

    def without_observed(self) -> Schema:
        """Return a copy without what writing saw: a schema to be given to another job."""
        plain = tuple(dataclasses.replace(feature, observed=None) for feature in self.features)
        return dataclasses.replace(self, features=plain)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        out: dict[str, Any] = {} if self.separator == "/" else {"separator": self.separator}
        return out | {"features": [feature.to_json() for feature in self.features]}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Schema:
        """Read what `to_json` wrote.

        Raises:
            UsageError: It is not a schema.
        """
        if not isinstance(value, Mapping) or not isinstance(value.get("features"), list):
            raise UsageError("not a schema: it has no list of features")
        separator = value.get("separator", "/")
        if not isinstance(separator, str):
            raise UsageError(f"not a schema: its separator is {separator!r:.40}")
        try:
            features = tuple(map(Feature.from_json, value["features"]))
        except RecursionError as error:
            raise UsageError("not a schema: its types are nested too deeply") from error
        return cls(features, separator=separator)

    def dumps(self) -> str:
        """Return the JSON text of ``schema.json``, one feature a line."""
        lines = ",\n    ".join(json.dumps(f.to_json(), ensure_ascii=False) for f in self.features)
        head = "" if self.separator == "/" else f'  "separator": {json.dumps(self.separator)},\n'
        return f'{{\n{head}  "features": [\n    {lines}\n  ]\n}}\n'

    @classmethod
    def loads(cls, text: str, *, where: str = "schema") -> Schema:
        """Parse the text of a schema file; `where` names it in errors.

        Raises:
            UsageError: It is not JSON, or not a schema.
        """
        try:
            return cls.from_json(json.loads(text))
        except json.JSONDecodeError as error:
            raise UsageError(f"{where} is not JSON: line {error.lineno}: {error.msg}") from error
        except (RecursionError, ValueError) as error:
            raise UsageError(f"{where} is not JSON that can be read: {error}") from error
