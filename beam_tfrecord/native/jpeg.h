/* Headers of the plainest and most frequent images. */
#ifndef BEAM_TFRECORD_JPEG_H
#define BEAM_TFRECORD_JPEG_H

#include <stdbool.h>
#include <stdint.h>

enum { JPEG_NUMBERS = 3 };

/* Tells width, height and channels (3 at most) of a JPEG without EXIF that is all right, ends with
 * its end mark, and is of a kind that TensorFlow decodes.
 *
 * max_pixels: width times height that is let through.
 *
 * False if there is anything else to say about it, for which the reference in Python is there:
 * `beam_tfrecord.images.formats`. Where this is true, that one gives the same numbers. */
bool jpeg_is_plain(const uint8_t *data, int64_t size, int64_t max_pixels, int32_t *numbers);

#endif
