# Files of known sizes, read and hashed.
cdef extern from "files.h" nogil:
    enum:
        FILES_OTHER_SIZE, FILES_DIGEST_BYTES
    ctypedef unsigned char *(*FilesHash)(const unsigned char *, size_t, unsigned char *)
    void files_read(const char **paths, const int64_t *sizes, int64_t count, uint8_t *out,
                    int32_t *status)
    bint files_hash(FilesHash hash, const uint8_t *data, const int64_t *starts,
                    const int64_t *sizes, int64_t count, uint8_t *digests)


OTHER_SIZE = FILES_OTHER_SIZE


def read_files(list paths, const int64_t[::1] sizes, uint8_t[::1] out):
    """Read files of known sizes side by side.

    Args:
        paths: Their names, as bytes.
        sizes: Bytes expected of each; int64, shape `[len(paths)]`.
        out: Room for all of them and one byte.

    Returns:
        The status of each, int32: 0 where it was read, `OTHER_SIZE` where it has more or fewer
        bytes, else the error number. Files that were not read leave no gap.

    Raises:
        ValueError: There is too little room, or the counts differ.
        MemoryError: There is no memory for the names.
    """
    cdef int64_t count = len(paths), total = 0, i
    if sizes.shape[0] != count:
        raise ValueError(f"{count} paths, but {sizes.shape[0]} sizes")
    for i in range(count):
        if sizes[i] < 0:
            raise ValueError("a size is negative")
        total += sizes[i]
    if out.shape[0] <= total:
        raise ValueError(f"{out.shape[0]} bytes are too few for files of {total} and one more")
    status = np.empty(count, np.int32)
    if not count:
        return status
    cdef int32_t[::1] told = status
    cdef const char **names = <const char **>malloc(count * sizeof(char *))
    if names == NULL:
        raise MemoryError("no memory for the names of files")
    try:
        for i in range(count):
            names[i] = paths[i]
        with nogil:
            files_read(names, &sizes[0], count, &out[0], &told[0])
    finally:
        free(names)
    return status


cdef int64_t check_ranges(const uint8_t[::1] data, const int64_t[::1] starts,
                          const int64_t[::1] sizes) except -1:
    """Return how many ranges of some data there are; ValueError where one lies outside of it."""
    cdef int64_t count = starts.shape[0], i
    if sizes.shape[0] != count:
        raise ValueError(f"{count} starts, but {sizes.shape[0]} sizes")
    for i in range(count):
        if starts[i] < 0 or sizes[i] < 0 or sizes[i] > data.shape[0] - starts[i]:
            raise ValueError(f"file {i} lies outside of the data")
    return count


def hash_files(size_t function, const uint8_t[::1] data, const int64_t[::1] starts,
               const int64_t[::1] sizes):
    """Hash ranges of some data.

    Args:
        function: Address of one that is called as SHA256 of OpenSSL is.
        data: Where files lie.
        starts: Of each; int64, shape `[n]`.
        sizes: Bytes of each, likewise.

    Returns:
        The digests, one behind the other: 32 bytes for each; None where the function failed.

    Raises:
        ValueError: A range lies outside of the data, or the counts differ.
    """
    cdef int64_t count = check_ranges(data, starts, sizes)
    digests = np.empty(count * FILES_DIGEST_BYTES, np.uint8)
    if not count or not data.shape[0]:
        # No byte can be pointed at, so nothing can be hashed.
        if count:
            raise ValueError("there is no data")
        return digests
    cdef uint8_t[::1] out = digests
    cdef bint done
    with nogil:
        done = files_hash(<FilesHash>function, &data[0], &starts[0], &sizes[0], count, &out[0])
    return digests if done else None
