/* Many small files read into one buffer. */
#ifndef BEAM_TFRECORD_FILES_H
#define BEAM_TFRECORD_FILES_H

#include <stdint.h>

enum { FILES_READ = 0, FILES_OTHER_SIZE = -1 };

/* Reads files of known sizes side by side.
 *
 * paths: names to open, each ended by NUL.
 * sizes: bytes expected of each.
 * out: room for all of them and one byte.
 * status: of each: FILES_READ; FILES_OTHER_SIZE where it has more or fewer bytes; else the errno.
 *
 * A file that is not read leaves no gap: the next one takes its place.
 */
void files_read(const char *const *paths, const int64_t *sizes, int64_t count, uint8_t *out,
                int32_t *status);

#endif
