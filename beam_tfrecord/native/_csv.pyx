# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Binding of the CSV kernel: the GIL is released around all work, memory is owned here only.

`csv_reference` has the same functions in plain Python and says what they mean.
"""

from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memset

import numpy as np

from beam_tfrecord.native.csv_reference import (
    COLUMN_TEXT_BYTES, Fault, Sighting, WordsSeen, beyond, floats_of, nearest_double, powers_of_five
)

include "csv_kernel.pxi"

cdef uint64_t[::1] POWERS = powers_of_five()
csv_set_powers_of_five(&POWERS[0])

# Rows tokenised at a time: few enough that their fields stay in the processor's cache.
cdef enum: TABLE_ROWS = 1024

include "csv_scan.pxi"
include "csv_table.pxi"
include "csv_typer.pxi"
include "csv_filler.pxi"
