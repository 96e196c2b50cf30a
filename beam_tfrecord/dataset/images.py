"""Pictures of a dataset as tensors of one size, as Keras makes them from a directory."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from beam_tfrecord.errors import UsageError

if TYPE_CHECKING:
    from beam_tfrecord.dataset.load import Dataset

IMAGE = "image"
# What `beam_tfrecord.sources.images.source` writes beside the bytes of every picture.
_DESCRIPTION = ("width", "height", "channels", "format")
_CHANNELS = 3


@dataclasses.dataclass(frozen=True)
class Pictures:
    """How pictures become tensors.

    Attributes:
        size: Height and width.
        resize: False where all pictures have that size already.
        are_alone: They are given by themselves, without the other columns.
    """

    size: tuple[int, int]
    resize: bool
    are_alone: bool

    def decoded(self, parsed: Mapping[str, Any], labels: Sequence[str]) -> dict[str, Any]:
        """Return the columns of one parsed example with the picture decoded."""
        import tensorflow as tf

        decoded = dict(parsed)
        # The first frame of several: what moves cannot be one row of a batch.
        image = tf.io.decode_image(parsed[IMAGE], channels=_CHANNELS, expand_animations=False)
        image.set_shape((None, None, _CHANNELS))
        image = tf.image.resize(image, self.size) if self.resize else tf.cast(image, tf.float32)
        image.set_shape((*self.size, _CHANNELS))
        decoded[IMAGE] = image
        if self.are_alone:
            for name in labels:
                if decoded[name].dtype == tf.int64:
                    decoded[name] = tf.cast(decoded[name], tf.int32)
        return decoded


def pictures_of(
    dataset: Dataset,
    columns: Sequence[str] | None,
    image_size: tuple[int, int] | None,
    *,
    decode: bool,
) -> Pictures | None:
    """Return how the pictures of a dataset are decoded; None where it has none, or they are not.

    Args:
        dataset: From `load`.
        columns: The columns that are read; None: all.
        image_size: Height and width that are wanted.
        decode: False leaves them as they are.

    Raises:
        UsageError: A size is wanted of what is no picture, or none where they have several.
    """
    names = dataset.schema.names if columns is None else columns
    described = dataset.manifest.schema
    has_pictures = IMAGE in names and all(name in described for name in (IMAGE, *_DESCRIPTION))
    if image_size is not None and (not decode or IMAGE not in names):
        what = f"there is no column {IMAGE!r} among them" if decode else "decode is False"
        raise UsageError(f"image_size is for pictures, but {what}: leave it out")
    if not decode or not (has_pictures or image_size):
        return None
    are_alone = columns is None
    if image_size is not None:
        return Pictures(_checked(image_size), True, are_alone)
    ranges = [described[name].observed for name in ("height", "width")]
    lows = [seen.min if seen else None for seen in ranges]
    highs = [seen.max if seen else None for seen in ranges]
    if lows != highs or None in lows:
        raise UsageError(
            f"pictures are from {lows[0]}x{lows[1]} to {highs[0]}x{highs[1]} (height x width): "
            "pass image_size=(height, width), or decode=False for their bytes"
        )
    return Pictures((int(lows[0] or 0), int(lows[1] or 0)), False, are_alone)


def _checked(image_size: Any) -> tuple[int, int]:
    try:
        height, width = (operator.index(side) for side in image_size)
    except (TypeError, ValueError):
        height = width = 0
    if height < 1 or width < 1:
        raise UsageError(f"image_size {image_size!r} is no size: pass (height, width) in pixels")
    return height, width
