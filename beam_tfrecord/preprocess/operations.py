"""A column on its way through its steps, as tensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from beam_tfrecord.preprocess.steps import open_matrix

if TYPE_CHECKING:
    import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Filled:
    """What is known of a number column that was imputed, before it was.

    Attributes:
        present: Its values, shape `[values]`, float64.
        rows: Number of rows of the batch, those with an infinity left out.
        fill: What replaced the missing ones, a float64 scalar.
    """

    present: tf.Tensor
    rows: tf.Tensor
    fill: tf.Tensor


@dataclasses.dataclass(frozen=True)
class Column:
    """A column on its way through its steps.

    Attributes:
        tensor: Dense, shape `[rows]`, or sparse, `[rows, values]`.
        number: The same in float64 where that says more than `tensor`.
        filled: How it was imputed, if by its last step.
    """

    tensor: tf.Tensor | tf.SparseTensor
    number: tf.Tensor | tf.SparseTensor | None = None
    filled: Filled | None = None

    def on_values(self, function: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor | tf.SparseTensor:
        """Return what a function makes of the values; of float64 where they are numbers."""
        return on_values(self.as_numbers(), function)

    def as_numbers(self) -> tf.Tensor | tf.SparseTensor:
        """Return the values as float64, but text as it is."""
        import tensorflow as tf

        if self.number is not None:
            return self.number
        return self.tensor if self.tensor.dtype == tf.string else tf.cast(self.tensor, tf.float64)

    def values(self) -> tf.Tensor:
        """Return the values that are there, shape `[values]`."""
        return values_of(self.as_numbers())

    def with_tensor(self, tensor: Any, number: Any = None) -> Column:
        """Return the column with other values."""
        return Column(tensor, number)


def values_of(tensor: Any) -> Any:
    """Return the values of a tensor that are there, shape `[values]`."""
    return tensor.values if hasattr(tensor, "dense_shape") else tensor


def on_values(tensor: Any, function: Callable[[Any], Any]) -> Any:
    """Return what a function makes of the values of a dense or sparse tensor."""
    import tensorflow as tf

    if not hasattr(tensor, "dense_shape"):
        return function(tensor)
    return tf.SparseTensor(tensor.indices, function(tensor.values), tensor.dense_shape)


def finite(values: Any) -> Any:
    """Return the values that are neither NaN nor infinite."""
    import tensorflow as tf

    return tf.boolean_mask(values, tf.math.is_finite(values))


def rows_of(tensor: Any) -> Any:
    """Return the number of rows, an int64 scalar."""
    import tensorflow as tf

    if hasattr(tensor, "dense_shape"):
        return tensor.dense_shape[0]
    return tf.shape(tensor, tf.int64)[0]


def as_sparse(tensor: Any) -> Any:
    """Return at most one value a row as a sparse tensor."""
    import tensorflow as tf

    if hasattr(tensor, "dense_shape"):
        return tensor
    rows = tf.range(rows_of(tensor))
    return tf.SparseTensor(
        tf.stack([rows, tf.zeros_like(rows)], axis=1), tensor, [rows_of(tensor), 1]
    )


def dense(tensor: Any, fill: Any) -> Any:
    """Return at most one value a row as shape `[rows]`, missing ones filled."""
    import tensorflow as tf

    if not hasattr(tensor, "dense_shape"):
        return tensor
    owners = tensor.indices[:, 0]
    base = tf.fill([tensor.dense_shape[0]], tf.cast(fill, tensor.dtype))
    return tf.ensure_shape(
        tf.tensor_scatter_nd_update(base, owners[:, tf.newaxis], tensor.values), [None]
    )


# What TFT writes into a vocabulary file that would be empty, which TensorFlow cannot read.
_NO_WORD = "49d0cd50-04bb-48c0-bc6f-5b575dce351a"

# A vocabulary file has a text a line, so TFT leaves out every text with a line break. As regular
# expressions and as TensorFlow writes what replaces them; the backslash comes first.
_ESCAPES = ((r"\\", r"\\\\"), ("\n", r"\\n"), ("\r", r"\\r"))
_PLAIN = r"[^\\\n\r]*"


def escaped(words: Any) -> Any:
    """Return texts as a vocabulary file holds them: each text as another one without line breaks.

    Args:
        words: Strings, dense or sparse; numbers stay as they are.
    """
    import tensorflow as tf

    if words.dtype != tf.string:
        return words

    def replaced(values: Any) -> Any:
        for pattern, rewrite in _ESCAPES:
            values = tf.strings.regex_replace(values, pattern, rewrite)
        return values

    def replaced_if_any(values: Any) -> Any:
        # One search of all texts together is seven times as fast as three in each.
        is_plain = tf.strings.regex_full_match(tf.strings.reduce_join(values), _PLAIN)
        return tf.cond(is_plain, lambda: values, lambda: replaced(values))

    return on_values(words, replaced_if_any)


def unescaped(word: Any) -> Any:
    """Return the text, a string scalar, that `escaped` gives as `word`."""
    import tensorflow as tf

    # Between two backslashes that stand for one, any other begins the name of a line break.
    parts = tf.strings.split(word, "\\\\")
    for name, character in (("n", "\n"), ("r", "\r")):
        parts = tf.strings.regex_replace(parts, rf"\\{name}", character)
    return tf.strings.reduce_join(parts, separator="\\")


def most_frequent(words: Any, file: str, default: str) -> Any:
    """Return the most frequent text; of several the last in the order of their escaped bytes."""
    import tensorflow as tf
    import tensorflow_transform as tft

    name = f"{file}_most_frequent"
    path = tft.vocabulary(escaped(words), top_k=1, vocab_filename=name)
    found = tf.strings.split(tf.io.read_file(path), "\n")[0]
    return tf.where(tf.equal(found, _NO_WORD), tf.constant(default), unescaped(found))


def impute_text(column: Column, options: Mapping[str, Any], file: str) -> Column:
    """Fill what is missing of a column of text."""
    import tensorflow as tf

    if "value" in options:
        fill = tf.constant(options["value"])
    else:
        fill = most_frequent(values_of(column.tensor), file, "")
    return column.with_tensor(dense(column.tensor, fill))


def _vocabulary_index(
    column: Column, options: Mapping[str, Any], file: str, oov_buckets: int
) -> Any:
    import tensorflow_transform as tft

    return tft.compute_and_apply_vocabulary(
        escaped(column.tensor),
        top_k=options.get("top_k"),
        frequency_threshold=options.get("min_count"),
        num_oov_buckets=oov_buckets,
        vocab_filename=file,
    )


def vocabulary(column: Column, options: Mapping[str, Any], file: str) -> Column:
    """Give the category's number, the most frequent first."""
    return column.with_tensor(
        _vocabulary_index(column, options, file, options.get("oov_buckets", 1))
    )


