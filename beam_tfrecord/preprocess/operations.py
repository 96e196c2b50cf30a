r"""Implements the preprocessing steps (`zscore`, `vocabulary`, …) with tensorflow-transform (TFT).

Importing this module imports TensorFlow. What the steps do with missing and unusual values (the
tests check every line):

* A missing value stays missing, with three exceptions: `impute` fills it, and `one_hot` and `embed`
  write zeros for it (`embed` only if it writes vectors).
* NaN counts as missing for `impute` and `drop_null`, and statistics leave out NaN and infinities.
  Otherwise NaN stays NaN, except that `bucketize` makes it missing.
* If the split for statistics has no value of a column, mean, median and most frequent number are 0,
  the most frequent text is empty, and the vocabulary is empty.
* `zscore` and `minmax` of a constant column are 0.
* Calculations convert integers to float64, which rounds those beyond 2^53.
* A category that is not in the vocabulary (unseen, too rare, the empty text) gets an index after
  those of the vocabulary: the index of an out-of-vocabulary bucket, which a hash selects if there
  are several. If there is no such bucket, the index is -1.
* A vocabulary file has one category per line: a line break is written ``\n``, a carriage return
  ``\r`` and a backslash as two backslashes.
* `impute` of integers returns integers. The mean is rounded if the column is written next, but not
  if another step follows.

Medians, and the boundaries of `bucketize` with a number of buckets, come from quantile sketches.
Their last digits depend on how the data was divided among workers. No other result does: means and
variances come from `CombineMoments`, sums of values and squares as integers, because
floating-point sums depend on the order of their terms.
"""

from __future__ import annotations

import dataclasses
import fractions
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import apache_beam as beam
import numpy as np
import tensorflow as tf
import tensorflow_transform as tft

from beam_tfrecord.native.kernel_types import Float64Array
from beam_tfrecord.preprocess.fitted import NO_WORD
from beam_tfrecord.preprocess.steps import open_matrix
from beam_tfrecord.stats.numeric_summary import FLOAT_UNIT, float_sums

# The greatest error of the rank of a median or boundary, as a share of the rows.
RANK_ERROR = 1e-4

# TFT leaves out every text with a line break, since a vocabulary file has one text per line, so
# texts are escaped. Patterns and replacements are in TensorFlow's syntax; the backslash must be
# replaced first.
_ESCAPES = ((r"\\", r"\\\\"), ("\n", r"\\n"), ("\r", r"\\r"))
_PLAIN = r"[^\\\n\r]*"

Options = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Imputed:
    """A column of numbers before `impute` filled it, and the number that filled it."""

    present: tf.Tensor
    rows: tf.Tensor
    fill: tf.Tensor


@dataclasses.dataclass(frozen=True)
class StepColumn:
    """A column between two of its steps."""

    tensor: tf.Tensor | tf.SparseTensor
    number: tf.Tensor | tf.SparseTensor | None = None
    imputed: Imputed | None = None

    @property
    def as_float(self) -> tf.Tensor | tf.SparseTensor:
        """The column as float64; text stays text."""
        if self.number is not None:
            return self.number
        return self.tensor if self.tensor.dtype == tf.string else tf.cast(self.tensor, tf.float64)


def _is_sparse(tensor: Any) -> bool:
    return hasattr(tensor, "dense_shape")


def _present(tensor: Any) -> Any:
    """Return the values that are present, shape `[values]`."""
    return tensor.values if _is_sparse(tensor) else tensor


def _on_values(tensor: Any, function: Callable[[Any], Any]) -> Any:
    """Return a dense or sparse tensor with a function applied to its values."""
    if not _is_sparse(tensor):
        return function(tensor)
    return tf.SparseTensor(tensor.indices, function(tensor.values), tensor.dense_shape)


def _finite(values: Any) -> Any:
    """Return the values that are neither NaN nor infinite."""
    return tf.boolean_mask(values, tf.math.is_finite(values))


def _row_count(tensor: Any) -> Any:
    """Return the number of rows, an int64 scalar."""
    return tensor.dense_shape[0] if _is_sparse(tensor) else tf.shape(tensor, tf.int64)[0]


