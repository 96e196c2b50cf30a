"""Converts a dataset to what Keras's ``fit`` takes; its functions import TensorFlow when called.

`tf_dataset` reads and parses the examples. Here its sparse and ragged tensors become dense ones,
text becomes class numbers if its categories are known, and columns become one tensor.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord.dataset.keras_columns import Categories, Part, parts_of
from beam_tfrecord.dataset.rows import Rows
from beam_tfrecord.dataset.tf import tf_dataset
from beam_tfrecord.dataset.tf_decoding import IMAGE, image_decoding
from beam_tfrecord.dataset.values import checked_categories
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.extras import import_tensorflow, require
from beam_tfrecord.features.arrow_types import is_text
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.features.tf_columns import tf_columns
from beam_tfrecord.tables import listed

if TYPE_CHECKING:
    import tensorflow as tf

MASK_SUFFIX = "_mask"


def keras_dataset(
    dataset: Rows,
    batch_size: int = 32,
    *,
    label: str | Sequence[str] | None = None,
    columns: str | Sequence[str] | None = None,
    stack: bool = True,
    weight: str | None = None,
    categories: Categories | None = None,
    defaults: Mapping[str, Any] | None = None,
    nulls: str | None = None,
    shuffle: bool | int = False,
    seed: int | None = 0,
    image_size: tuple[int, int] | None = None,
    repeat: int | None = 1,
    cache: bool | str = False,
    deterministic: bool = True,
    interleave: int | None = None,
    shard: tuple[int, int] | None = None,
    drop_remainder: bool = False,
    start_step: int = 0,
) -> tf.data.Dataset:
    """Return a ``tf.data.Dataset`` of ``(x, y)`` or ``(x, y, weight)`` for Keras's ``fit``.

    x is one float32 tensor of the shape `[batch, features]`: the columns side by side, in their
    order. Fixed-size lists and tensors are flattened. Three arguments change that:

    * ``stack=False`` makes x a dict of tensors by column, for a functional model. Integers and text
      keep their type, other numbers are float32, and times are integers. Lists of varying length
      are filled up with 0 or empty text to the longest of the batch; the entry ``<column>_mask``
      (bool) is True for the values of the lists.
    * The name of a single column in `columns` makes x the tensor of that column in its own shape.
    * If the dataset has images and `columns` is None, x is the decoded images: see `tf_dataset`.

    y is the column `label` (shape `[batch]`, or `[batch, size]` for fixed-size lists as of the step
    ``one_hot``), or a dict if `label` is a list. Integers and booleans are int64, other numbers
    float32. The result has the attributes ``feature_names`` (the names of the entries of x), and
    ``class_names`` (the categories of `label`, empty if they are not known).
    """
    require("tensorflow", "load(...).keras()")
    import_tensorflow("tensorflow")
    import tensorflow as tf

    known = checked_categories(categories)
    labels = [label] if isinstance(label, str) else list(label or ())
    _check_options(batch_size, labels, weight, nulls)
    targets = [*labels, *([] if weight is None else [weight])]
    _check_not_nested(dataset.manifest.schema.select(targets))
    if columns is None and stack and image_decoding(dataset, None, image_size, decode=True):
        columns = IMAGE
    is_single = isinstance(columns, str)
    names = _feature_names(dataset, columns, targets)
    parsed = tf_dataset(
        dataset,
        batch_size,
        label=targets or None,
        columns=names,
        defaults=defaults,
        shuffle=shuffle,
        seed=seed,
        image_size=image_size,
        prefetch=False,
        repeat=repeat,
        cache=cache,
        deterministic=deterministic,
        interleave=interleave,
        shard=shard,
        drop_remainder=drop_remainder,
        start_step=start_step,
    )
    specs = parsed.element_spec if targets else (parsed.element_spec, {})
    inputs, outputs = (
        list(parts_of(dataset.manifest.schema.select(wanted), spec, known))
        for wanted, spec in zip((names, targets), specs, strict=True)
    )
    _check_categories(known, [*inputs, *outputs])
    _check_targets(outputs, weight)
    make_x, feature_names = _x_maker(inputs, is_single=is_single, stack=stack, nulls=nulls)
    values = {part.name: part.values() for part in outputs}

    def convert(features: Any, targets: Any = None) -> Any:
        x = make_x(features)
        if targets is None:
            return x
        y = {name: values[name](targets[name]) for name in targets}
        weights = [] if weight is None else [tf.cast(y.pop(weight), tf.float32)]
        return x, y[label] if isinstance(label, str) else y, *weights

    batches = parsed.map(convert, tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
    batches.feature_names = feature_names
    batches.class_names = list(outputs[0].class_names) if isinstance(label, str) else []
    return batches


def class_weight(
    dataset: Rows,
    label: str,
    *,
    categories: Categories | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> dict[int, float]:
    """Return the weight of each class for ``fit(class_weight=…)``, so that all weigh the same.

    The weight is ``rows / (classes * rows of the class)``, as scikit-learn's ``"balanced"``. The
    column `label` is read once.
    """
    dataset.check_single_split()
    schema = dataset.manifest.schema.select([label])
    feature = schema[label]
    default = (defaults or {}).get(label, feature.default)
    words = checked_categories(categories).get(label, feature.labels)
    counts: collections.Counter[int] = collections.Counter()
    for batch in dataclasses.replace(dataset, schema=schema).batches():
        column = batch.column(0)
        if column.null_count and default is None:
            raise UsageError(f"label {label!r} has missing values: pass defaults={{{label!r}: …}}")
        full = column if default is None else pc.fill_null(column, default)
        found, rows = np.unique(_class_numbers(full, label, words), return_counts=True)
        counts.update(dict(zip(found.tolist(), rows.tolist(), strict=True)))
    return {number: counts.total() / (len(counts) * counts[number]) for number in sorted(counts)}


def _class_numbers(column: pa.Array, label: str, words: Sequence[str]) -> Any:
    """Return the class numbers of a column without missing values, int64."""
    if pa.types.is_fixed_size_list(column.type):
        vectors = column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), -1)
        # A vector of zeros is a category that the step `one_hot` did not know: no class.
        return vectors.argmax(axis=1)[vectors.any(axis=1)]
    if pa.types.is_integer(column.type) or pa.types.is_boolean(column.type):
        return column.cast(pa.int64()).to_numpy()
    if not is_text(column.type):
        raise UsageError(f"label {label!r} is {column.type}, which has no classes: leave it out")
    if not words:
        raise UsageError(_unknown_categories(label))
    numbers = pc.index_in(column, pa.array(words, column.type))
    if numbers.null_count:
        other = column.filter(numbers.is_null())[0].as_py()
        raise DataError(f"label {label!r} has {other!r:.80}, which is not one of its categories")
    return numbers.to_numpy()


def _unknown_categories(label: str) -> str:
    return (
        f"label {label!r} is text without known categories: pass "
        f"categories={{{label!r}: sorted(set(bt.load(path)[{label!r}]))}}, "
        f"or write numbers with --step vocabulary={label}"
    )


def _check_options(
    batch_size: int, labels: Sequence[str], weight: str | None, nulls: str | None
) -> None:
    if batch_size is None:
        raise UsageError("keras() needs a batch_size: single rows are for tf()")
    if weight is not None and not labels:
        raise UsageError(f"weight {weight!r} without a label has no effect: pass label=")
    if weight in labels:
        raise UsageError(f"weight {weight!r} is a label, too: choose another column")
    if nulls not in (None, "mask"):
        raise UsageError(f"nulls is {nulls!r}: pass 'mask', or replacements as defaults={{…}}")


def _check_not_nested(targets: Schema) -> None:
    for feature in targets.features:
        names = [column.name for column in tf_columns(feature)]
        if feature.name not in names:
            raise UsageError(
                f"label {feature.name!r} has the parts {listed(names)}: use tf() and its map()"
            )


def _feature_names(
    dataset: Rows, columns: str | Sequence[str] | None, targets: Sequence[str]
) -> list[str]:
    """Return the names of the columns for x."""
    if isinstance(columns, str):
        return [columns]
    names = dataset.schema.names if columns is None else columns
    if left := [name for name in names if name not in targets]:
        return left
    raise UsageError("no column is left for x: choose one that is neither label nor weight")


def _check_categories(categories: Categories, parts: Sequence[Part]) -> None:
    for name in categories:
        if not any(part.categories for part in parts if part.feature.name == name):
            raise UsageError(
                f"categories has {name!r}, which is no text column that is read: leave it out, or "
                "add it to columns"
            )


def _check_targets(parts: Sequence[Part], weight: str | None) -> None:
    """Raise `UsageError` if a column cannot be a label, or the weight."""
    for part in parts:
        name = part.feature.name
        if name == weight and (part.is_string or part.is_time or part.is_ragged or part.shape):
            raise UsageError(f"weight {name!r} is {part.feature.type}: choose a column of numbers")
        if part.is_ragged:
            raise UsageError(f"label {name!r} has lists of varying length: use tf() and its map()")
        if part.is_string:
            raise UsageError(_unknown_categories(name))
        if part.is_time:
            raise UsageError(f"label {name!r} is a time: write the number to learn with --map")


def _check_inputs(
    parts: Sequence[Part], *, is_stacked: bool, is_single: bool, nulls: str | None
) -> None:
    """Raise `UsageError` if columns are of kinds that x cannot have."""
    leave_out = "leave them out with columns=[…]"
    as_dict = f"{leave_out}, or pass stack=False for a dict by column"
    missing = [part for part in parts if part.is_sparse and (is_single or not nulls)]
    default = f"pass defaults={{{missing[0].feature.name!r}: …}}" if missing else ""
    faults: dict[str, tuple[str, Callable[[Part], bool]]] = {
        "values that may be missing": (
            default if is_single else f"{default}, or nulls='mask' for 0 and a column of masks",
            lambda part: part in missing and not part.is_encoded,
        ),
        "numbers in bytes that may be missing": (
            f"pass defaults={{…}}, fill them before writing, or {leave_out}",
            lambda part: part.is_sparse and part.is_encoded,
        ),
    }
    if is_stacked:
        faults |= {
            "text": (
                f"write numbers with --step vocabulary=…, pass categories={{…}}, {as_dict}",
                lambda part: part.is_string and is_text(part.stored.type),
            ),
            "bytes": (as_dict, lambda part: part.is_string),
            "lists of varying length": (as_dict, lambda part: part.is_ragged),
            "times": (as_dict, lambda part: part.is_time),
            "complex numbers": (as_dict, lambda part: part.spec.dtype.is_complex),
        }
    for what, (cure, is_fault) in faults.items():
        if names := [repr(part.name) for part in parts if is_fault(part)]:
            subject = f"column {names[0]} has"
            if len(names) > 1:
                subject = f"columns {listed(names)} have"
            raise UsageError(f"{subject} {what}: {cure}")


def _x_maker(
    parts: Sequence[Part], *, is_single: bool, stack: bool, nulls: str | None
) -> tuple[Callable[[Mapping[str, Any]], Any], list[str]]:
    """Return a function from the parsed columns of a batch to x, and the names of x's entries."""
    is_stacked = stack and not is_single
    _check_inputs(parts, is_stacked=is_stacked, is_single=is_single, nulls=nulls)
    names = [part.name for part in parts]
    if is_single and len(parts) > 1:
        raise UsageError(
            f"column {parts[0].feature.name!r} has the parts {listed(names)}: pass a list, "
            "columns=[…], for a tensor or dict of several"
        )
    dense = {part.name: part.dense() for part in parts}
    masks = {part.name: part.name + MASK_SUFFIX for part in parts if part.has_mask}
    if not is_single and (doubled := set(masks.values()) & set(names)):
        raise UsageError(f"a mask would have the name of column {min(doubled)!r}: leave it out")

    def entries(features: Mapping[str, Any]) -> dict[str, Any]:
        found = {}
        for name in names:
            found[name], mask = dense[name](features[name])
            if mask is not None:
                found[masks[name]] = mask
        return found

    if is_single:
        return lambda features: entries(features)[names[0]], names
    shown = []
    for part in parts:
        shown += part.entry_names() if is_stacked else [part.name]
        shown += [masks[part.name]] if part.has_mask else []
    return (lambda features: _stacked(entries(features))) if is_stacked else entries, shown


def _stacked(entries: Mapping[str, Any]) -> Any:
    """Return the values of all entries side by side, shape `[batch, features]`, float32."""
    import tensorflow as tf

    flat = []
    for values in entries.values():
        width = math.prod(values.shape[1:])
        flat.append(tf.cast(tf.reshape(values, [tf.shape(values)[0], width]), tf.float32))
    return tf.concat(flat, axis=1)
