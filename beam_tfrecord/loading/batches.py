"""`BatchColumns` and `Batches`: columns and rows of each batch, equal for all frameworks."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import operator
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord.base.arguments import as_words, check_seed
from beam_tfrecord.errors import DataError, OutputWarning, UsageError
from beam_tfrecord.features.arrow_types import is_text
from beam_tfrecord.features.feature import Feature
from beam_tfrecord.loading.epochs import Division, Epochs, Range
from beam_tfrecord.loading.rows import Rows
from beam_tfrecord.loading.values import (
    array_of_column,
    arrays_of,
    checked_categories,
    default_scalar,
    missing_error,
    with_defaults,
)

MASK, MASK_SUFFIX = "mask", "_mask"
# Kinds of NumPy's dtypes of numbers, and of times, which have a value for a missing one: NaT.
NUMBERS, TIMES = "biufc", "Mm"

# A PNG whose first chunk says so, or a TIFF of either byte order whose tag 258 does.
_16_BITS = (
    rb"\A(?s:\x89PNG.{20}\x10"
    rb"|II\*.*\x02\x01\x03\x00\x01\x00{3}\x10"
    rb"|MM\x00.*\x01\x02\x00\x03\x00{3}\x01\x00\x10)"
)
_BITS_CUT = (
    "16 bits of images become 8: for the bytes of the files, pass decode=False to tf() or torch()"
)

Array = npt.NDArray[Any]
Categories = Mapping[str, Sequence[str]]


class BatchColumns:
    """The columns of a batch, and what replaces missing values and the text of categories.

    Attributes:
        rows: The rows as they are read, with these columns.
        schema: The columns after `encoded`: text of categories is int64, and the default of a
            feature replaces its missing values.
        labels: Names of the columns that are labels.
        types: Arrow types of the columns after `encoded`.
        empty: An array of no rows for each column, which shows the dtype and shape of all.
        masked: Names of the columns in which 0 stands for a missing value, beside a mask.
        decodes_images: Whether the images of encoded rows are decoded.
    """

    decodes_images = False

    def __init__(
        self,
        rows: Rows,
        names: Sequence[str] | None,
        label: str | Sequence[str] | None,
        *,
        categories: Mapping[str, Sequence[str]] | None = None,
        defaults: Mapping[str, Any] | None = None,
        nulls: float | str | None = None,
    ) -> None:
        if isinstance(nulls, str) and nulls != MASK:
            raise UsageError(f"nulls {nulls!r} is neither a number nor {MASK!r}")
        names = rows.schema.names if names is None else as_words("columns", names)
        self._label, self._nulls = label, nulls
        self.labels = [label] if isinstance(label, str) else list(label or ())
        stored = rows.manifest.schema.select(dict.fromkeys((*names, *self.labels)))
        if not stored.features:
            raise UsageError("there is no column to read: choose at least one")
        self.rows = dataclasses.replace(rows, schema=stored)
        self.schema = with_defaults(stored, {} if defaults is None else defaults)
        arrow = rows.files.arrow_schema(stored.names)
        self.types = dict(zip(arrow.names, arrow.types, strict=True))
        self._words = checked_categories(categories)
        for name, words in self._words.items():
            self._encode_type(name, words)
        self.empty = {
            feature.name: array_of_column(pa.nulls(0, self.types[feature.name]), feature)
            for feature in self.schema.features
        }
        self.masked: list[str] = []
        for feature in self.schema.features:
            self._check_default(feature)

    def _encode_type(self, name: str, words: Sequence[str]) -> None:
        arrow = self.types.get(name, pa.null())
        is_list = _is_list(arrow)
        if not is_text(arrow.value_type if is_list else arrow):
            what = f"{arrow} and no text: leave it out"
            if name not in self.types:
                what = "not read: leave it out, or add it to columns"
            raise UsageError(f"categories has {name!r}, which is {what}")
        feature = self.schema[name]
        default = feature.default
        if default is not None and not is_list:
            if default not in words:
                raise UsageError(
                    f"default {default!r} of {name!r} is not one of its categories: add it to them"
                )
            default = words.index(default)
        self.types[name] = pa.list_(pa.int64()) if is_list else pa.int64()
        self._set(
            Feature(
                name, self.types[name], feature.nullable, default, observed=feature.observed,
                labels=tuple(words),
            )
        )  # fmt: skip

    def _set(self, feature: Feature) -> None:
        self.schema = self.schema.edit(**{feature.name: feature})

    def _is_number(self, feature: Feature) -> bool:
        return self.empty[feature.name].dtype.kind in NUMBERS + TIMES

    def _check_default(self, feature: Feature) -> None:
        """Check the default of a column; `nulls` becomes its default if it lacks one."""
        name = feature.name
        is_open = feature.nullable and feature.default is None
        if is_open and name in self.labels:
            # A number that stands for missing features would be a wrong label.
            missing = f" {feature.observed.missing:,}" if feature.observed else ""
            raise UsageError(
                f"label {name!r} has{missing} missing values: pass defaults={{{name!r}: …}}, or "
                "write the dataset without these rows"
            )
        # If `nulls` is the number of a category, missing text would become that category.
        is_category = self._nulls in range(len(self._words.get(name, ())))
        is_replaced = self._nulls not in (None, MASK) and not is_category
        if is_open and is_replaced and self._is_number(feature):
            feature = dataclasses.replace(feature, default=self._nulls)
            self._set(feature)
        if feature.default is not None:
            default_scalar(feature, self.types[name])

    def mask_missing(self) -> None:
        """Replace missing numbers by 0 if there are masks; refuse those that nothing replaces."""
        unfilled: dict[str, int | None] = {}
        for feature in self.schema.features:
            if not feature.nullable or feature.default is not None or not self._is_number(feature):
                continue
            if self._nulls == MASK:
                self._set(dataclasses.replace(feature, default=0))
                self.masked.append(feature.name)
            elif self.empty[feature.name].dtype.kind in NUMBERS:
                unfilled[feature.name] = feature.observed.missing if feature.observed else None
        if unfilled:
            # A number of a category is no cure, so it is not advised to who passed it.
            number = "nulls=<number> or " if self._nulls is None else ""
            raise missing_error(
                unfilled,
                "missing values, which no tensor holds",
                f"{number}nulls='mask', or choose other columns",
            )
        check_masks(self.masked, self.schema.names)

    def encoded(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows with the numbers of categories in place of their text."""
        for name, words in self._words.items():
            column = _numbers_of(rows.column(name), words, name)
            rows = rows.set_column(rows.schema.get_field_index(name), name, column)
        if self.decodes_images:
            images = rows[IMAGE].cast(pa.large_binary())
            if pc.any(pc.match_substring_regex(images, _16_BITS)).as_py():
                warnings.warn(_BITS_CUT, OutputWarning, stacklevel=2)  # Python shows it once
        return rows

    def arrays(self, rows: pa.RecordBatch) -> dict[str, Array]:
        """Return an array for each column of encoded rows, and then the masks."""
        return arrays_of(rows, self.schema) | self.masks(rows)

    def masks(self, rows: pa.RecordBatch) -> dict[str, Array]:
        """Return arrays that are True where a masked column has a value."""
        return {
            name + MASK_SUFFIX: rows.column(name).is_valid().to_numpy(zero_copy_only=False)
            for name in self.masked
        }

    def arranged(self, values: dict[str, Any], only: str | None = None) -> Any:
        """Return the features of a batch, or features and labels.

        The features are a dict by column, or those of the column `only`.
        """
        targets = {name: values.pop(name) for name in self.labels}
        features = values if only is None else values[only]
        if not self.labels:
            return features
        return features, targets[self._label] if isinstance(self._label, str) else targets


