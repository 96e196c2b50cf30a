/* Many small files: read into one buffer, and hashed there. */
#ifndef BEAM_TFRECORD_FILES_H
#define BEAM_TFRECORD_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FILES_READ = 0, FILES_OTHER_SIZE = -1 };

/* While files come from a disk, so many after the one that is read are asked for. */
enum { FILES_AHEAD = 32 };

/* Has the system begin to read a file into the page cache, if it is there; does not wait for it. */
void files_want(const char *path);

/* Reads a whole file of a known size; `was_slow` tells if it came from a disk. Returns FILES_READ;
 * FILES_OTHER_SIZE if it has more or fewer bytes; else the errno. `out` has room for one byte
 * more, which may be written to. */
int32_t files_read_one(const char *path, int64_t size, uint8_t *out, bool *was_slow);

/* Reads files of known sizes side by side.
 *
 * paths: names to open, each ended by NUL.
 * sizes: bytes expected of each.
 * out: room for all of them and one byte.
 * status: of each, as `files_read_one` returns it.
 *
 * A file that is not read leaves no gap: the next one takes its place.
 */
void files_read(const char *const *paths, const int64_t *sizes, int64_t count, uint8_t *out,
                int32_t *status);

/* A hash function as OpenSSL's SHA256: of so many bytes, to 32 bytes. NULL: it could not. */
typedef unsigned char *(*FilesHash)(const unsigned char *data, size_t bytes, unsigned char *digest);

enum { FILES_DIGEST_BYTES = 32 };

/* Hashes ranges of some data; digests: 32 bytes for each. False: one could not be hashed. */
bool files_hash(FilesHash hash, const uint8_t *data, const int64_t *starts, const int64_t *sizes,
                int64_t count, uint8_t *digests);

#endif
