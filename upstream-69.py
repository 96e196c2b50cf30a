



































































def maybe_flush(self):
    if self._is_due or self.size() > self._size_flush_threshold:
        self._is_due = False
        self.flush()


def _schedule_periodic_flush(self):
    def due():
        self._is_due = True

    self._periodic_flusher = PeriodicThread(self._time_flush_threshold_ms / 1000.0, due)
    ...
