"""The parameters of the Flex Template are the flags of the command line, and are read as such."""

import json
import re
from pathlib import Path

import click
import pytest
from apache_beam.options.pipeline_options import PipelineOptions, _BeamArgumentParser

from beam_tfrecord.cli.dataflow_template import (
    command_words,
    metadata,
    split_words,
    template_options,
)
from beam_tfrecord.cli.main import cli
from beam_tfrecord.cli.write import write
from beam_tfrecord.errors import UsageError
from beam_tfrecord.options import SOURCE_OPTIONS, WRITE_OPTIONS

METADATA = Path(__file__).parents[2] / "pipelines" / "dataflow" / "metadata.json"
INPUT = {"input": "gs://lake/in/*.csv", "output": "gs://lake/out"}


def given(**parameters):
    """Return what the command line makes of parameters."""
    words = command_words({**INPUT, **parameters})
    # A command keeps the flags of help of its first context, and other tests read its help.
    group = click.Context(cli, **cli.context_settings)
    return dict(write.make_context("write", words, parent=group).params)


def beam_flags():
    parser = _BeamArgumentParser(allow_abbrev=False, add_help=False)
    for options in {str(cls): cls for cls in PipelineOptions.__subclasses__()}.values():
        options._add_argparse_args(parser)
    return [action.option_strings for action in parser._actions]


def test_the_file_is_what_the_options_say():
    assert json.loads(METADATA.read_text(encoding="utf-8")) == metadata(), (
        "run scripts/dataflow_metadata"
    )


def test_every_flag_is_a_parameter_but_those_of_preprocessing_and_the_runner():
    flags = {option.flag for option in template_options().values()}
    others = {option.flag for option in (*WRITE_OPTIONS, *SOURCE_OPTIONS)} - flags
    assert others == {
        *("--transform", "--step", "--transform-fn", "--fit", "--raw-too"),
        "--runner",
    }


def test_no_parameter_has_the_name_of_an_option_of_beam():
    names = {one["name"] for one in metadata()["parameters"]} - {"sdk_container_image"}
    flags = {flag for words in beam_flags() for flag in words}
    assert {"--labels", "--project", "--region"} <= flags
    assert {f"--{name}" for name in names} & flags == set()


def test_names_and_patterns_are_of_the_form_that_the_service_takes():
    for parameter in metadata()["parameters"]:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", parameter["name"])
        assert parameter["label"]
        assert parameter["helpText"].endswith((".", "]"))
        for pattern in parameter.get("regexes", ()):
            assert re.compile(pattern)


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("input", "gs://lake/*.csv", "trips.csv"),
        ("input", "jdbc:postgresql://db/shop", "/db"),
        ("output", "gs://lake/out", "gs://lake"),
        ("seed", "7", "seven"),
        ("compression", "gzip", "zip"),
        ("no_shuffle", "true", "yes"),
        ("types", "a=int64,b=text", "int64"),
    ],
)
def test_patterns_take_what_the_command_line_takes(name, good, bad):
    (parameter,) = (one for one in metadata()["parameters"] if one["name"] == name)
    (pattern,) = parameter["regexes"]
    assert re.search(pattern, good)
    assert not re.search(pattern, bad)


def test_parameters_become_what_flags_would():
    found = given(
        split="train=0.9,test=0.1",
        group="USER,DAY",
        shards="train=64",
        no_shuffle="true",
        overwrite="false",
        seed="-3",
        null="NA|-",
        types="a=int64,b=text",
        delimiter=";",
        max_rejects="1%",
        input_labels="dog,cat",
    )
    assert found["paths"] == ("gs://lake/in/*.csv", "gs://lake/out")
    assert found["splits"] == "train=0.9,test=0.1"
    assert found["group"] == ["USER", "DAY"]
    assert (found["shards"], found["seed"], found["max_rejects"]) == ("train=64", -3, "1%")
    assert (found["shuffle"], found["overwrite"]) == (False, False)
    assert found["null_words"] == ("NA", "-")
    assert found["types"] == {"a": "int64", "b": "text"}
    assert (found["delimiter"], found["labels"]) == (";", "dog,cat")


def test_several_inputs_are_parted():
    assert given(input="gs://a/1.csv|gs://a/2.csv")["paths"] == (
        "gs://a/1.csv",
        "gs://a/2.csv",
        "gs://lake/out",
    )


def test_the_words_of_a_launcher_are_told_apart():
    words = ["--input=gs://a", "--output=gs://b/c", "--seed=1", "--project=p", "--no_auth"]
    assert split_words(words) == (
        {"input": "gs://a", "output": "gs://b/c", "seed": "1"},
        ["--project=p", "--no_auth"],
    )


def test_parameters_that_cannot_be_are_told():
    with pytest.raises(UsageError, match=r"^the template needs the parameter output$"):
        split_words(["--input=gs://a"])
    with pytest.raises(UsageError, match=r"^parameter no_shuffle is 'yes': give true or false$"):
        command_words({**INPUT, "no_shuffle": "yes"})
