"""The options of pictures, for the table in `options.py`."""

from __future__ import annotations

from beam_tfrecord.options.option import Option

_IMAGES = ("images",)

IMAGE_OPTIONS: tuple[Option, ...] = (
    Option(
        "layout",
        "--layout",
        "What folders mean: class, split or flat (images); plain: features shape and data (NumPy).",
        metavar="NAME",
        sources=("images", "numpy"),
    ),
    Option(
        "labels",
        "--labels",
        "File with the classes in order, one a line (images).",
        metavar="FILE",
        sources=_IMAGES,
    ),
    Option(
        "base",
        "--base",
        "Directory that the paths of a table are relative to (images).",
        metavar="DIR",
        sources=_IMAGES,
    ),
    Option(
        "path_column",
        "--path-column",
        "Column of a table that holds the paths (images).  [default: path]",
        metavar="C",
        sources=_IMAGES,
    ),
    Option(
        "label_column",
        "--label-column",
        "Column of a table that holds the classes (images).",
        "label",
        metavar="C",
        sources=_IMAGES,
    ),
    Option(
        "check",
        "--check",
        "What to check of every picture (images).",
        "header",
        "choice",
        choices=("header", "decode", "none"),
        sources=_IMAGES,
    ),
    Option(
        "resize",
        "--resize",
        "New length of the shorter side, or HEIGHTxWIDTH (images).",
        metavar="SIZE",
        sources=_IMAGES,
    ),
    Option(
        "format",
        "--format",
        "Format to store: jpeg, png or webp (images).",
        metavar="NAME",
        sources=_IMAGES,
    ),
    Option(
        "quality",
        "--quality",
        "Of what is encoded anew as JPEG or WebP, 1 to 100 (images).",
        90,
        "number",
        "N",
        sources=_IMAGES,
    ),
    Option(
        "orient",
        "--orient",
        "Turn the pixels as EXIF says (images).",
        False,
        "switch",
        sources=_IMAGES,
    ),
    Option(
        "max_pixels",
        "--max-pixels",
        "Largest width times height (images).",
        2**28,
        "number",
        "N",
        least=1,
        sources=_IMAGES,
    ),
    Option(
        "max_bytes",
        "--max-bytes",
        "Largest file (images).",
        2**30,
        "number",
        "N",
        least=1,
        sources=_IMAGES,
    ),
)
