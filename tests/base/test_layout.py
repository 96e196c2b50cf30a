import pytest

from beam_tfrecord.errors import UsageError
from beam_tfrecord.layout import Layout, Splits, parse_compression


@pytest.mark.parametrize("name", ["none", "", None, "uncompressed", "NONE"])
def test_no_compression(name):
    assert parse_compression(name) == ""


@pytest.mark.parametrize("name", ["gzip", "GZIP", "Gzip"])
def test_gzip(name):
    assert parse_compression(name) == "GZIP"


def test_another_compression_is_refused():
    with pytest.raises(UsageError, match="compression 'zstd' is not none or gzip"):
        parse_compression("zstd")


def test_a_key_needs_shuffled_order():
    with pytest.raises(UsageError, match="it cannot be combined with --no-shuffle"):
        Layout(key=("id",), shuffle=False)


def test_rows_of_a_key_share_a_split_unless_a_group_is_given():
    assert Layout().group == ()
    assert Layout(key=("id",)).group == ("id",)
    assert Layout(splits=Splits(group=("user",)), key=("id",)).group == ("user",)


def test_columns_are_all_that_a_setting_names_once():
    assert Layout().columns == ()
    assert Layout(splits=Splits(group=("b", "a")), key=("a", "c")).columns == ("a", "c", "b")
    assert Layout(splits=Splits((), "part"), key=("a",)).columns == ("a", "part")
