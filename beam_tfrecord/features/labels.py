"""Names of classes, which travel with the column that holds their numbers.

They are metadata of an Arrow field, so that they reach the schema of the dataset through whatever
keeps the column; `beam_tfrecord.features.schema.Feature.labels` is where they end up.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa

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