def _as_sparse(tensor: Any) -> Any:
    """Return a tensor with at most one value per row as a sparse tensor."""
    if _is_sparse(tensor):
        return tensor
    rows = tf.range(_row_count(tensor))
    indices = tf.stack([rows, tf.zeros_like(rows)], axis=1)
    return tf.SparseTensor(indices, tensor, [_row_count(tensor), 1])


def _as_dense(tensor: Any, fill: Any) -> Any:
    """Return a tensor with at most one value per row as a dense one, missing values filled.

    The result has shape `[rows]`.
    """
    if not _is_sparse(tensor):
        return tensor
    rows = tensor.indices[:, 0]
    base = tf.fill([tensor.dense_shape[0]], tf.cast(fill, tensor.dtype))
    filled = tf.tensor_scatter_nd_update(base, rows[:, tf.newaxis], tensor.values)
    return tf.ensure_shape(filled, [None])


def _moments(values: Any, rows: Any) -> tuple[Any, Any, Any, Any]:
    """Return the number of rows, and number, mean and variance of finite values, as float64.

    They are statistics of all rows of the split, not of a batch.
    """
    combine = beam.CombineGlobally(CombineMoments())
    (found,) = tft.experimental.ptransform_analyzer([values, rows], combine, [tf.float64], [[4]])
    return found[0], found[1], found[2], found[3]


def zscore(column: StepColumn, options: Options, file: str) -> StepColumn:
    """Subtract the mean, and divide by the standard deviation."""
    imputed = column.imputed
    if imputed is None:
        values = _present(column.as_float)
        _, _, mean, variance = _moments(values, tf.size(values, tf.int64))
    else:
        # The moments of the filled column follow from the moments of the present values and the
        # fill, which saves another pass over the data.
        rows, count, present_mean, spread = _moments(imputed.present, imputed.rows)
        share, fill = tf.math.divide_no_nan(count, rows), imputed.fill
        mean = share * present_mean + (1 - share) * fill
        variance = share * (spread + (present_mean - mean) ** 2) + (1 - share) * (fill - mean) ** 2
    deviation = tf.sqrt(variance)
    return StepColumn(
        _on_values(
            column.as_float, lambda x: tf.where(deviation > 0, (x - mean) / deviation, x - x)
        )
    )


def minmax(column: StepColumn, options: Options, file: str) -> StepColumn:
    """Scale the range of the values to 0 to 1."""
    values = _finite(_present(column.as_float))
    low, high = tft.min(values), tft.max(values)
    return StepColumn(
        _on_values(column.as_float, lambda x: tf.where(high > low, (x - low) / (high - low), x - x))
    )


def clip(column: StepColumn, options: Options, file: str) -> StepColumn:
    """Replace values beyond a limit with the limit."""
    low, high = options.get("low"), options.get("high")
    limits = [limit for limit in (low, high) if limit is not None]
    stays = column.tensor.dtype.is_integer and all(float(limit).is_integer() for limit in limits)
    kind = tf.int64 if stays else tf.float64

    def clipped(x: Any) -> Any:
        x = x if low is None else tf.maximum(x, tf.constant(low, kind))
        return x if high is None else tf.minimum(x, tf.constant(high, kind))

    def clipped_float(x: Any) -> Any:
        return tf.cast(clipped(tf.cast(tf.round(x), tf.int64)), tf.float64)

    if not stays:
        return StepColumn(_on_values(column.as_float, clipped))
    number = None if column.number is None else _on_values(column.number, clipped_float)
    return StepColumn(_on_values(column.tensor, clipped), number)


def log1p(column: StepColumn, options: Options, file: str) -> StepColumn:
    """Take the natural logarithm of one plus the value."""
    return StepColumn(_on_values(column.as_float, tf.math.log1p))


def _quantiles(values: Any, buckets: int) -> Any:
    """Return the boundaries between `buckets` ranges with about equally many values, float64.

    TFT rounds boundaries to float32. To keep large values apart that lie close together, such as
    times, the smallest value is subtracted before.
    """
    low = tft.min(_finite(values))
    found = tft.quantiles(_finite(values) - low, buckets, RANK_ERROR)
    return tf.cast(tf.reshape(found, [-1]), tf.float64) + low


