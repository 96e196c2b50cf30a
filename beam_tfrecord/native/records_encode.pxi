# Rows and payloads into framed records.
cdef class _Columns:
    """The columns of a batch by name, over Arrow memory that the two capsules keep alive."""

    cdef Column *columns
    cdef int64_t count, opened, rows
    cdef object capsules

    def __cinit__(self, batch):
        names = [name.encode() for name in batch.schema.names]
        order = sorted(range(len(names)), key=names.__getitem__)
        for before, after in zip(order, order[1:]):
            if names[before] == names[after]:
                raise ValueError(f"column {batch.schema.names[after]!r} is there twice")
        self.count = len(names)
        self.rows = batch.num_rows
        self.columns = <Column *>calloc(self.count + 1, sizeof(Column))
        if self.columns == NULL:
            raise MemoryError("no memory to encode")
        self.capsules = batch.__arrow_c_array__()
        cdef const ArrowSchema *schema = <const ArrowSchema *>PyCapsule_GetPointer(
            self.capsules[0], "arrow_schema")
        cdef const ArrowArray *array = <const ArrowArray *>PyCapsule_GetPointer(
            self.capsules[1], "arrow_array")
        cdef _Bytes key
        cdef Span span
        cdef int result
        for index in order:
            key = _Bytes(names[index])
            span.at, span.end = key.at, key.at + key.size
            result = bt_column_open(&self.columns[self.opened], schema, array, index, span)
            self.opened += 1
            if result == BT_MALFORMED:
                field = batch.schema.field(index)
                raise TypeError(f"column {field.name!r} is {field.type}, which has no encoding")
            _check(result, "encode")

    def __dealloc__(self):
        for i in range(self.opened):
            bt_column_close(&self.columns[i])
        free(self.columns)


def encode_bound(batch):
    cdef _Columns columns = _Columns(batch)
    return bt_encode_bound(columns.columns, columns.count, columns.rows)


def encode(batch, uint8_t[::1] out, size_t at, int64_t[::1] starts, int64_t[::1] rows, skip=None):
    cdef _Columns columns = _Columns(batch)
    cdef Encoding encoding
    cdef const uint8_t[::1] skip_view
    cdef int result
    if starts.shape[0] < columns.rows or rows.shape[0] < columns.rows:
        raise ValueError(f"starts and rows must have room for {columns.rows} rows")
    if at > <size_t>out.shape[0]:
        raise ValueError(f"position {at} is outside of out, which has {out.shape[0]} bytes")
    encoding.skip = NULL
    if skip is not None and columns.rows:
        skip_view = skip.view(np.uint8)
        if skip_view.shape[0] != columns.rows:
            raise ValueError(f"{skip_view.shape[0]} skip marks for {columns.rows} rows")
        encoding.skip = &skip_view[0]
    encoding.columns, encoding.column_count = columns.columns, columns.count
    encoding.rows, encoding.records = columns.rows, 0
    encoding.out = &out[0] if out.shape[0] else NULL
    encoding.out_bytes, encoding.at = out.shape[0], at
    encoding.starts = &starts[0] if columns.rows else NULL
    encoding.row_numbers = &rows[0] if columns.rows else NULL
    encoding.rejects.data = NULL
    encoding.rejects.size = 0
    vec_free(&encoding.rejects)
    with nogil:
        result = bt_encode(&encoding)
    rejects = _take(&encoding.rejects, np.int64).reshape(-1, 3)
    if result == BT_NO_ROOM:
        raise ValueError("out is too short: encode_bound(batch) tells the bytes it needs")
    _check(result, "encode")
    errors = np.zeros(columns.count, np.float64)
    for i in range(columns.count):
        errors[columns.columns[i].batch_column] = columns.columns[i].max_relative_error
    reject_list = [(row, column, code) for row, column, code in rejects.tolist()]
    return Encoded(encoding.at - at, encoding.records, reject_list, errors)


def frame_bound(array):
    return array.nbytes + BT_FRAME_BYTES * len(array)


def frame(array, uint8_t[::1] out, size_t at, int64_t[::1] starts):
    if array.null_count:
        raise ValueError("a null cannot be framed as a record")
    format_bytes = {"binary": 4, "large_binary": 8}.get(str(array.type))
    if format_bytes is None:
        raise TypeError(f"records must be binary or large_binary, not {array.type}")
    cdef int64_t count = len(array), i
    if starts.shape[0] < count:
        raise ValueError(f"starts must have room for {count} records")
    if at > <size_t>out.shape[0]:
        raise ValueError(f"position {at} is outside of out, which has {out.shape[0]} bytes")
    if count == 0:
        return 0
    _, offsets_buffer, values_buffer = array.buffers()
    offset_type = np.int32 if format_bytes == 4 else np.int64
    typed = np.frombuffer(offsets_buffer, offset_type)[array.offset:array.offset + count + 1]
    cdef const int64_t[::1] offsets = np.ascontiguousarray(typed, np.int64)
    cdef _Bytes values = _Bytes(b"" if values_buffer is None else values_buffer)
    cdef size_t begin = at, size = out.shape[0], payload
    if size - at < <size_t>(offsets[count] - offsets[0] + BT_FRAME_BYTES * count):
        raise ValueError("out is too short: frame_bound(array) tells the bytes it needs")
    with nogil:
        for i in range(count):
            payload = <size_t>(offsets[i + 1] - offsets[i])
            memcpy(&out[at] + 12, values.at + offsets[i], payload)
            bt_seal(&out[at], payload)
            starts[i] = <int64_t>at
            at += payload + BT_FRAME_BYTES
    return at - begin
