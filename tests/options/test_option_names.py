"""Messages name options by flag on the command line, and by keyword in Python."""

import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import beam_tfrecord as bt
from beam_tfrecord.errors import DataError, UsageError, options_named_by, quoted, with_keywords
from beam_tfrecord.options.jobs import WRITE_OPTIONS
from beam_tfrecord.options.sources import SOURCE_OPTIONS
from tests.helpers import warm
from tests.helpers.cli_stand_ins import run

ROOT = Path(__file__).parents[2]


@pytest.fixture
def keywords():
    with options_named_by("keyword"):
        yield


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("pass --overwrite to replace it, or", "pass overwrite=True to replace it, or"),
        ("keep it: --no-shuffle", "keep it: shuffle=False"),
        ("allow them with --max-rejects; all", "allow them with max_rejects; all"),
        ("--max-rejects 1% allows some", "max_rejects 1% allows some"),
        ("pass --types c=text; a --schema turns", "pass types c=text; a schema turns"),
        ("pass --null '?' --null 'n.a.', or", "pass null_words '?' null_words 'n.a.', or"),
        ("column 'a' of --null-in is not", "column 'a' of null_in is not"),
        ("--date-format '%j%Y': %j is", "date_formats '%j%Y': %j is"),
        ("'a --null b' is not in --names", "'a --null b' is not in names"),
        ("--format png or --format jpeg", "format png or format jpeg"),
        ("pass --from csv|parquet|…", "pass from_ csv|parquet|…"),
        ("--password-env or --password-file", "password_env or password_file"),
        ("needs --flink-master HOST:PORT, the", "needs --flink_master HOST:PORT, the"),
        ("pass --max-workers", "pass --max_num_workers"),
        # What a user typed, and flags of other programs, stay.
        ("there is no column '--union'", "there is no column '--union'"),
        ("pip install --force-reinstall x", "pip install --force-reinstall x"),
        ("an option such as --types_of", "an option such as --types_of"),
    ],
)
def test_flags_become_keywords(written, shown):
    assert with_keywords(written) == shown
    # A message may be part of another one.
    assert with_keywords(shown) == shown


@given(st.text())
def test_quoted_values_are_words_of_a_shell(value):
    assert "\n" not in quoted(value)
    if value.isprintable():
        assert shlex.split(f"--null {quoted(value)}") == ["--null", value]


def test_every_flag_has_its_keyword():
    options = [*WRITE_OPTIONS, *SOURCE_OPTIONS]
    constants = {"switch": "=True", "off": "=False"}
    shown = [with_keywords(f"pass {one.flag}") for one in options]
    assert shown == [f"pass {one.keyword}{constants.get(one.form, '')}" for one in options]


def test_an_error_has_both(keywords):
    error = UsageError("pass --union")
    assert (str(error), error.message) == ("pass union=True", "pass --union")
    assert repr(error) == "UsageError('pass union=True')"
    with options_named_by("flag"):
        assert str(error) == "pass --union"
    assert str(error) == "pass union=True"


def test_calls_and_commands_name_options_as_their_callers_know_them(keywords, tmp_path):
    (tmp_path / "1.csv").write_text("a,b\n1,2\n")
    (tmp_path / "2.csv").write_text("a\n2\n")
    paths = [tmp_path / "1.csv", tmp_path / "2.csv"]
    with pytest.raises(DataError, match=r"pass union=True to fill it with nulls$"):
        bt.write(paths, tmp_path / "out")
    with pytest.raises(DataError, match=r"pass union=True to fill it with nulls$"):
        bt.schema(paths)
    with (
        pytest.raises(DataError, match=r"pass union=True to fill it with nulls$"),
        bt.pipeline() as root,
    ):
        root | bt.ReadFromCsv(paths) | bt.WriteToTFRecord(str(tmp_path / "out"))
    ran = run("write", *paths, tmp_path / "out")
    assert ran.stderr.endswith("pass --union to fill it with nulls\n")
    # The command has ended: whoever called it sees keywords again.
    with pytest.raises(DataError, match="union=True"):
        bt.schema(paths)


def test_remarks_about_a_schema_name_keywords(keywords, caplog, tmp_path):
    (tmp_path / "a.csv").write_text("hp\n" + "1\n" * 99 + "?\n")
    bt.schema(tmp_path / "a.csv")
    (line,) = caplog.messages
    assert "null_words '?'" in line
    # All functions accept what the remark shows.
    assert bt.schema(tmp_path / "a.csv", null_words=["?"]).names == ("hp",)
    written = bt.write(tmp_path / "a.csv", tmp_path / "out", null_words=["?"])
    bt.extract(tmp_path / "a.csv", tmp_path / "stage", null_words=["?"])
    planned = bt.plan(tmp_path / "a.csv", tmp_path / "new", null_words=["?"])
    assert written.schema.names == ("hp",)
    assert planned["settings"]["--null"] == "?"
    assert len(caplog.messages) == 1
    # Both forms are the same job.
    options = {"null_words": ["?"]}
    assert bt.write(tmp_path / "a.csv", tmp_path / "out", source_options=options) == written


@pytest.mark.parametrize("function", [bt.write, bt.plan, bt.extract])
@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        *(("overwite", "overwrite"), ("nul_words", "null_words"), ("password", "password_env")),
        *(("null", "null_words"), ("no_header", "header"), ("from", "from_")),
    ],
)
def test_a_misspelt_keyword_gets_the_most_similar_one(function, typed, meant):
    text = f"unexpected keyword argument '{typed}': did you mean '{meant}'"
    with pytest.raises(UsageError, match=text):
        function("a.csv", "out", **{typed: True})


def test_an_option_of_another_kind_of_input_is_refused_even_without_a_value(tmp_path):
    (tmp_path / "a.jsonl").write_text("{}")
    for options in ({"delimiter": None}, {"source_options": {"delimiter": None}}):
        with pytest.raises(UsageError, match="delimiter is not an option of json input"):
            bt.schema(tmp_path / "a.jsonl", **options)


def test_extract_names_write_for_its_keywords():
    with pytest.raises(UsageError, match="unexpected keyword argument 'schema': give it to write"):
        bt.extract("a.csv", "stage", schema="s.json")


def test_a_program_sees_keywords(tmp_path):
    (tmp_path / "a.csv").write_text("a\n1\n")
    code = "import beam_tfrecord as bt; bt.schema('a.csv', delimeter=';')"
    environment = {"PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        [*warm.program(), "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    last = ran.stderr.splitlines()[-1]
    assert last.startswith("beam_tfrecord.errors.UsageError: unexpected keyword argument 'delimet")
    assert last.endswith("did you mean 'delimiter'?")
