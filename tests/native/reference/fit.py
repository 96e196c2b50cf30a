"""Whether records surely are what a schema says."""

from beam_tfrecord.native.values import BYTES_KIND, INT64_KIND
from tests.native.reference.examples import canonicalize, parse_example, take_varint
from tests.native.reference.hashes import as_bytes
from tests.native.reference.records import payload_of


def fitting_records(data, starts, rules):
    """Return how many records from the first on surely fit: the one behind them still may.

    A record surely fits that is a canonical Example, has no feature but those of `rules`, which
    are in order of their names, and has all of these as they say.
    """
    view = as_bytes(data)
    for record in range(len(starts)):
        try:
            payload = bytes(payload_of(view, starts, record))
        except ValueError:
            return record
        if canonicalize(payload) != payload or not _fits(payload, rules):
            return record
    return len(starts)


def _fits(payload, rules):
    features = parse_example(payload)
    if any(rule.required and rule.name not in features for rule in rules):
        return False
    of_name = {rule.name: rule for rule in rules}
    return all(
        name in of_name and _feature_fits(kind, values, of_name[name])
        for name, (kind, values) in features.items()
    )


def _feature_fits(kind, values, rule):
    if kind != rule.kind or not rule.min_values <= len(values) <= rule.max_values:
        return False
    if kind == INT64_KIND:
        return all(rule.low <= _signed(value) <= rule.high for value in values)
    return kind != BYTES_KIND or all(_bytes_fit(value, rule) for value in values)


def _signed(varint):
    value, _ = take_varint(varint, 0)
    return value - 2**64 if value >= 2**63 else value


def _bytes_fit(value, rule):
    if rule.value_bytes not in (-1, len(value)):
        return False
    try:
        value.decode("utf-8" if rule.is_text else "latin-1")
    except UnicodeDecodeError:
        return False
    return True
