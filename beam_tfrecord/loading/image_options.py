"""Decides whether and to which size images are decoded, for TensorFlow and PyTorch."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

from beam_tfrecord.errors import UsageError
from beam_tfrecord.loading.rows import Rows

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
