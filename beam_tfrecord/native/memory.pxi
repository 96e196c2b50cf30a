from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release
from cpython.buffer cimport PyObject_GetBuffer


# Memory of callers and of the kernel, and the kernel's results as exceptions.
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
    """Memory of the kernel that NumPy arrays share; freed with the last of them."""

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
