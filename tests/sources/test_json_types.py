"""JSON as the types of the contract: values come back, or the type is refused by name."""

import decimal
import json
import re

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings

from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.arrow_types import is_list, is_temporal
from beam_tfrecord.sources.json import Json
from tests.whole.type_families import FAMILIES

# What JSON cannot be read as, so that users read it as lists or structs.
REFUSED = re.compile("map<")
# Refused if such a column has nulls, because Arrow cannot take rows of views.
MAY_BE_REFUSED = re.compile("fixed_size_list<.*(string|binary)_view|, -")


def _in_json(value, arrow):
    """Return what a user would write for a value, by Python's json module.

    Raises:
        UnicodeDecodeError: They are bytes that are no text.
    """
    if value is None:
        return None
    if arrow == pa.bool8():
        return int(value)
    if is_list(arrow):
        return [_in_json(inner, arrow.value_type) for inner in value]
    if pa.types.is_struct(arrow):
        return {field.name: _in_json(value[field.name], field.type) for field in arrow}
    if pa.types.is_map(arrow):
        return {name: _in_json(inner, arrow.item_type) for name, inner in value}
    if isinstance(arrow, pa.UuidType):
        return str(value)
    if isinstance(arrow, pa.BaseExtensionType):
        return _in_json(value, arrow.storage_type)
    if pa.types.is_duration(arrow):
        return str(pa.scalar(value, arrow).cast(pa.int64()).as_py())
    if pa.types.is_timestamp(arrow) and arrow.tz:
        # Texts of other zones have no seconds in their offsets, which Tokyo had once.
        arrow = pa.timestamp(arrow.unit, "UTC")
    if is_temporal(arrow):
        return pa.scalar(value, arrow).cast(pa.string()).as_py()
    if isinstance(value, bytes):
        return value.decode()
    return str(value) if isinstance(value, decimal.Decimal) else value


@pytest.mark.parametrize("family", FAMILIES)
def test_every_type_of_the_contract_comes_back_or_is_refused(family, tmp_path_factory):
    path = tmp_path_factory.mktemp("json") / "x.jsonl"
    seen = set()

    @settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
    @given(FAMILIES[family])
    def check(column):
        arrow = column.array.type
        plain = column.array.storage if isinstance(arrow, pa.FixedShapeTensorType) else column.array
        try:
            rows = [_in_json(value, plain.type) for value in plain.to_pylist()]
        except (ValueError, OverflowError, pa.ArrowTypeError):
            # Bytes that are no text, and times out of the range of Python or pandas.
            return
        path.write_text("".join(json.dumps({"x": row}) + "\n" for row in rows), "utf-8")
        source = Json(path)
        (unit,) = source.all_units(source.all_scans())
        batches_of = source.read(unit, pa.schema({"x": arrow}))
        if REFUSED.search(str(arrow)):
            with pytest.raises(UsageError, match="'x' cannot be read from json as "):
                list(batches_of)
            return
        try:
            batches = list(batches_of)
        except UsageError:
            assert MAY_BE_REFUSED.search(str(arrow))
            return
        assert [reject.message for batch in batches for reject in batch.rejects] == []
        found = pa.chunked_array([batch.data["x"] for batch in batches], arrow)
        assert found.type == arrow
        assert repr(found.to_pylist()) == repr(column.array.to_pylist())
        seen.add(arrow)

    check()
    assert len(seen) > 1
