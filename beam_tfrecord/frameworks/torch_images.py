"""Decodes images to PyTorch tensors; importing this module imports PyTorch."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from beam_tfrecord.base.extras import require
from beam_tfrecord.errors import UsageError
from beam_tfrecord.images.decode import rgb_pixels
from beam_tfrecord.images.formats import MAX_PIXELS
from beam_tfrecord.loading.image_options import IMAGE, image_decoding
from beam_tfrecord.loading.rows import Rows

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclasses.dataclass(frozen=True)
class ImageTensors:
    """A description of how to decode images to tensors."""

    size: tuple[int, int] | None
    transform: Callable[[Image], Any] | None
    dtype: torch.dtype | None
    max_pixels: int

    def decode(self, data: bytes) -> Any:
        """Return the tensor of an image from the bytes of its file."""
        from PIL.Image import Resampling, fromarray

        array = rgb_pixels(data, max_pixels=self.max_pixels)
        if self.size is not None:
            # Pillow smooths an image that it makes smaller (antialiasing).
            array = np.array(fromarray(array).resize(self.size[::-1], Resampling.BILINEAR))
        if self.transform is not None:
            return self.transform(fromarray(array))
        # A batch is a copy of its tensors, so that the order of the axes need not be copied before.
        pixels = torch.from_numpy(array).permute(2, 0, 1)
        return pixels if self.dtype is None else pixels.to(self.dtype) / 255

    def single(self, tensor: Any) -> Any:
        """Return the tensor of one image with its axes in the order of its memory."""
        return tensor.contiguous() if isinstance(tensor, torch.Tensor) else tensor

    def stacked(self, tensors: list[Any]) -> torch.Tensor:
        """Return the tensors of a batch as one."""
        if others := [one for one in tensors if not isinstance(one, torch.Tensor)]:
            raise UsageError(
                f"transform returned {type(others[0]).__name__}, but a batch needs tensors: return "
                "a torch.Tensor"
            )
        try:
            return torch.stack(tensors)
        except RuntimeError as error:
            kinds = sorted({str(list(one.shape)) for one in tensors})
            raise UsageError(
                "a batch needs tensors of one shape, but its images became "
                f"{', '.join(kinds[:3])}: pass image_size=(height, width)"
            ) from error


def image_tensors(
    dataset: Rows,
    columns: Sequence[str] | None,
    image_size: tuple[int, int] | None,
    transform: Callable[[Image], Any] | None,
    dtype: torch.dtype | None,
    *,
    decode: bool,
) -> ImageTensors | None:
    """Return the decoding of a dataset's images; None if there are no images to decode.

    See `beam_tfrecord.dataset.load.Dataset.torch` for the options and their errors.
    """
    names = dataset.schema.names if columns is None else columns
    if transform is not None and (not decode or IMAGE not in names):
        raise UsageError(
            f"transform has no effect without the decoded column {IMAGE!r}: leave transform out"
        )
    size = None
    # A function may return tensors of one size for images of several.
    if transform is None or image_size is not None:
        decoding = image_decoding(dataset, columns, image_size, decode=decode)
        if decoding is None:
            return None
        size = decoding.size if decoding.resize else None
    require("pixels", "load(...).torch() of images")
    sides = [
        feature.observed.max
        for feature in dataset.manifest.schema.features
        if feature.name in ("height", "width") and feature.observed and feature.observed.max
    ]
    return ImageTensors(size, transform, dtype, max(MAX_PIXELS, int(math.prod(sides))))
