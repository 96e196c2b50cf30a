"""The steps on categories, in TFT operations; their meaning is told in `functions.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from beam_tfrecord.preprocess.columns import Column, dense, on_values, values_of
from beam_tfrecord.preprocess.matrices import open_matrix

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
