"""Converts Arrow rows and images to PyTorch tensors; importing this module imports PyTorch."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch
from torch.multiprocessing.reductions import reduce_tensor

from beam_tfrecord.base.extras import require
from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.feature import Feature
from beam_tfrecord.features.tensors import TensorType, is_small_float
from beam_tfrecord.images.decode import rgb_pixels
from beam_tfrecord.images.headers import MAX_PIXELS
from beam_tfrecord.loading.batches import IMAGE, NUMBERS, TIMES, Array, BatchColumns, image_decoding
from beam_tfrecord.loading.epochs import Range
from beam_tfrecord.loading.rows import Rows
from beam_tfrecord.loading.values import MissingError, array_of_column, default_scalar, is_number

if TYPE_CHECKING:
    from PIL.Image import Image

# A tensor of up to this size costs less in the pipe from a worker than in shared memory.
_PIPE_BYTES = 2**17
# Single rows are views of tensors of so many rows.
_ROWS_AT_ONCE = 1024
# Values are converted to these while they are copied, without a second copy.
_NUMPY_FLOATS = {torch.float16: np.float16, torch.float32: np.float32, torch.float64: np.float64}


class Tensors:
    """Converts rows to tensors and lists; the schema decides which, so all batches are alike."""

    def __init__(
        self, columns: BatchColumns, dtype: torch.dtype | None, class_ids: str | None
    ) -> None:
        columns.mask_missing()
        self._columns, self._dtype = columns, dtype
        self._lists: list[Feature] = []
        # Columns of one dtype and shape are rows of one tensor: it is cut once for all of them.
        self._blocks: dict[tuple[np.dtype[Any], tuple[int, ...]], list[Feature]] = {}
        for feature in columns.schema.features:
            empty = _plain(columns.empty[feature.name])
            own = empty.dtype
            if own.kind not in NUMBERS:
                self._lists.append(feature)
                continue
            if own.kind in "iu" and feature.name == class_ids:
                own = np.dtype(np.int64)
            if own.kind == "f" and dtype in _NUMPY_FLOATS:
                own = np.dtype(_NUMPY_FLOATS[dtype])
            self._blocks.setdefault((own, empty.shape[1:]), []).append(feature)

    def batches(self, rows: pa.RecordBatch, bounds: Iterable[Range]) -> Iterator[dict[str, Any]]:
        """Yield the rows from a first to a last one as tensors and lists by column."""
        rows = self._columns.encoded(rows)
        blocks = self._tensors(rows)
        names = [*self._columns.schema.names, *self._columns.masks(rows.slice(0, 0))]
        for first, last in bounds:
            found: dict[str, Any] = {}
            for of_block, block in blocks:
                part = block[:, first:last]
                # A batch in memory of its own does not keep the others in memory.
                own = part if last - first == rows.num_rows else part.clone()
                found.update(zip(of_block, own.unbind(), strict=True))
            for feature in self._lists:
                column = rows.column(feature.name).slice(first, last - first)
                found[feature.name] = self._list(column, feature)
            yield {name: found[name] for name in names}

    def rows(self, rows: pa.RecordBatch, bounds: Iterable[Range]) -> Iterator[dict[str, Any]]:
        """Yield single rows as tensors without axes and Python values by column."""
        for start in range(0, rows.num_rows, _ROWS_AT_ONCE):
            some = rows.slice(start, _ROWS_AT_ONCE)
            for columns in self.batches(some, [(0, some.num_rows)]):
                split = [
                    value.unbind() if isinstance(value, torch.Tensor) else value
                    for value in columns.values()
                ]
                for row in zip(*split, strict=True):
                    yield dict(zip(columns, row, strict=True))

    def _tensors(self, rows: pa.RecordBatch) -> list[tuple[list[str], torch.Tensor]]:
        """Return names and values of all columns of one dtype and shape, ``[columns, rows, …]``."""
        found = []
        for (dtype, shape), features in self._blocks.items():
            block = np.empty((len(features), rows.num_rows, *shape), dtype)
            for feature, out in zip(features, block, strict=True):
                out[...] = _plain(_array(rows.column(feature.name), feature))
            names = [feature.name for feature in features]
            found.append((names, self._float(torch.from_numpy(block))))
        if masks := self._columns.masks(rows):
            found.append((list(masks), torch.from_numpy(np.stack(list(masks.values())))))
        return found

    def _list(self, column: pa.Array, feature: Feature) -> list[Any]:
        if isinstance(column.type, TensorType):
            return [self._tensor(value) for value in _array(column, feature)]
        is_list = pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
        if is_list and is_number(column.type.value_type) and feature.dtype is None:
            return self._tensors_of_lists(column, feature)
        return list(_array(column, feature).tolist())

    def _tensors_of_lists(self, column: pa.Array, feature: Feature) -> list[Any]:
        """Return a tensor for each list; None for one that is missing."""
        if column.null_count and feature.default is not None:
            column = column.fill_null(default_scalar(feature, column.type))
        lengths = column.value_lengths().fill_null(0).to_pylist()
        values = self._tensor(_array(column.flatten(), Feature(feature.name)))
        tensors = values.split(lengths)
        if not column.null_count:
            return list(tensors)
        present = column.is_valid().to_pylist()
        return [one if valid else None for one, valid in zip(tensors, present, strict=True)]

    def _tensor(self, value: Array | None) -> Any:
        """Return an array as a tensor if it has numbers, and otherwise a copy; None stays None."""
        if value is None:
            return None
        plain = _plain(value).copy()
        return self._float(torch.from_numpy(plain)) if plain.dtype.kind in NUMBERS else plain

    def _float(self, tensor: torch.Tensor) -> torch.Tensor:
        is_other = self._dtype is not None and tensor.is_floating_point()
        return tensor.to(self._dtype) if is_other else tensor


def _array(column: pa.Array, feature: Feature) -> Array:
    try:
        return array_of_column(column, feature)
    except MissingError:
        raise UsageError(
            f"a list of column {feature.name!r} has missing values, which no tensor holds: choose "
            "other columns, or write the dataset with a fill"
        ) from None


def _plain(values: Array) -> Array:
    """Return times as int64, and floats that NumPy itself does not have as float32."""
    if values.dtype.kind in TIMES:
        return values.view(np.int64)
    return values.astype(np.float32) if is_small_float(values.dtype) else values


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


def use_pipe_for_small_tensors() -> None:
    """Send small tensors of this worker process by value: see `_PIPE_BYTES`."""
    ForkingPickler.register(torch.Tensor, _reduce_tensor)


def _reduce_tensor(tensor: torch.Tensor) -> Any:
    is_plain = tensor.device.type == "cpu" and not tensor.requires_grad
    if tensor.nbytes > _PIPE_BYTES or not is_plain or tensor.dtype == torch.bfloat16:
        return reduce_tensor(tensor)
    return torch.from_numpy, (tensor.numpy(),)


def float_type(dtype: Any) -> torch.dtype | None:
    """Return the floating-point type of a name; None stays None."""
    found = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if found is None and dtype is None:
        return None
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise UsageError(
            f"dtype {dtype!r} is no floating-point type: pass one such as 'float32', or None to "
            "keep that of each column"
        )
    return found
