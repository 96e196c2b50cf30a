/* O_CLOEXEC and the rest of POSIX are hidden by -std=c11. */
#define _POSIX_C_SOURCE 200809L

#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

/* A pipe in place of a file must not be waited for. */
#define HOW (O_RDONLY | O_CLOEXEC | O_NONBLOCK)

/* What takes this long to read, and a nanosecond a byte, does not come from the page cache. To open
 * it does not count: on a network that takes long each time, however often one asks before. */
enum { SLOW_NANOSECONDS = 100000 };

static int64_t nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int opened(const char *path) {
    int file;
    do file = open(path, HOW);
    while (file < 0 && errno == EINTR);
    return file;
}

void files_want(const char *path) {
#ifdef POSIX_FADV_WILLNEED
    /* Closed at once: many threads do this, and files that may be open are few. */
    int file = opened(path);
    if (file < 0) return;
    posix_fadvise(file, 0, 0, POSIX_FADV_WILLNEED);
    close(file);
#else
    (void)path;
#endif
}

/* One byte more than expected is asked for, which shows that a file has grown. Fewer bytes may be
 * its end, or all that comes before a fault: what is there of a file in front of a bad sector is
 * given first, and the fault when asked again. */
int32_t files_read_one(const char *path, int64_t size, uint8_t *out, bool *was_slow) {
    int file = opened(path);
    if (file < 0) return errno;
    int64_t have = 0, begun = nanoseconds();
    ssize_t got;
    do {
        got = read(file, out + have, (size_t)(size + 1 - have));
        if (got > 0) have += got;
    } while ((got > 0 && have < size) || (got < 0 && errno == EINTR));
    int32_t status = got < 0 ? errno : have == size ? FILES_READ : FILES_OTHER_SIZE;
    *was_slow = nanoseconds() - begun > SLOW_NANOSECONDS + size;
    close(file);
    return status;
}

void files_read(const char *const *paths, const int64_t *sizes, int64_t count, uint8_t *out,
                int32_t *status) {
    bool was_slow = false;
    int64_t wanted = 0;
    for (int64_t i = 0; i < count; i++) {
        if (wanted <= i) wanted = i + 1;
        while (was_slow && wanted < count && wanted <= i + FILES_AHEAD) files_want(paths[wanted++]);
        status[i] = files_read_one(paths[i], sizes[i], out, &was_slow);
        if (status[i] == FILES_READ) out += sizes[i];
    }
}

bool files_hash(FilesHash hash, const uint8_t *data, const int64_t *starts, const int64_t *sizes,
                int64_t count, uint8_t *digests) {
    for (int64_t i = 0; i < count; i++)
        if (!hash(data + starts[i], (size_t)sizes[i], digests + i * FILES_DIGEST_BYTES))
            return false;
    return true;
}
