"""The options of preprocessing with tensorflow-transform; see `options`."""

from __future__ import annotations

from beam_tfrecord.options.option import Option

PREPROCESS_OPTIONS: tuple[Option, ...] = (
    Option(
        "transform",
        "--transform",
        "Preprocess by steps.json, or by a function for tensorflow-transform: file.py:function.",
        metavar="STEPS",
    ),
    Option(
        "step",
        "--step",
        "One step more: impute=A,B:how=median, zscore=A, vocabulary=C:top_k=100, …; repeatable.",
        (),
        "words",
        "OP=A,B",
    ),
    Option(
        "transform_fn",
        "--transform-fn",
        "Preprocess by the function that was fitted for another dataset.",
        metavar="DATASET",
    ),
    Option("fit", "--fit", "Split that statistics are made of.", "train", metavar="SPLIT"),
    Option("raw_too", "--raw-too", "Keep raw values too, as A_raw.", False, "switch"),
)
