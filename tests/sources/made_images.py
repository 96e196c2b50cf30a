"""Pictures for the tests, made by Pillow: every format and mode that one meets."""

import io

import numpy as np
from PIL import Image

WIDTH, HEIGHT = 23, 17


def pixels(channels, *, width=WIDTH, height=HEIGHT, seed=0):
    """Return smooth but not uniform pixels, uint8 `[height, width, channels]`."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (3, 3, channels), np.uint8)
    layers = [
        Image.fromarray(coarse[..., i]).resize((width, height), Image.Resampling.BILINEAR)
        for i in range(channels)
    ]
    return np.stack([np.asarray(layer) for layer in layers], axis=-1)


def picture(mode="RGB", *, width=WIDTH, height=HEIGHT, seed=0):
    """Return a Pillow image of a mode."""
    size = {"width": width, "height": height, "seed": seed}
    if mode == "I;16":
        return Image.fromarray(pixels(1, **size)[..., 0].astype(np.uint16) * 257)
    if mode in ("RGBA", "LA"):
        return Image.fromarray(pixels(4, **size), "RGBA").convert(mode)
    return Image.fromarray(pixels(3, **size)).convert(mode)


def encoded(image, format, **options):
    """Return the file of an image."""
    out = io.BytesIO()
    image.save(out, format, **options)
    return out.getvalue()


def exif(orientation):
    """Return an EXIF block that asks for a rotation."""
    block = Image.Exif()
    block[274] = orientation
    return block.tobytes()


def frames(mode):
    """Return two more frames for a picture of `mode`."""
    return [picture(mode, seed=1), picture(mode, seed=2)]


def multi_page_tiff():
    """Return a TIFF whose second page is of another size."""
    pages = [picture("L", width=5, height=4)]
    return encoded(picture(), "TIFF", save_all=True, append_images=pages)


SAMPLES = {
    "jpeg": encoded(picture(), "JPEG"),
    "jpeg-grey": encoded(picture("L"), "JPEG"),
    "jpeg-cmyk": encoded(picture("CMYK"), "JPEG"),
    "jpeg-progressive": encoded(picture(), "JPEG", progressive=True),
    "jpeg-thumbnail": encoded(picture(), "JPEG", exif=exif(6), comment=b"\xff\xd9 no end"),
    "jpeg-trailer": encoded(picture(), "JPEG") + b"\0" * 40 + b"SEFT",
    "png": encoded(picture(), "PNG"),
    "png-1": encoded(picture("1"), "PNG"),
    "png-grey": encoded(picture("L"), "PNG"),
    "png-grey-16": encoded(picture("I;16"), "PNG"),
    "png-grey-alpha": encoded(picture("LA"), "PNG"),
    "png-grey-transparent": encoded(picture("L"), "PNG", transparency=3),
    "png-palette": encoded(picture("P"), "PNG"),
    "png-palette-transparent": encoded(picture("P"), "PNG", transparency=3),
    "png-transparent": encoded(picture(), "PNG", transparency=(1, 2, 3)),
    "png-alpha": encoded(picture("RGBA"), "PNG"),
    "png-animated": encoded(picture(), "PNG", save_all=True, append_images=frames("RGB")),
    "png-oriented": encoded(picture(), "PNG", exif=exif(8)),
    "gif": encoded(picture("P"), "GIF"),
    "gif-grey": encoded(picture("L"), "GIF"),
    "gif-animated": encoded(picture("P"), "GIF", save_all=True, append_images=frames("P")),
    "webp": encoded(picture(), "WEBP"),
    "webp-alpha": encoded(picture("RGBA"), "WEBP"),
    "webp-lossless": encoded(picture(), "WEBP", lossless=True),
    "webp-lossless-alpha": encoded(picture("RGBA"), "WEBP", lossless=True),
    "webp-animated": encoded(picture(), "WEBP", save_all=True, append_images=frames("RGB")),
    "webp-oriented": encoded(picture(), "WEBP", exif=exif(3)),
    "bmp": encoded(picture(), "BMP"),
    "bmp-1": encoded(picture("1"), "BMP"),
    "bmp-grey": encoded(picture("L"), "BMP"),
    "bmp-palette": encoded(picture("P"), "BMP"),
    "bmp-alpha": encoded(picture("RGBA"), "BMP"),
    "tiff": encoded(picture(), "TIFF"),
    "tiff-grey": encoded(picture("L"), "TIFF"),
    "tiff-16": encoded(picture("I;16"), "TIFF"),
    "tiff-alpha": encoded(picture("RGBA"), "TIFF"),
    "tiff-cmyk": encoded(picture("CMYK"), "TIFF"),
    "tiff-palette": encoded(picture("P"), "TIFF"),
    "tiff-lzw": encoded(picture(), "TIFF", compression="tiff_lzw"),
    "tiff-big": encoded(picture(), "TIFF", big_tiff=True),
    "tiff-pages": multi_page_tiff(),
    "tiff-oriented": encoded(picture(), "TIFF", tiffinfo={274: 5}),
}
"""A file of every kind, `WIDTH` x `HEIGHT` pixels each."""


def write_tree(root, **files):
    """Write files by their paths, ``a__b`` for ``a/b``, as JPEG where they have no suffix."""
    for name, data in files.items():
        path = root / (name.replace("__", "/") + ".jpg")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def jpeg(seed=0, *, width=WIDTH, height=HEIGHT):
    """Return a JPEG unlike that of any other seed."""
    return encoded(picture(seed=seed, width=width, height=height), "JPEG")