def bucketize(column: StepColumn, options: Options, file: str) -> StepColumn:
    """Replace each value by the number of the range that it lies in, from 0."""
    if "boundaries" in options:
        boundaries = tf.constant(options["boundaries"], tf.float64)
    else:
        boundaries = _quantiles(_present(column.as_float), options["buckets"])
    numbers = _as_sparse(column.as_float)
    known = tf.sparse.retain(numbers, ~tf.math.is_nan(numbers.values))
    return StepColumn(
        _on_values(known, lambda x: tf.searchsorted(boundaries, x, side="right", out_type=tf.int64))
    )


def impute(column: StepColumn, options: Options, file: str) -> StepColumn:
    """Fill missing values and NaN with a constant or a statistic of the column."""
    if column.tensor.dtype == tf.string:
        return _impute_text(column, options, file)
    numbers = column.as_float
    present = _present(numbers)
    rows = _row_count(numbers) - tf.math.count_nonzero(tf.math.is_inf(present))
    fill = _number_fill(present, rows, options, file)
    filled = _as_dense(numbers, fill)
    filled = tf.where(tf.math.is_nan(filled), fill, filled)
    imputed = Imputed(present, rows, fill)
    if not column.tensor.dtype.is_integer:
        return StepColumn(filled, filled, imputed)
    # Filled without the detour through float64, in which a large integer loses its last digits.
    whole = _as_dense(column.tensor, tf.cast(tf.round(fill), tf.int64))
    return StepColumn(whole, filled, imputed)


def _number_fill(values: Any, rows: Any, options: Options, file: str) -> Any:
    if "value" in options:
        return tf.constant(options["value"], tf.float64)
    how = options.get("how", "mean")
    if how == "mean":
        return _moments(values, rows)[2]
    if how == "median":
        # If there is no value, the minimum is the largest float64.
        low = tft.min(tf.concat([_finite(values), [tf.float64.max]], 0))
        found = _quantiles(values, 2)[0]
        return tf.where(low < tf.float64.max, found, tf.zeros_like(found))
    # Seventeen digits distinguish every double from its neighbours.
    words = tf.strings.as_string(_finite(values), precision=16, scientific=True)
    word = _most_frequent(words, file, "0")
    # Before statistics exist, TFT traces the function with a placeholder text for the file.
    is_number = tf.strings.regex_full_match(word, r"[-+.0-9e]+")
    return tf.strings.to_number(tf.where(is_number, word, "0"), tf.float64)


def _impute_text(column: StepColumn, options: Options, file: str) -> StepColumn:
    if "value" in options:
        fill = tf.constant(options["value"])
    else:
        fill = _most_frequent(_present(column.tensor), file, "")
    return StepColumn(_as_dense(column.tensor, fill))


def _most_frequent(words: Any, file: str, default: str) -> Any:
    """Return the most frequent text; if several are, the last in the order of escaped bytes."""
    path = tft.vocabulary(escaped(words), top_k=1, vocab_filename=f"{file}_most_frequent")
    found = tf.strings.split(tf.io.read_file(path), "\n")[0]
    return tf.where(tf.equal(found, NO_WORD), tf.constant(default), unescaped(found))


def escaped(words: Any) -> Any:
    """Return texts with line breaks and backslashes escaped, as a vocabulary file has them.

    Distinct texts stay distinct.
    """
    if words.dtype != tf.string:
        return words

    def replaced(values: Any) -> Any:
        for pattern, rewrite in _ESCAPES:
            values = tf.strings.regex_replace(values, pattern, rewrite)
        return values

    def replaced_if_any(values: Any) -> Any:
        # Searching all texts joined is seven times as fast as three replacements in each text.
        is_plain = tf.strings.regex_full_match(tf.strings.reduce_join(values), _PLAIN)
        return tf.cond(is_plain, lambda: values, lambda: replaced(values))

    return _on_values(words, replaced_if_any)


def unescaped(word: Any) -> Any:
    """Return the text, a string scalar, that `escaped` turns into `word`."""
    # A pair of backslashes stands for one backslash. After splitting at pairs, each single
    # backslash that is left begins `\n` or `\r`.
    parts = tf.strings.split(word, "\\\\")
    for name, character in (("n", "\n"), ("r", "\r")):
        parts = tf.strings.regex_replace(parts, rf"\\{name}", character)
    return tf.strings.reduce_join(parts, separator="\\")


