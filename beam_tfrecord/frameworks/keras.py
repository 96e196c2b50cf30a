"""Converts a dataset to what Keras's ``fit`` takes; its functions import TensorFlow when called.

The values of rows are those of `tf_dataset`. Here those with masks and lists become dense tensors,
and columns become one tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from beam_tfrecord.base.text import listed
from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.arrow_types import is_temporal, is_text
from beam_tfrecord.frameworks.tf import Passes, examples, require_tensorflow
from beam_tfrecord.frameworks.tf_parts import ColumnPart, parts_of
from beam_tfrecord.loading.batches import (
    IMAGE,
    MASK,
    MASK_SUFFIX,
    BatchColumns,
    Categories,
    check_masks,
    image_decoding,
    known_categories,
    unknown_categories,
)
from beam_tfrecord.loading.rows import Rows

if TYPE_CHECKING:
    import tensorflow as tf


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
    nulls: float | Literal["mask"] | None = None,
    shuffle: bool | int = False,
    seed: int | None = 0,
    image_size: tuple[int, int] | None = None,
    repeat: int | None = 1,
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

    The other arguments and the errors are those of `tf`.

    Args:
        dataset: The rows; in ``load(...).keras(...)`` those that are loaded.
        batch_size: Number of rows per batch.
        label: Column, or columns, to learn; None makes x alone the result.
        columns: Columns of x; None means all but `label` and `weight`.
        stack: False makes x a dict.
        weight: Column with the weight of each row.
        categories: Categories of text columns, by column. Those in the schema need not be given.
        defaults: As in `tf`.
        nulls: As in `tf`; with ``"mask"``, x also has the masks.
        shuffle: As in `tf`.
        seed: As in `tf`.
        image_size: As in `tf`.
        repeat: As in `tf`.
        shard: As in `tf`.
        drop_remainder: As in `tf`.
        start_step: As in `tf`.

    Raises:
        UsageError: A column is of a kind that x or y cannot have, or as in `tf`.
        DataError: As in `tf`.
    """
    require_tensorflow(dataset, "load(...).keras()")
    import tensorflow as tf

    labels = [label] if isinstance(label, str) else list(label or ())
    _check_options(batch_size, labels, weight)
    targets = [*labels, *([] if weight is None else [weight])]
    images = image_decoding(
        dataset, [columns] if isinstance(columns, str) else columns, image_size, decode=True
    )
    if columns is None and stack and images:
        columns = IMAGE
    is_single = isinstance(columns, str)
    names = _feature_names(dataset, columns, targets)
    if IMAGE not in names:
        images = None
    found = BatchColumns(
        dataset, names, targets,
        categories=known_categories(dataset, [*names, *targets], categories),
        defaults=defaults, nulls=nulls,
    )  # fmt: skip
    parts = parts_of(found.schema)
    outputs = [part for part in parts if part.feature.name in targets]
    inputs = [part for part in parts if part.feature.name in names]
    _check_targets(outputs, weight)
    make_x, feature_names = _x_maker(
        inputs, is_single=is_single, stack=stack, nulls=nulls, has_pixels=images is not None
    )

    def finish(values: dict[str, Any]) -> Any:
        x = make_x(values)
        if not targets:
            return x
        y = {name: _as_number(values[name]) for name in targets}
        weights = [] if weight is None else [tf.cast(y.pop(weight), tf.float32)]
        return x, y[label] if isinstance(label, str) else y, *weights

    passes = Passes(shuffle, seed, repeat, shard, drop_remainder, start_step)
    batches = examples(found, parts, finish, batch_size, passes, images)
    batches.feature_names = feature_names
    batches.class_names = list(outputs[0].feature.labels) if isinstance(label, str) else []
    return batches


def _check_options(batch_size: int, labels: Sequence[str], weight: str | None) -> None:
    if batch_size is None:
        raise UsageError("keras() needs a batch_size: single rows are for tf()")
    if weight is not None and not labels:
        raise UsageError(f"weight {weight!r} without a label has no effect: pass label=")
    if weight in labels:
        raise UsageError(f"weight {weight!r} is a label, too: choose another column")


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


def _check_targets(parts: Sequence[ColumnPart], weight: str | None) -> None:
    """Raise `UsageError` if a column cannot be a label, or the weight."""
    for part in parts:
        name, arrow = part.feature.name, part.feature.type
        if part.name != name:
            names = [one.name for one in parts if one.feature.name == name]
            raise UsageError(
                f"label {name!r} has the parts {listed(names)}: use tf() and its map()"
            )
        is_other = part.dtype == "string" or is_temporal(arrow)
        if name == weight and (is_other or part.is_ragged or part.shape):
            raise UsageError(f"weight {name!r} is {arrow}: choose a column of numbers")
        if part.is_ragged:
            raise UsageError(f"label {name!r} has lists of varying length: use tf() and its map()")
        if part.dtype == "string":
            raise UsageError(unknown_categories(name))
        if is_temporal(arrow):
            raise UsageError(f"label {name!r} is a time: write the number to learn with --map")


