# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Binding of what works on many small files: the GIL is released for all of them at once."""

include "files_stubs.pxi"
include "files_read.pxi"
include "files_jpeg.pxi"

bt_crc32c_init()
