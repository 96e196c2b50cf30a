# Framed records: scan, sort and gather.
def sort_records(data, const int64_t[::1] starts, const uint16_t[::1] splits,
                 const uint64_t[::1] places, bint by_bytes):
    cdef _Bytes view = _Bytes(data)
    cdef int64_t count = places.shape[0], bad = 0
    if starts.shape[0] != count or (splits is not None and splits.shape[0] != count):
        raise ValueError("starts, splits and places must have one length")
    order = np.empty(count, np.int64)
    if count == 0:
        return order
    cdef int64_t[::1] out = order
    cdef SortInput given
    cdef int result
    given.data, given.bytes, given.starts = view.at, view.size, &starts[0]
    given.records, given.places, given.by_bytes = count, &places[0], by_bytes
    given.splits = NULL
    if splits is not None:
        given.splits = &splits[0]
    with nogil:
        result = bt_sort_records(&given, &out[0], &bad)
    _check_record(result, bad, _OUTSIDE)
    return order


cdef object _gather(data, const int64_t[::1] starts, const uint64_t[::1] places,
                    const int64_t[::1] order, uint8_t[::1] out, size_t at):
    cdef _Bytes view = _Bytes(data)
    cdef int64_t records = starts.shape[0], count = order.shape[0], bad = 0
    cdef size_t written = 0, size = out.shape[0]
    cdef int result
    if places is not None and places.shape[0] != records:
        raise ValueError("starts and places must have one length")
    if at > size:
        raise ValueError(f"position {at} is outside of out, which has {size} bytes")
    if count == 0:
        return 0
    cdef const uint64_t *place_data = NULL
    cdef const int64_t *start_data = NULL
    cdef uint8_t *out_data = NULL
    if records:
        start_data = &starts[0]
    if places is not None and records:
        place_data = &places[0]
    if size:
        out_data = &out[0] + at
    with nogil:
        result = bt_gather(view.at, view.size, start_data, records, place_data, &order[0], count,
                           out_data, size - at, &written, &bad)
    if result == BT_NO_ROOM:
        raise ValueError("out is too short for the records")
    _check_record(result, bad, _OUTSIDE)
    return written


def gather(data, const int64_t[::1] starts, const int64_t[::1] order, uint8_t[::1] out, size_t at):
    return _gather(data, starts, None, order, out, at)


def gather_run(data, const int64_t[::1] starts, const uint64_t[::1] places not None,
               const int64_t[::1] order, uint8_t[::1] out, size_t at):
    return _gather(data, starts, places, order, out, at)


def scan_run(data):
    cdef _Bytes view = _Bytes(data)
    cdef _Memory starts = _Memory(), places = _Memory()
    cdef int64_t position = 0
    cdef int result
    with nogil:
        result = bt_scan_run(view.at, view.size, &starts.vec, &places.vec, &position)
    if result == BT_MALFORMED:
        raise ValueError(f"run entry at byte {position} does not fit into the data")
    _check(result, "scan a run")
    return Run(_take(&starts.vec, np.int64), _take(&places.vec, np.uint64))


def scan_frames(data, bint verify=True):
    cdef _Bytes view = _Bytes(data)
    cdef _Memory holder = _Memory()
    cdef FrameScan scan
    cdef int result
    scan.starts = holder.vec
    with nogil:
        result = bt_scan_frames(view.at, view.size, verify, &scan)
    starts = _take(&scan.starts, np.int64)
    _check(result, "scan records")
    fault = (scan.consumed, FAULT_REASONS[scan.fault]) if scan.fault else None
    return Frames(starts, scan.consumed, fault)


def find_frame(data, size_t start):
    cdef _Bytes view = _Bytes(data)
    cdef size_t found
    with nogil:
        found = bt_find_frame(view.at, view.size, start)
    return found
