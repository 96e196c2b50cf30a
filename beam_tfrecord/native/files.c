/* O_CLOEXEC and the rest of POSIX are hidden by -std=c11. */
#define _POSIX_C_SOURCE 200809L

#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* A pipe in place of a file must not be waited for. */
#define HOW (O_RDONLY | O_CLOEXEC | O_NONBLOCK)

/* One byte more than expected is asked for: less than that is the end of a regular file. */
static int32_t read_one(const char *path, int64_t size, uint8_t *out) {
    int file = open(path, HOW);
    if (file < 0) return errno;
    ssize_t got;
    do got = read(file, out, (size_t)size + 1);
    while (got < 0 && errno == EINTR);
    int32_t status = got == size ? FILES_READ : got < 0 ? errno : FILES_OTHER_SIZE;
    close(file);
    return status;
}

void files_read(const char *const *paths, const int64_t *sizes, int64_t count, uint8_t *out,
                int32_t *status) {
    for (int64_t i = 0; i < count; i++) {
        status[i] = read_one(paths[i], sizes[i], out);
        if (status[i] == FILES_READ) out += sizes[i];
    }
}
