# Buffers given to and taken from the kernel, and its results as exceptions.
cdef class _Bytes:
    """The readable bytes of any object with a buffer, whatever its item type."""

    cdef Py_buffer view
    cdef const uint8_t *at
    cdef size_t size

    def __cinit__(self, data):
        PyObject_GetBuffer(data, &self.view, PyBUF_SIMPLE)
        self.at = <const uint8_t *>self.view.buf
        self.size = <size_t>self.view.len

    def __dealloc__(self):
        PyBuffer_Release(&self.view)


cdef class _Memory:
    """Memory of the kernel, given to NumPy without a copy and freed with the last array."""

    cdef Vec vec

    def __dealloc__(self):
        vec_free(&self.vec)

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.vec.data, <Py_ssize_t>self.vec.size, 0, flags)


cdef object _take(Vec *vec, dtype):
    """The bytes of the vec as an array; the vec is empty afterwards."""
    if vec.size == 0:
        vec_free(vec)
        return np.empty(0, dtype)
    cdef _Memory memory = _Memory()
    memory.vec = vec[0]
    vec.data = NULL
    vec_free(vec)
    return np.frombuffer(memory, dtype)


cdef int _check(int result, str what) except -1:
    if result == BT_OK:
        return 0
    if result == BT_NO_MEMORY:
        raise MemoryError(f"no memory to {what}")
    raise ValueError(f"cannot {what}")


cdef int _check_record(int result, int64_t record, str what) except -1:
    if result == BT_MALFORMED:
        raise ValueError(f"record {record}: {what}")
    return _check(result, "read records")


cdef str _OUTSIDE = "does not lie inside the data"
