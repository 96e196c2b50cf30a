"""Pictures of every kind that a format allows, and of some that it does not, built byte by byte.

`zoo` gives the same pictures every time; `variations` cuts, lengthens and alters any of them.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import numpy as np

from tests.sources.made_images import SAMPLES, encoded, exif, picture

WIDTH, HEIGHT = 11, 7
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
# Color types of PNG, their samples a pixel, and the depths that each may have.
PNG_TYPES = {0: (1, (1, 2, 4, 8, 16)), 2: (3, (8, 16)), 3: (1, (1, 2, 4, 8))}
PNG_TYPES |= {4: (2, (8, 16)), 6: (4, (8, 16))}
# First row, first column, and steps of the passes of Adam7.
_ADAM7 = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2))
_ADAM7 += ((1, 0, 2, 1),)


def samples(most, channels=1, *, width=WIDTH, height=HEIGHT):
    """Return samples from 0 to `most`, shape `[height, width, channels]`."""
    rng = np.random.default_rng(most + channels)
    return rng.integers(0, most + 1, (height, width, channels))


def packed(rows, depth, *, row_multiple=1):
    """Return rows of samples as bytes, the first sample in the highest bits."""
    out = []
    for row in rows.reshape(len(rows), -1):
        if depth == 16:
            data = row.astype(">u2").tobytes()
        else:
            bits = (row[:, None] >> np.arange(depth - 1, -1, -1) & 1).astype(np.uint8)
            data = np.packbits(bits.ravel()).tobytes()
        out.append(data + b"\0" * (-len(data) % row_multiple))
    return out


def chunk(kind, data=b"", *, crc=0):
    """Return a chunk of a PNG; a `crc` spoils its checksum."""
    check = zlib.crc32(kind + data) ^ crc
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)


def ihdr(depth=8, color=2, interlace=0, *, width=WIDTH, height=HEIGHT):
    """Return the content of the first chunk of a PNG."""
    return struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, interlace)


def scanlines(depth=8, color=2, interlace=0):
    """Return the pixels of a PNG before they are compressed, without filters."""
    channels = PNG_TYPES[color][0]
    most = 1 if color == 3 else 2**depth - 1
    pixels = samples(most, channels)
    passes = _ADAM7 if interlace else ((0, 0, 1, 1),)
    parts = [pixels[row::down, column::right] for row, column, down, right in passes]
    lines = (packed(part, depth) for part in parts if part.size)
    return b"".join(b"\0" + line for part in lines for line in part)


def png(*chunks):
    """Return a PNG of these chunks and an end mark."""
    return PNG_SIGNATURE + b"".join(chunks) + chunk(b"IEND")


def pngs() -> Iterator[tuple[str, bytes]]:
    """Yield PNGs of every type and depth, and with chunks that they should not have."""
    palette = chunk(b"PLTE", bytes(range(6)))
    for color, (_, depths) in PNG_TYPES.items():
        for depth in depths:
            for interlace in (0, 1):
                name = f"{color}-{depth}{'-interlaced' * interlace}"
                pixels = chunk(b"IDAT", zlib.compress(scanlines(depth, color, interlace)))
                head = chunk(b"IHDR", ihdr(depth, color, interlace))
                head += palette if color == 3 else b""
                yield name, png(head, pixels)
                transparency = {0: b"\0\1", 2: b"\0\1\0\1\0\1", 3: b"\x80"}.get(color)
                if transparency is not None and not interlace:
                    yield f"{name}-transparent", png(head, chunk(b"tRNS", transparency), pixels)
    head, raw = chunk(b"IHDR", ihdr()), scanlines()
    squeezed = zlib.compress(raw)
    pixels = chunk(b"IDAT", squeezed)
    half = len(squeezed) // 2
    text = chunk(b"tEXt", b"Comment\0words")
    control = chunk(b"acTL", struct.pack(">II", 2, 0))
    first_frame = struct.pack(">IIIIIHHBB", 0, WIDTH, HEIGHT, 0, 0, 1, 10, 0, 0)
    next_frame = struct.pack(">IIIIIHHBB", 1, WIDTH, HEIGHT, 0, 0, 1, 10, 0, 0)
    data_frame = chunk(b"fdAT", struct.pack(">I", 2) + squeezed)
    indexed = chunk(b"IHDR", ihdr(8, 3))
    indexes = chunk(b"IDAT", zlib.compress(scanlines(8, 3)))
    yield from {
        "text": png(head, text, pixels, text),
        "profile-broken": png(head, chunk(b"iCCP", b"p\0\0" + zlib.compress(b"none")), pixels),
        "exif": png(head, chunk(b"eXIf", exif(6)[6:]), pixels),
        "animated": png(
            head,
            control,
            chunk(b"fcTL", first_frame),
            pixels,
            chunk(b"fcTL", next_frame),
            data_frame,
        ),
        "palette-missing": png(indexed, indexes),
        "palette-short": png(indexed, chunk(b"PLTE", bytes(3)), indexes),
        "palette-twice": png(indexed, palette, palette, indexes),
        "pixels-parted": png(
            head, chunk(b"IDAT", squeezed[:half]), text, chunk(b"IDAT", squeezed[half:])
        ),
        "pixels-in-pieces": png(head, *(chunk(b"IDAT", bytes([byte])) for byte in squeezed)),
        "pixels-empty-first": png(head, chunk(b"IDAT"), pixels),
        "pixels-empty-last": png(head, pixels, chunk(b"IDAT")),
        "pixels-twice": png(head, pixels, pixels),
        "pixels-none": png(head),
        "pixels-empty": png(head, chunk(b"IDAT")),
        "pixels-too-many": png(head, chunk(b"IDAT", zlib.compress(raw + raw))),
        "pixels-too-few": png(head, chunk(b"IDAT", zlib.compress(raw[:-9]))),
        "pixels-with-more": png(head, chunk(b"IDAT", squeezed + b"more")),
        "pixels-without-sum": png(head, chunk(b"IDAT", squeezed[:-4])),
        "pixels-with-wrong-sum": png(head, chunk(b"IDAT", squeezed[:-1] + b"\0")),
        "pixels-of-odd-filter": png(head, chunk(b"IDAT", zlib.compress(b"\x09" + raw[1:]))),
        "crc-header": png(chunk(b"IHDR", ihdr(), crc=1), pixels),
        "crc-pixels": png(head, chunk(b"IDAT", squeezed, crc=1)),
        "crc-end": png(head, pixels)[:-1] + b"\0",
        "trailing": png(head, pixels) + b"trailing bytes",
        "twice": png(head, pixels) * 2,
        "widest": png(
            chunk(b"IHDR", ihdr(1, 0, width=1_000_000, height=1)),
            chunk(b"IDAT", zlib.compress(bytes(1 + 1_000_000 // 8))),
        ),
    }.items()


def bmp(
    bits=24,
    head=40,
    *,
    compression=0,
    masks=(),
    palette=None,
    pixels=None,
    width=WIDTH,
    height=HEIGHT,
    gap=0,
):
    """Return a BMP with a header of `head` bytes.

    Args:
        bits: Of a pixel.
        head: Bytes of the second header: 12 and 16 are OS/2's, 40 and more are of Windows.
        compression: As the format numbers it.
        masks: Bits of red, green, blue and alpha.
        palette: Colors, 3 or 4 bytes each; None: as many shades of grey as there may be.
        pixels: Rows from the bottom; None: some.
        width: In pixels.
        height: In pixels; negative where rows begin at the top.
        gap: Bytes between headers and pixels.
    """
    if palette is None:
        count = 2**bits if bits <= 8 else 0
        shades = (round(255 * number / max(1, count - 1)) for number in range(count))
        padding = b"" if head == 12 else b"\0"
        palette = b"".join(bytes([shade] * 3) + padding for shade in shades)
    if pixels is None:
        channels = max(1, bits // 8)
        values = samples(min(2**bits, 256) - 1, channels, width=width, height=abs(height))
        pixels = b"".join(packed(values, min(bits, 8), row_multiple=4))
    if head == 12:
        info = struct.pack("<IHHHH", head, width, height, 1, bits)
    else:
        size = struct.pack("<IiiHH", head, width, height, 1, bits)
        info = (size + struct.pack("<IIiiII", compression, len(pixels), 2835, 2835, 0, 0))[:head]
    mask_bytes = b"".join(struct.pack("<I", mask) for mask in masks)
    # From 52 bytes on the masks are part of the header.
    info += (mask_bytes + bytes(head))[: head - len(info)] if head > 40 else mask_bytes
    start = 14 + len(info) + len(palette) + gap
    size = start + len(pixels)
    return struct.pack("<2sIHHI", b"BM", size, 0, 0, start) + info + palette + bytes(gap) + pixels


def bmps() -> Iterator[tuple[str, bytes]]:
    """Yield BMPs of every depth, header and compression."""
    for bits in (1, 2, 4, 8, 16, 24, 32):
        for head in (12, 40, 52, 56, 64, 108, 124):
            yield f"{bits}-{head}", bmp(bits, head)
        yield f"{bits}-top-down", bmp(bits, height=-HEIGHT)
        yield f"{bits}-trailing", bmp(bits) + b"\0\0"
        yield f"{bits}-gap", bmp(bits, gap=6)
        # Rows of which no byte is padding.
        yield f"{bits}-even", bmp(bits, width=32)
    colored = bytes(range(256)) * 4
    rows = range(HEIGHT)
    long_runs = b"".join(bytes([WIDTH, row, 0, 0]) for row in rows) + b"\0\1"
    literal = b"".join(bytes([0, 4, *b"abcd", WIDTH - 4, row, 0, 0]) for row in rows) + b"\0\1"
    yield from {
        "8-colored": bmp(8, palette=colored),
        "8-run-length": bmp(8, compression=1, pixels=long_runs),
        "8-run-length-literal": bmp(8, compression=1, pixels=literal),
        "4-run-length": bmp(4, compression=2, pixels=long_runs),
        "16-565": bmp(16, compression=3, masks=(0xF800, 0x7E0, 0x1F)),
        "16-565-56": bmp(16, 56, compression=3, masks=(0xF800, 0x7E0, 0x1F, 0)),
        "16-4444": bmp(16, 56, compression=3, masks=(0xF00, 0xF0, 0xF, 0xF000)),
        "32-bgrx": bmp(32, compression=3, masks=(0xFF0000, 0xFF00, 0xFF)),
        "32-bgra": bmp(32, 56, compression=3, masks=(0xFF0000, 0xFF00, 0xFF, 0xFF000000)),
        "32-rgba": bmp(32, 56, compression=3, masks=(0xFF, 0xFF00, 0xFF0000, 0xFF000000)),
        "32-xbgr": bmp(32, 56, compression=3, masks=(0xFF000000, 0xFF0000, 0xFF00, 0)),
        "32-alpha-masked": bmp(32, compression=6, masks=(0xFF0000, 0xFF00, 0xFF, 0xFF000000)),
        "jpeg-inside": bmp(0, compression=4, pixels=SAMPLES["jpeg"]),
        "png-inside": bmp(0, compression=5, pixels=SAMPLES["png"]),
        "one-pixel": bmp(24, width=1, height=1),
        "24-16": bmp(24, 16),
        "24-cut": bmp(24)[:-1],
        "24-wrong-size": bmp(24)[:2] + bytes(4) + bmp(24)[6:],
        "24-no-start": bmp(24)[:10] + bytes(4) + bmp(24)[14:],
    }.items()


def gif(*blocks, width=WIDTH, height=HEIGHT, version=b"89a", end=b";"):
    """Return a GIF of these blocks, with 256 colors that are far from each other."""
    colors = bytes(67 * number % 256 for number in range(3 * 256))
    head = b"GIF" + version + struct.pack("<HHBBB", width, height, 0xF7, 0, 0)
    return head + colors + b"".join(blocks) + end


def gif_frame(left=0, top=0, width=WIDTH, height=HEIGHT, *, interlaced=False, pixels=None):
    """Return an image block of a GIF, whose codes are all nine bits long."""
    count = width * height if pixels is None else pixels
    values = samples(255, width=count, height=1).ravel().tolist()
    codes = []
    for number, value in enumerate(values):
        codes += [256, value] if number % 200 == 0 else [value]
    bits = sum(code << 9 * number for number, code in enumerate([*codes, 257]))
    data = bits.to_bytes((9 * (len(codes) + 1) + 7) // 8, "little")
    blocks = [data[start : start + 255] for start in range(0, len(data), 255)]
    body = b"".join(bytes([len(block)]) + block for block in blocks)
    place = struct.pack("<HHHHB", left, top, width, height, 0x40 * interlaced)
    return b"," + place + b"\x08" + body + b"\0"


def gif_control(disposal=0, transparent=None):
    """Return the extension that stands before an animated or transparent frame."""
    flags = disposal << 2 | (transparent is not None)
    return b"!\xf9\x04" + struct.pack("<BHB", flags, 5, transparent or 0) + b"\0"


def gifs() -> Iterator[tuple[str, bytes]]:
    """Yield GIFs with frames in every place, and with blocks that they should not have."""
    plain = gif_frame()
    small = gif_frame(2, 1, 4, 3)
    loop = b"!\xff\x0bNETSCAPE2.0\x03\x01\0\0\0"
    yield from {
        "87a": gif(plain, version=b"87a"),
        "89a": gif(plain),
        "interlaced": gif(gif_frame(interlaced=True)),
        "transparent": gif(gif_control(transparent=3), plain),
        "smaller-frame": gif(small),
        "smaller-frame-at-origin": gif(gif_frame(0, 0, 4, 3)),
        "larger-frame": gif(gif_frame(0, 0, 15, 9)),
        "frame-outside": gif(gif_frame(5, 4)),
        "frame-far-outside": gif(gif_frame(40, 30)),
        "screen-of-nothing": gif(plain, width=0, height=0),
        "animated": gif(loop, gif_control(), plain, gif_control(2), plain),
        "animated-small-first": gif(loop, gif_control(), small, gif_control(1), plain),
        "animated-larger-second": gif(plain, gif_frame(0, 0, 15, 9)),
        "no-frame": gif(),
        "too-few-pixels": gif(gif_frame(pixels=20)),
        "too-many-pixels": gif(gif_frame(pixels=200)),
        "frame-of-nothing": gif(gif_frame(0, 0, 0, 0)),
        "trailing": gif(plain) + b"trailing bytes",
        "no-end": gif(plain, end=b""),
        "second-cut": gif(plain, plain)[:-40],
    }.items()


def riff(*chunks, more=0):
    """Return a WebP of these chunks; `more` is added to the size that it tells."""
    body = b"".join(
        kind + struct.pack("<I", len(data)) + data + b"\0" * (len(data) & 1)
        for kind, data in chunks
    )
    return b"RIFF" + struct.pack("<I", len(body) + 4 + more) + b"WEBP" + body


def riff_chunks(data):
    """Return the chunks of a WebP."""
    at, found = 12, []
    while at + 8 <= len(data):
        kind, length = struct.unpack_from("<4sI", data, at)
        found.append((kind, data[at + 8 : at + 8 + length]))
        at += 8 + length + (length & 1)
    return found


def canvas(flags, *, width=WIDTH, height=HEIGHT):
    """Return the chunk that begins a WebP with further chunks."""
    size = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return b"VP8X", bytes([flags, 0, 0, 0]) + size


def webps() -> Iterator[tuple[str, bytes]]:
    """Yield WebPs, simple and extended, with every flag right and wrong."""
    size = {"width": WIDTH, "height": HEIGHT}
    colors, clear = picture(**size), picture("RGBA", **size)
    lossy, lossless = encoded(colors, "WEBP"), encoded(colors, "WEBP", lossless=True)
    alpha = encoded(clear, "WEBP")
    lossless_alpha = encoded(clear, "WEBP", lossless=True)
    (coded,) = riff_chunks(lossy)
    (coded_clear,) = riff_chunks(lossless_alpha)
    parts = dict(riff_chunks(alpha))
    alpha_part, color_part = (b"ALPH", parts[b"ALPH"]), (b"VP8 ", parts[b"VP8 "])
    two = [picture(seed=1, **size)]
    animated = encoded(colors, "WEBP", save_all=True, append_images=two)
    opaque = encoded(clear, "WEBP", save_all=True, append_images=[clear.transpose(0)])
    one_frame = [part for part in riff_chunks(animated) if part[0] == b"ANMF"][:1]
    yield from {
        "lossy": lossy,
        "lossless": lossless,
        "alpha": alpha,
        "lossless-alpha": lossless_alpha,
        "animated": animated,
        "animated-alpha": opaque,
        "animated-one-frame": riff(canvas(2), (b"ANIM", bytes(6)), *one_frame),
        "animated-flag-only": riff(canvas(2), coded),
        "animated-without-flag": riff(canvas(0), (b"ANIM", bytes(6)), *one_frame),
        "extended": riff(canvas(0), coded),
        "extended-alpha": riff(canvas(0x10), alpha_part, color_part),
        "alpha-flag-without-alpha": riff(canvas(0x10), coded),
        "alpha-without-flag": riff(canvas(0), alpha_part, color_part),
        "lossless-alpha-flag": riff(canvas(0x10), coded_clear),
        "lossless-alpha-without-flag": riff(canvas(0), coded_clear),
        "canvas-too-large": riff(canvas(0, width=99), coded),
        "trailing": lossy + b"trailing",
        "size-too-small": riff(coded, more=-20),
        "size-too-large": riff(coded, more=20),
        "padding-missing": riff((coded[0], coded[1] + b"\0"))[:-1],
    }.items()


def segment(marker, content=b""):
    """Return a segment of a JPEG."""
    return bytes([0xFF, marker]) + struct.pack(">H", len(content) + 2) + content


def jpeg(
    components=3,
    *,
    frame=0xC0,
    precision=8,
    width=WIDTH,
    height=HEIGHT,
    before=b"",
    tables=True,
    huffman=True,
    sampling=(),
    selection=b"\0\x3f\0",
    end=b"\xff\xd9",
):
    """Return a JPEG of one shade, each of whose blocks takes two bits."""
    ids = range(1, components + 1)
    factors = [*sampling, *[0x11] * components]
    described = b"".join(bytes([i, factors[i - 1], 0]) for i in ids)
    size = struct.pack(">BHHB", precision, height, width, components)
    selected = b"".join(bytes([i, 0]) for i in ids)
    one_code = bytes([1] + [0] * 15) + b"\0"
    blocks = -(-width // 8) * -(-height // 8) * components
    return b"".join(
        (
            b"\xff\xd8",
            segment(0xDB, b"\0" + b"\1" * 64) if tables else b"",
            before,
            segment(frame, size + described),
            segment(0xC4, b"\0" + one_code) + segment(0xC4, b"\x10" + one_code) if huffman else b"",
            segment(0xDA, bytes([components]) + selected + selection),
            bytes((2 * blocks + 7) // 8),
            end,
        )
    )


def jpegs() -> Iterator[tuple[str, bytes]]:
    """Yield JPEGs of every process, and with markers in every place."""
    size = {"width": WIDTH, "height": HEIGHT}
    colors = picture(**size)
    plain = encoded(colors, "JPEG")
    for frame in (0xC0, 0xC1, 0xC2, 0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF):
        yield f"frame-{frame:x}", jpeg(frame=frame)
    for components in (1, 2, 3, 4, 5):
        yield f"components-{components}", jpeg(components)
    for marker in (0x01, 0xD0, 0xD7):
        yield f"bare-{marker:x}", jpeg(before=bytes([0xFF, marker]))
    for marker in (0x02, 0xBF, 0xC8, 0xCC, 0xDC, 0xDD, 0xDE, 0xDF, 0xE0, 0xEE, 0xF0, 0xFD, 0xFE):
        content = {0xCC: b"\0\0", 0xDD: b"\0\0"}.get(marker, b"content")
        yield f"segment-{marker:x}", jpeg(before=segment(marker, content))
    scan = plain.index(b"\xff\xda")
    yield from {
        "plain": plain,
        "no-end": plain[:-2],
        "no-end-but-trailing": plain[:-2] + b"trailing",
        "half-end": plain[:-1],
        "no-end-in-whole-blocks": jpeg(end=b""),
        "end-behind-bytes": plain[:-2] + b"\0\0\0\xff\xd9",
        "trailing": plain + b"trailing",
        "trailing-picture": plain + plain,
        "cut-with-picture-behind": plain[:-30] + plain,
        "cut-with-end": plain[:-30] + b"\xff\xd9",
        "no-pixels": plain[: scan + 14] + b"\xff\xd9",
        "precision-12": jpeg(frame=0xC1, precision=12),
        "precision-12-baseline": jpeg(precision=12),
        "no-tables": jpeg(tables=False),
        "no-huffman": jpeg(huffman=False),
        "lossless": jpeg(frame=0xC3, selection=b"\1\0\0"),
        "progressive-arithmetic": jpeg(frame=0xCA, selection=b"\0\0\0"),
        "sampling-44": jpeg(sampling=[0x44]),
        "sampling-22-of-4": jpeg(4, sampling=[0x22, 0x11, 0x11, 0x22]),
        "sampling-00": jpeg(sampling=[0]),
        "sampling-51": jpeg(sampling=[0x51]),
        "height-0": jpeg(height=0),
        "fill": jpeg(before=b"\xff\xff\xff"),
        "frame-twice": jpeg(before=segment(0xC0, struct.pack(">BHHB", 8, 7, 11, 1) + b"\1\x11\0")),
        "start-twice": jpeg(before=b"\xff\xd8"),
        "bytes-between": jpeg(before=b"between"),
        "grey": encoded(picture("L", **size), "JPEG"),
        "inks": encoded(picture("CMYK", **size), "JPEG"),
        "progressive": encoded(colors, "JPEG", progressive=True),
        "restarts": encoded(colors, "JPEG", restart_marker_blocks=1),
        "sampling-420": encoded(colors, "JPEG", subsampling=2),
        "rgb": encoded(colors, "JPEG", keep_rgb=True),
        "exif": encoded(colors, "JPEG", exif=exif(6)),
        "two-pictures": encoded(colors, "MPO", save_all=True, append_images=[colors]),
        "wide": jpeg(1, width=65_500, height=1),
        "widest": jpeg(1, width=65_535, height=1),
    }.items()


def zoo():
    """Return all of these pictures by name; the format stands first."""
    kinds = {"png": pngs, "bmp": bmps, "gif": gifs, "webp": webps, "jpeg": jpegs}
    made = {f"{kind}-{name}": data for kind, make in kinds.items() for name, data in make()}
    return {**{f"sample-{name}": data for name, data in SAMPLES.items()}, **made}


def png_chunks(data):
    """Return types and contents of the chunks of a PNG, as far as they go."""
    at, found = len(PNG_SIGNATURE), []
    while at + 8 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        found.append((kind, data[at + 8 : at + 8 + length]))
        at += 12 + length
    return found


def _shuffled(parts, chance):
    """Drop, double or move a chunk, or give it another type or content."""
    number = chance.randrange(len(parts))
    way = chance.randrange(5)
    kind, content = parts[number]
    if way == 0:
        del parts[number]
    elif way == 1:
        parts.insert(chance.randrange(len(parts) + 1), parts[number])
    elif way == 2:
        parts.insert(chance.randrange(len(parts)), parts.pop(number))
    elif way == 3:
        parts[number] = (chance.choice(parts)[0], content)
    else:
        parts[number] = (kind, _flipped(content, chance))


def _flipped(data, chance):
    changed = bytearray(data)
    for _ in range(chance.randrange(1, 4)):
        if changed:
            # Headers more often than what they describe.
            at = chance.randrange(chance.choice([64, len(changed)])) % len(changed)
            changed[at] = chance.choice([0, 1, 255, chance.randrange(256), changed[at] ^ 1])
    return bytes(changed)


def varied(data, chance):
    """Return a picture cut, lengthened, flipped, or of other chunks with right checksums."""
    way = chance.randrange(6)
    if way == 0:
        return data[: -chance.choice([1, 2, 3, 4, 8, 12, chance.randrange(1, len(data))])]
    if way == 1:
        return data + bytes(chance.randrange(1, 20))
    if way > 2 and data.startswith(PNG_SIGNATURE):
        parts = png_chunks(data)
        _shuffled(parts, chance)
        return PNG_SIGNATURE + b"".join(chunk(*part) for part in parts)
    if way > 2 and data[8:12] == b"WEBP":
        parts = riff_chunks(data)
        _shuffled(parts, chance)
        return riff(*parts, more=chance.choice([0, 0, 0, -2, 2]))
    return _flipped(data, chance)


def ended(data, share, way):
    """Return a picture that ends after a share of its bytes, or of its coded pixels.

    Args:
        data: A picture of one frame.
        share: From 0 to 1.
        way: ``file`` cuts the file. The others keep its structure: ``stream`` cuts the coded
            pixels, ``rows`` the rows of a PNG before they are compressed, and ``lines`` ends lines
            as in DOS.
    """

    def cut(part):
        return part[: int(share * len(part))]

    if way == "lines":
        return data.replace(b"\n", b"\r\n")
    if way != "file" and data.startswith(PNG_SIGNATURE):
        parts = png_chunks(data)
        pixels = b"".join(part for kind, part in parts if kind == b"IDAT")
        try:
            shorter = zlib.compress(cut(zlib.decompress(pixels))) if way == "rows" else cut(pixels)
        except zlib.error:  # some pictures are damaged on purpose
            return data
        first = ([kind for kind, _ in parts] + [b"IDAT"]).index(b"IDAT")
        rest = [part for part in parts[first:] if part[0] != b"IDAT"]
        parts = [*parts[:first], (b"IDAT", shorter), *rest]
        return PNG_SIGNATURE + b"".join(chunk(*part) for part in parts)
    if way != "file" and data[8:12] == b"WEBP":
        return riff(
            *((k, cut(part) if k.startswith(b"VP8") else part) for k, part in riff_chunks(data))
        )
    ending = {"stream": {b"\xff\xd8": b"\xff\xd9", b"GI": b"\0;"}.get(data[:2], b"")}
    return cut(data) + ending.get(way, b"")
