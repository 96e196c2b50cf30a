# cython: language_level=3, boundscheck=False, wraparound=False, binding=True, embedsignature=True
"""Binding of the C kernel: checks arguments, owns memory, and releases the GIL around the work.

The functions are documented in `beam_tfrecord.native.reference`, which gives the same results.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release
from cpython.buffer cimport PyObject_GetBuffer
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

include "records_kernel.pxi"

import numpy as np

from beam_tfrecord.native.values import FAULT_REASONS, KIND_NAMES
from beam_tfrecord.native.values import Column as DecodedValues
from beam_tfrecord.native.values import Encoded, Found, Frames, Run

include "records_memory.pxi"
include "records_hashes.pxi"
include "records_encode.pxi"
include "records_frames.pxi"
include "records_decode.pxi"
include "records_fit.pxi"

bt_crc32c_init()
