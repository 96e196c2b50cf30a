"""The steps on numbers, in TFT operations; their meaning is told in `functions.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from beam_tfrecord.preprocess.category_steps import impute_text, most_frequent
from beam_tfrecord.preprocess.columns import (
    Column,
    Filled,
    as_sparse,
    dense,
    finite,
    on_values,
    rows_of,
    values_of,
)

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
