"""The options of NumPy arrays, for the table in `options.py`."""

from __future__ import annotations

from beam_tfrecord.options.option import Option

_NUMPY = ("numpy",)

NUMPY_OPTIONS: tuple[Option, ...] = (
    Option(
        "example",
        "--example",
        "What one example is: an entry along the first axis, or a whole array (NumPy).",
        form="choice",
        choices=("row", "array"),
        sources=_NUMPY,
    ),
    Option(
        "store",
        "--store",
        "How arrays are kept: as their bytes, or as int64 and float32 values (NumPy).",
        "bytes",
        "choice",
        choices=("bytes", "values"),
        sources=_NUMPY,
    ),
)