def check_masks(masked: Sequence[str], names: Sequence[str]) -> None:
    """Raise `UsageError` if the mask of a column has the name of another column."""
    for name in masked:
        if name + MASK_SUFFIX in names:
            raise UsageError(
                f"the mask of {name!r} has the name of column {name + MASK_SUFFIX!r}: choose "
                "other columns, or pass defaults="
            )


def _is_list(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_list(arrow) or pa.types.is_large_list(arrow))


def _numbers_of(column: pa.Array, words: Sequence[str], name: str) -> pa.Array:
    """Return the number of the category of each text, or of each text in lists."""
    if _is_list(column.type):
        lengths = pc.fill_null(pc.list_value_length(column), 0)
        ends = np.cumsum([0, *lengths.to_pylist()], dtype=np.int32)
        items = _numbers_of(column.flatten(), words, name)
        return pa.ListArray.from_arrays(pa.array(ends), items, mask=column.is_null())
    numbers = pc.index_in(column, pa.array(words, column.type)).cast(pa.int64())
    if numbers.null_count > column.null_count:
        other = column.filter(pc.and_(column.is_valid(), numbers.is_null()))[0].as_py()
        raise DataError(f"column {name!r} has {other!r:.80}, which is not one of its categories")
    return numbers


def known_categories(
    dataset: Rows, names: Sequence[str], categories: Categories | None
) -> dict[str, Sequence[str]]:
    """Return the categories of text columns: those that are passed, and those of the schema."""
    schema = dataset.manifest.schema.select(dict.fromkeys(names))
    known = {
        feature.name: feature.labels
        for feature in schema.features
        if feature.labels and is_text(feature.type)
    }
    return {**known, **checked_categories(categories)}


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
    known = known_categories(dataset, [label], categories)
    columns = BatchColumns(dataset, [], label, categories=known, defaults=defaults)
    (feature,), arrow = columns.schema.features, columns.types[label]
    is_vector = pa.types.is_fixed_size_list(arrow)
    if is_text(arrow):
        raise UsageError(unknown_categories(label))
    if not (is_vector or pa.types.is_integer(arrow) or pa.types.is_boolean(arrow)):
        raise UsageError(f"label {label!r} is {arrow}, which has no classes: leave it out")
    counts: collections.Counter[int] = collections.Counter()
    for rows in columns.rows.batches():
        classes = array_of_column(columns.encoded(rows).column(label), feature)
        if is_vector:
            # A vector of zeros is a category that the step `one_hot` did not know: no class.
            classes = classes.argmax(axis=1)[classes.any(axis=1)]
        found, numbers = np.unique(classes.astype(np.int64), return_counts=True)
        counts.update(dict(zip(found.tolist(), numbers.tolist(), strict=True)))
    return {number: counts.total() / (len(counts) * counts[number]) for number in sorted(counts)}