def _vocabulary_index(column: StepColumn, options: Options, file: str, oov_buckets: int) -> Any:
    return tft.compute_and_apply_vocabulary(
        escaped(column.tensor),
        top_k=options.get("top_k"),
        frequency_threshold=options.get("min_count"),
        num_oov_buckets=oov_buckets,
        vocab_filename=file,
    )


def vocabulary(column: StepColumn, options: Options, file: str) -> StepColumn:
    """Replace each category by its index in the vocabulary, from 0 for the most frequent."""
    return StepColumn(_vocabulary_index(column, options, file, options.get("oov_buckets", 1)))


def one_hot(column: StepColumn, options: Options, file: str) -> StepColumn:
    """Replace each category by a list of zeros with a one at the category's index."""
    found = _as_dense(_vocabulary_index(column, options, file, 0), -1)
    size = tft.experimental.get_vocabulary_size_by_name(file)
    return StepColumn(tf.one_hot(found, tf.cast(size, tf.int32)))


def hash_buckets(column: StepColumn, options: Options, file: str) -> StepColumn:
    """Replace each value by the number of a bucket, which a hash of the value selects."""
    words = column.tensor
    if words.dtype != tf.string:
        words = _on_values(words, tf.strings.as_string)
    return StepColumn(tft.hash_strings(words, options["buckets"]))


def embed(column: StepColumn, options: Options, file: str) -> StepColumn:
    """Replace each row number by that row of a matrix, or check the number (``write=index``).

    If the matrix has no such row, the result is zeros, or -1 for the number.
    """
    matrix = np.ascontiguousarray(open_matrix(options["matrix"]), np.float32)
    rows = len(matrix)
    if options.get("write", "vectors") == "index":
        return StepColumn(
            _on_values(
                column.tensor, lambda x: tf.where((x >= 0) & (x < rows), x, -tf.ones_like(x))
            )
        )
    index = _as_dense(column.tensor, -1)
    # An additional row of zeros serves all values without a row.
    table = tf.constant(np.concatenate([matrix, np.zeros_like(matrix[:1])]))
    known = (index >= 0) & (index < rows)
    return StepColumn(tf.gather(table, tf.where(known, index, rows * tf.ones_like(index))))


# The function of each operation, called with a column, the step's options, and a name for the
# vocabulary file of the step.
OPERATIONS: dict[str, Callable[[StepColumn, Options, str], StepColumn]] = {
    "impute": impute,
    "zscore": zscore,
    "minmax": minmax,
    "bucketize": bucketize,
    "one_hot": one_hot,
    "vocabulary": vocabulary,
    "embed": embed,
    "hash": hash_buckets,
    "clip": clip,
    "log1p": log1p,
}


# Numbers of rows and of finite values, and `float_sums` of these: exact, so that any order serves.
Moments = tuple[int, ...]
_NONE: Moments = (0, 0, 0, 0)


class CombineMoments(beam.CombineFn):
    """Combines batches, pairs of values (shape `[n]`) and a number of rows, to their moments."""

    def create_accumulator(self) -> Moments:
        """Return the sums over no values."""
        return _NONE

    def add_input(self, accumulator: Moments, element: tuple[Any, ...]) -> Moments:
        """Return the sums with the values of one more batch."""
        values, rows = np.asarray(element[0], np.float64), int(element[1])
        # Sorted, because sums of sorted floats are faster.
        finite = np.sort(values[np.isfinite(values)])
        added = rows, len(finite), *float_sums(finite)
        return self.merge_accumulators([accumulator, added])

    def merge_accumulators(self, accumulators: Iterable[Moments]) -> Moments:
        """Return the sums over the data of all accumulators."""
        return tuple(map(sum, zip(_NONE, *accumulators, strict=True)))

    def extract_output(self, accumulator: Moments) -> Float64Array:
        """Return number of rows, number of finite values, mean and variance, shape `[4]`.

        Mean and variance (of the population) are rounded once, and 0 if there is no finite value.
        """
        rows, finite, total, squares = accumulator
        count, spread = max(1, finite), squares * finite - total * total
        mean = float(fractions.Fraction(total, count << FLOAT_UNIT))
        try:
            variance = float(fractions.Fraction(spread, count**2 << 2 * FLOAT_UNIT))
        except OverflowError:
            variance = math.inf
        return np.array([rows, finite, mean, variance], np.float64)
