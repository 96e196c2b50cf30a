"""The public transform that reads images with the objects that a COCO file annotates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from beam_tfrecord.batch import DEFAULT_BATCH_ROWS
from beam_tfrecord.selection.select import SelectOptions
from beam_tfrecord.sources.coco.source import Coco
from beam_tfrecord.transforms.read_source import Paths, ReadFromSource


class ReadFromCoco(ReadFromSource):
    """Read images with annotated objects as `Batch`es, one image per row.

    Boxes are fractions of the width and height of the image. Areas and masks are in the pixels of
    the image as it is stored, and segmentations are as in the file.

    Args:
        paths: COCO files of instances, such as ``instances_val2017.json``.
        columns: Names of the columns to read, in order; None means all.
        base: Directory of the images; None means the directory of the file.
        check: Check of each image. ``header``: format, size and end marks. ``decode``: all pixels.
            ``none``: no check.
        resize: New length of the shorter side in pixels, or ``HEIGHTxWIDTH``; None means no
            change.
        format: Format to re-encode all images in: ``jpeg``, ``png`` or ``webp``; None means no
            change.
        quality: Quality of re-encoded JPEG or WebP, from 1 to 100.
        orient: Rotate and mirror the pixels as the EXIF orientation says; annotations are those of
            the upright image then.
        max_pixels: Largest width times height that is accepted.
        max_bytes: Largest size of an image file in bytes that is accepted.
        masks: Masks to draw; None means none. ``objects``: ``image/object/mask``, a PNG for each
            object. ``classes``: ``mask``, a PNG for each image with the numbers of categories.
        batch_rows: Maximum number of rows per batch; does not affect the dataset.
        **select: Which rows to read: `filter`, `sample` and `sample_seed`; see `SelectOptions`.

    Raises:
        UsageError: The arguments do not fit together.
    """

    def __init__(
        self,
        paths: Paths,
        *,
        columns: Sequence[str] | None = None,
        base: str | None = None,
        check: str = "header",
        resize: int | str | tuple[int, int] | None = None,
        format: str | None = None,
        quality: int = 90,
        orient: bool = False,
        max_pixels: int = 2**28,
        max_bytes: int = 2**30,
        masks: Sequence[str] | None = None,
        batch_rows: int = DEFAULT_BATCH_ROWS,
        **select: Unpack[SelectOptions],
    ) -> None:
        source = Coco(
            paths,
            columns=columns,
            base=base,
            check=check,
            resize=resize,
            format=format,
            quality=quality,
            orient=orient,
            max_pixels=max_pixels,
            max_bytes=max_bytes,
            masks=masks,
        )
        super().__init__(source, batch_rows=batch_rows, **select)
