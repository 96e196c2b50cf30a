# The headers of plain JPEGs.
cdef extern from "jpeg.h" nogil:
    enum:
        JPEG_NUMBERS
    bint jpeg_is_plain(const uint8_t *data, int64_t size, int64_t max_pixels, int32_t *numbers)


def describe_jpegs(const uint8_t[::1] data, const int64_t[::1] starts, const int64_t[::1] sizes,
                   int64_t max_pixels):
    """Describe those JPEGs among some files of which nothing further is to be said.

    Args:
        data: Where files lie.
        starts: Of each; int64, shape `[n]`.
        sizes: Bytes of each, likewise.
        max_pixels: Width times height that is let through.

    Returns:
        Width, height and channels of each; int32, shape `[n, 3]`. Zeros where it is no such JPEG:
        then `beam_tfrecord.images.formats.describe` tells what it is.

    Raises:
        ValueError: A range lies outside of the data, or the counts differ.
    """
    cdef int64_t count = check_ranges(data, starts, sizes), i
    numbers = np.zeros((count, JPEG_NUMBERS), np.int32)
    if not count or not data.shape[0]:
        return numbers
    cdef int32_t[:, ::1] told = numbers
    with nogil:
        for i in range(count):
            if not jpeg_is_plain(&data[0] + starts[i], sizes[i], max_pixels, &told[i, 0]):
                told[i, 0] = told[i, 1] = told[i, 2] = 0
    return numbers
