import pytest

from beam_tfrecord.base.text import format_size, parse_size
from beam_tfrecord.errors import UsageError


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("1", 1),
        ("128 MB", 128_000_000),
        (" 64MiB ", 67_108_864),
        ("1.5GiB", 1_610_612_736),
        ("0.5kb", 500),
        ("1TiB", 1_099_511_627_776),
        ("9007199254740993", 9_007_199_254_740_993),
        ("1.1", 1),
    ],
)
def test_sizes_are_decimal_unless_they_say_i(text, nbytes):
    assert parse_size(text) == nbytes


@pytest.mark.parametrize("text", ["", "MB", "-1MB", "1e6", "1XB", "1 M B", "1,5MB", "inf", "1MBs"])
def test_other_forms_are_refused(text):
    with pytest.raises(UsageError, match=r"cannot read size .*: write 128MB or 64MiB"):
        parse_size(text)


@pytest.mark.parametrize("text", ["0", 0, "0GB", "0.4"])
def test_nothing_is_no_size(text):
    with pytest.raises(UsageError, match="is not positive"):
        parse_size(text)


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (1000, "1.0 kB"),
        (1_250_000, "1.2 MB"),
        (5_000_000_000, "5.0 GB"),
        (2.5e15, "2500.00 TB"),
    ],
)
def test_sizes_for_a_human(nbytes, text):
    assert format_size(nbytes) == text