def unknown_categories(label: str) -> str:
    """Return the message for a label of text whose categories are not known."""
    return (
        f"label {label!r} is text without known categories: pass "
        f"categories={{{label!r}: sorted(set(bt.load(path)[{label!r}]))}}, "
        f"or write numbers with --step vocabulary={label}"
    )


class Batches:
    """The batches of one reader. A step is one batch of each reader, over all epochs."""

    def __init__(
        self, rows: Rows, division: Division, *, shuffle: bool | int, seed: int | None
    ) -> None:
        self.epochs = Epochs(rows, division.step_examples, shuffle=shuffle, seed=seed)
        self.division = division

    def read(self, steps: Iterable[int]) -> Iterator[tuple[pa.RecordBatch, list[Range]]]:
        """Yield rows that are read together, and where in them the batch of each step is."""
        positions, count = self.division.positions, len(self.division)
        for epoch, own in itertools.groupby(steps, lambda step: step // count):
            ranges = (positions(step % count) for step in own)
            yield from self.epochs.read(epoch, ranges)

    def end_of_epoch(self, step: int) -> int:
        """Return the step at which the next epoch begins."""
        steps = len(self.division)
        return (step // steps + 1) * steps if steps else 0

    def step_of_epoch(self, epoch: int) -> int:
        """Return the step at which an epoch begins."""
        return check_seed(epoch, "epoch") * len(self.division)

    def row_text(self, step: int, number: int) -> str:
        """Return which row is at a position in the batch of a step, for a message."""
        epoch, of_epoch = divmod(step, len(self.division))
        position = self.division.positions(of_epoch)[0] + number
        row = self.epochs.row(epoch, position)
        return f"position {position:,} of epoch {epoch:,}" if row is None else f"row {row:,}"

    def state(self, step: int) -> dict[str, Any]:
        """Return how many examples all readers have got before a step, as JSON."""
        epoch, of_epoch = divmod(step, max(1, len(self.division)))
        delivered = self.division.delivered(of_epoch)
        return {**self.epochs.identity, "epoch": epoch, "delivered": delivered}

    def step_at(self, state: Mapping[str, Any]) -> int:
        """Return the step at a state."""
        own = self.epochs.identity
        if missing := [name for name in (*own, "epoch", "delivered") if name not in state]:
            raise UsageError(f"this is no state of a dataset: it has no {missing[0]!r}")
        if state["dataset"] != own["dataset"]:
            older = self.epochs.rows.generation_of(state["dataset"])
            raise UsageError(
                "the state is of another dataset: load the one that it was made with"
                if older is None
                else "rows were appended since the state was made: pass load(…, "
                f"generation={older}), or begin a new epoch"
            )
        if {name: state[name] for name in own} != own:
            raise UsageError(
                "the state is of another order: pass the shuffle= and seed= that it was made with"
                f" (seed {state['seed']})"
            )
        step = self.division.step_after(state["delivered"])
        return self.step_of_epoch(state["epoch"]) + step


IMAGE = "image"
# The columns that `beam_tfrecord.sources.images.source` writes beside the bytes of an image.
_DESCRIPTION = ("width", "height", "channels", "format")


class ImageSize(NamedTuple):
    """Height and width of all images of a batch, and whether they must be resized to it."""

    size: tuple[int, int]
    resize: bool


def image_decoding(
    dataset: Rows,
    columns: Sequence[str] | None,
    image_size: tuple[int, int] | None,
    *,
    decode: bool,
) -> ImageSize | None:
    """Return the size of a dataset's images; None if there are no images to decode.

    See `beam_tfrecord.frameworks.tf.tf_dataset` for the options and their errors.
    """
    names = dataset.schema.names if columns is None else columns
    described = dataset.manifest.schema
    has_images = IMAGE in names and all(name in described for name in (IMAGE, *_DESCRIPTION))
    if image_size is not None and (not decode or IMAGE not in names):
        if not decode:
            raise UsageError("image_size has no effect with decode=False: leave one of them out")
        if IMAGE in dataset.manifest.schema:
            raise UsageError(
                f"image_size needs the column {IMAGE!r}, which is not selected: leave image_size "
                "out"
            )
        raise UsageError(
            f"image_size is for a column {IMAGE!r}, which this dataset does not have: decode "
            "pictures of other columns in tf(…).map(…), as docs/webdataset.md shows"
        )
    if not decode or not (has_images or image_size):
        return None
    if image_size is not None:
        return ImageSize(_checked_size(image_size), True)
    ranges = [described[name].observed for name in ("height", "width")]
    lows = [seen.min if seen else None for seen in ranges]
    highs = [seen.max if seen else None for seen in ranges]
    if lows != highs or None in lows:
        raise UsageError(
            f"images are from {lows[0]}x{lows[1]} to {highs[0]}x{highs[1]} (height x width): "
            "pass image_size=(height, width), or decode=False for their bytes"
        )
    return ImageSize((int(lows[0] or 0), int(lows[1] or 0)), False)


def _checked_size(image_size: Any) -> tuple[int, int]:
    try:
        height, width = (operator.index(side) for side in image_size)
    except (TypeError, ValueError):
        height = width = 0
    if height < 1 or width < 1:
        raise UsageError(f"image_size {image_size!r} is not a size: pass (height, width) in pixels")
    return height, width
