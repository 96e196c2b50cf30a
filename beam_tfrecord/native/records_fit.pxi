# Whether records are what a schema says.
cdef class _Fitting:
    """The rules with their names' memory."""

    cdef FitRule *rules
    cdef int64_t count
    cdef list names

    def __cinit__(self, rules):
        cdef _Bytes name
        self.count = len(rules)
        self.rules = <FitRule *>calloc(self.count + 1, sizeof(FitRule))
        if self.rules == NULL:
            raise MemoryError("no memory to check records")
        self.names = [_Bytes(rule.name) for rule in rules]
        for i, rule in enumerate(rules):
            name = self.names[i]
            self.rules[i].name.at, self.rules[i].name.end = name.at, name.at + name.size
            self.rules[i].kind, self.rules[i].required = rule.kind, rule.required
            self.rules[i].is_text, self.rules[i].value_bytes = rule.is_text, rule.value_bytes
            self.rules[i].min_values = rule.min_values
            self.rules[i].max_values = rule.max_values
            self.rules[i].low, self.rules[i].high = rule.low, rule.high

    def __dealloc__(self):
        free(self.rules)


def fitting_records(data, const int64_t[::1] starts, rules):
    cdef _Bytes view = _Bytes(data)
    cdef _Fitting fitting = _Fitting(rules)
    cdef int64_t records = starts.shape[0], fit
    if records == 0:
        return 0
    with nogil:
        fit = bt_fitting_records(view.at, view.size, &starts[0], records, fitting.rules,
                                 fitting.count)
    return fit