def one_hot(column: Column, options: Mapping[str, Any], file: str) -> Column:
    """Give a list of zeros with a one at the category."""
    import tensorflow as tf
    import tensorflow_transform as tft

    found = dense(_vocabulary_index(column, options, file, 0), -1)
    size = tft.experimental.get_vocabulary_size_by_name(file)
    return column.with_tensor(tf.one_hot(found, tf.cast(size, tf.int32)))


def hash_buckets(column: Column, options: Mapping[str, Any], file: str) -> Column:
    """Give the number of the bucket that a hash of the value falls into."""
    import tensorflow as tf
    import tensorflow_transform as tft

    words = column.tensor
    if words.dtype != tf.string:
        words = on_values(words, tf.strings.as_string)
    return column.with_tensor(tft.hash_strings(words, options["buckets"]))


def embed(column: Column, options: Mapping[str, Any], file: str) -> Column:
    """Give the row of a matrix, or its checked number."""
    import tensorflow as tf

    matrix = np.ascontiguousarray(open_matrix(options["matrix"]), np.float32)
    rows = len(matrix)
    if options.get("write", "vectors") == "index":
        return column.with_tensor(
            on_values(column.tensor, lambda x: tf.where((x >= 0) & (x < rows), x, -tf.ones_like(x)))
        )
    index = dense(column.tensor, -1)
    # One more row, of zeros, for what has no row of its own.
    table = tf.constant(np.concatenate([matrix, np.zeros_like(matrix[:1])]))
    known = (index >= 0) & (index < rows)
    return column.with_tensor(tf.gather(table, tf.where(known, index, rows * tf.ones_like(index))))


# Share of the rows by which the rank of a median or boundary may be off.
RANK_ERROR = 1e-4


def _moments(values: Any, rows: Any) -> tuple[Any, Any, Any, Any]:
    """Return the number of rows, of finite values, their mean and their variance, as float64."""
    import tensorflow as tf
    import tensorflow_transform as tft

    from beam_tfrecord.preprocess.moments import ExactMoments

    (found,) = tft.experimental.ptransform_analyzer(
        [values, rows], ExactMoments(), [tf.float64], [[4]]
    )
    return found[0], found[1], found[2], found[3]


def zscore(column: Column, options: Mapping[str, Any], file: str) -> Column:
    """Take away the mean, and divide by the standard deviation."""
    import tensorflow as tf

    filled = column.filled
    if filled is None:
        values = column.values()
        _, _, mean, variance = _moments(values, tf.size(values, tf.int64))
    else:
        # Of the column as it is filled now, by the shares of both parts: another pass over the
        # data would give the same.
        rows, count, of_present, spread = _moments(filled.present, filled.rows)
        share = tf.math.divide_no_nan(count, rows)
        mean = share * of_present + (1 - share) * filled.fill
        variance = (
            share * (spread + (of_present - mean) ** 2) + (1 - share) * (filled.fill - mean) ** 2
        )
    deviation = tf.sqrt(variance)
    return column.with_tensor(
        column.on_values(lambda x: tf.where(deviation > 0, (x - mean) / deviation, x - x))
    )