def _check_inputs(
    parts: Sequence[ColumnPart], *, is_stacked: bool, is_single: bool, nulls: float | str | None
) -> None:
    """Raise `UsageError` if columns are of kinds that x cannot have."""
    leave_out = "leave them out with columns=[…]"
    as_dict = f"{leave_out}, or pass stack=False for a dict by column"
    missing = [part for part in parts if part.may_miss and (is_single or nulls != MASK)]
    value = "…"
    for part in missing[:1]:
        for field in reversed(part.name.removeprefix(part.feature.name).split("/")[1:]):
            value = f"{{{field!r}: {value}}}"
    default = f"pass defaults={{{missing[0].feature.name!r}: {value}}}" if missing else ""

    faults: dict[str, tuple[str, Callable[[ColumnPart], bool]]] = {
        "values that may be missing": (
            default if is_single else f"{default}, or nulls='mask' for 0 and a column of masks",
            lambda part: part in missing,
        )
    }
    if is_stacked:
        faults |= {
            "text": (
                f"write numbers with --step vocabulary=…, pass categories={{…}}, {as_dict}",
                lambda part: part.dtype == "string" and is_text(part.stored.type),
            ),
            "bytes": (
                f"{as_dict}, or image_size=(64, 64) if they are images",
                lambda part: part.dtype == "string",
            ),
            "lists of varying length": (as_dict, lambda part: part.is_ragged),
            "times": (as_dict, lambda part: is_temporal(part.stored.type)),
            "complex numbers": (as_dict, lambda part: part.dtype.startswith("complex")),
        }
    for what, (cure, is_fault) in faults.items():
        if names := [repr(part.name) for part in parts if is_fault(part)]:
            subject = f"column {names[0]} has"
            if len(names) > 1:
                subject = f"columns {listed(names)} have"
            raise UsageError(f"{subject} {what}: {cure}")


def _x_maker(
    parts: Sequence[ColumnPart],
    *,
    is_single: bool,
    stack: bool,
    nulls: float | str | None,
    has_pixels: bool,
) -> tuple[Callable[[Mapping[str, Any]], Any], list[str]]:
    """Return a function from the values of a batch to x, and the names of x's entries."""
    is_stacked = stack and not is_single
    checked = [part for part in parts if not (has_pixels and part.name == IMAGE)]
    _check_inputs(checked, is_stacked=is_stacked, is_single=is_single, nulls=nulls)
    names = [part.name for part in parts]
    if is_single and len(parts) > 1:
        raise UsageError(
            f"column {parts[0].feature.name!r} has the parts {listed(names)}: pass a list, "
            "columns=[…], for a tensor or dict of several"
        )
    masked = [part.name for part in parts if part.may_miss or part.is_ragged]
    if not is_single:
        check_masks(masked, names)

    def entries(values: Mapping[str, Any]) -> dict[str, Any]:
        found = {}
        for part in parts:
            value, mask = _dense(part, values[part.name])
            found[part.name] = _as_number(value)
            if part.name in masked:
                found[part.name + MASK_SUFFIX] = mask
        return found

    if is_single:
        return lambda values: entries(values)[names[0]], names
    shown = []
    for part in parts:
        shown += part.entry_names() if is_stacked else [part.name]
        shown += [part.name + MASK_SUFFIX] if part.name in masked else []
    return (lambda values: _stacked(entries(values))) if is_stacked else entries, shown


def _dense(part: ColumnPart, value: Any) -> tuple[Any, Any]:
    """Return a dense tensor, and the mask of the values that are present, or None."""
    import tensorflow as tf

    if part.may_miss:
        dense, mask = value
        return dense, mask
    if not part.is_ragged:
        return value, None
    is_there = tf.ragged.map_flat_values(lambda one: tf.ones_like(one, tf.bool), value)
    return value.to_tensor(), is_there.to_tensor()


def _as_number(value: Any) -> Any:
    """Return floats as float32 and booleans as int64."""
    import tensorflow as tf

    if value.dtype.is_floating:
        return tf.cast(value, tf.float32)
    return tf.cast(value, tf.int64) if value.dtype == tf.bool else value


def _stacked(entries: Mapping[str, Any]) -> Any:
    """Return the values of all entries side by side, shape `[batch, features]`, float32."""
    import tensorflow as tf

    flat = []
    for values in entries.values():
        width = math.prod(values.shape[1:])
        flat.append(tf.cast(tf.reshape(values, [tf.shape(values)[0], width]), tf.float32))
    return tf.concat(flat, axis=1)