def minmax(column: Column, options: Mapping[str, Any], file: str) -> Column:
    """Bring the range of the values to 0 to 1."""
    import tensorflow as tf
    import tensorflow_transform as tft

    values = finite(column.values())
    low, high = tft.min(values), tft.max(values)
    return column.with_tensor(
        column.on_values(lambda x: tf.where(high > low, (x - low) / (high - low), x - x))
    )


def clip(column: Column, options: Mapping[str, Any], file: str) -> Column:
    """Bring values beyond a limit to it."""
    import tensorflow as tf

    low, high = options.get("low"), options.get("high")
    limits = [limit for limit in (low, high) if limit is not None]
    stays = column.tensor.dtype.is_integer and all(float(limit).is_integer() for limit in limits)
    kind = tf.int64 if stays else tf.float64

    def clipped(x: Any) -> Any:
        x = x if low is None else tf.maximum(x, tf.constant(low, kind))
        return x if high is None else tf.minimum(x, tf.constant(high, kind))

    if stays:
        number = None if column.number is None else on_values(column.number, _as_float(clipped))
        return column.with_tensor(on_values(column.tensor, clipped), number)
    return column.with_tensor(column.on_values(clipped))


def _as_float(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function of whole numbers as one of float64."""
    import tensorflow as tf

    return lambda x: tf.cast(function(tf.cast(tf.round(x), tf.int64)), tf.float64)


def log1p(column: Column, options: Mapping[str, Any], file: str) -> Column:
    """Take the natural logarithm of one more than the value."""
    import tensorflow as tf

    return column.with_tensor(column.on_values(tf.math.log1p))


def _quantiles(values: Any, buckets: int) -> Any:
    """Return the boundaries between `buckets` parts of about equal size, float64.

    TFT keeps them as float32: of the distance from the smallest value, so that large values that
    lie close together, such as times, stay apart.
    """
    import tensorflow as tf
    import tensorflow_transform as tft

    low = tft.min(finite(values))
    found = tft.quantiles(finite(values) - low, buckets, RANK_ERROR)
    return tf.cast(tf.reshape(found, [-1]), tf.float64) + low


def bucketize(column: Column, options: Mapping[str, Any], file: str) -> Column:
    """Give the number of the range that a value lies in, from 0."""
    import tensorflow as tf

    if "boundaries" in options:
        boundaries = tf.constant(options["boundaries"], tf.float64)
    else:
        boundaries = _quantiles(column.values(), options["buckets"])
    numbers = as_sparse(column.as_numbers())
    known = tf.sparse.retain(numbers, ~tf.math.is_nan(numbers.values))
    found = on_values(
        known, lambda x: tf.searchsorted(boundaries, x, side="right", out_type=tf.int64)
    )
    return column.with_tensor(found)


def impute(column: Column, options: Mapping[str, Any], file: str) -> Column:
    """Fill what is missing, NaN included."""
    import tensorflow as tf

    if column.tensor.dtype == tf.string:
        return impute_text(column, options, file)
    numbers = column.as_numbers()
    present = values_of(numbers)
    rows = rows_of(numbers) - tf.math.count_nonzero(tf.math.is_inf(present))
    fill = _number_fill(present, rows, options, file)
    filled = dense(numbers, fill)
    filled = tf.where(tf.math.is_nan(filled), fill, filled)
    known = Filled(present, rows, fill)
    if not column.tensor.dtype.is_integer:
        return Column(filled, filled, known)
    # Through float64 a large whole number would lose its last digits.
    whole = dense(column.tensor, tf.cast(tf.round(fill), tf.int64))
    return Column(whole, filled, known)


def _number_fill(values: Any, rows: Any, options: Mapping[str, Any], file: str) -> Any:
    import tensorflow as tf
    import tensorflow_transform as tft

    if "value" in options:
        return tf.constant(options["value"], tf.float64)
    how = options.get("how", "mean")
    if how == "mean":
        return _moments(values, rows)[2]
    if how == "median":
        # Of no value at all, the smallest is the largest number there is.
        low = tft.min(tf.concat([finite(values), [tf.float64.max]], 0))
        found = _quantiles(values, 2)[0]
        return tf.where(low < tf.float64.max, found, tf.zeros_like(found))
    # Seventeen digits tell every double from its neighbours.
    words = tf.strings.as_string(finite(values), precision=16, scientific=True)
    word = most_frequent(words, file, "0")
    # Before statistics are made, TFT runs the function with another text in place of the file.
    is_number = tf.strings.regex_full_match(word, r"[-+.0-9e]+")
    return tf.strings.to_number(tf.where(is_number, word, "0"), tf.float64)
