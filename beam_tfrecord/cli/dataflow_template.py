"""The program inside a Dataflow Flex Template: it runs `write` with the template's parameters.

The parameters are the flags of the command line, from the same table, with underscores in their
names. The launcher of Dataflow starts the program with the parameters and with options of Beam. The
program writes the description of the job to ``--template_location``, and the launcher starts the
job.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

import click

from beam_tfrecord.errors import BeamTFRecordError, UsageError, options_named_by
from beam_tfrecord.options import SOURCE_OPTIONS, WRITE_OPTIONS, Option
from beam_tfrecord.options.jobs import WriteOptions
from beam_tfrecord.options.option import INPUT

# A parameter is a single text, in which this character separates the values of a repeatable flag.
SEPARATOR = "|"

# Preprocessing needs a local disk and several consecutive pipelines, and the launcher sets the
# runner.
_LEFT_OUT = {"runner", "transform", "step", "transform_fn", "fit", "raw_too"}

# Beam has an option of the same name.
_RENAMED = {"--labels": "input_labels"}

_PATTERNS = {
    "number": r"^-?[0-9]+$",
    "switch": r"^(true|false)$",
    "off": r"^(true|false)$",
    "types": r"^[^=]+=.+$",
}


def template_options() -> dict[str, Option]:
    """Return the options that the template supports, by the names of its parameters."""
    return {
        _RENAMED.get(option.flag, option.flag.removeprefix("--").replace("-", "_")): option
        for option in (*WRITE_OPTIONS, *SOURCE_OPTIONS)
        if option.keyword not in _LEFT_OUT
    }


def metadata() -> dict[str, Any]:
    """Return the content of the template's ``metadata.json``."""
    return {
        "name": "beam_tfrecord: write",
        "description": "Write CSV, JSON, Parquet, images, NumPy arrays or a database as a sharded, "
        "shuffled, split TFRecord dataset.",
        "parameters": [
            {
                "name": "input",
                "label": "Input",
                "helpText": "Files, directories, patterns, or the URL of a database; several are "
                f"separated by {SEPARATOR}.",
                "paramType": "TEXT",
                "isOptional": False,
                "regexes": [r"^(gs://|s3://|jdbc:|postgresql://).+$"],
            },
            {
                "name": "output",
                "label": "Output",
                "helpText": "Directory of the dataset.",
                "paramType": "TEXT",
                "isOptional": False,
                "regexes": [r"^(gs|s3)://[^/]+/.+$"],
            },
            *(_parameter(name, option) for name, option in template_options().items()),
            {
                "name": "sdk_container_image",
                "label": "Worker image",
                "helpText": "Container image of the workers, such as the image of this template.",
                "paramType": "TEXT",
                "isOptional": True,
            },
        ],
    }


def _parameter(name: str, option: Option) -> dict[str, Any]:
    text = option.help
    if option in SOURCE_OPTIONS and option.group != INPUT:
        text = f"{option.group}: {text}"
    if option.form == "words":
        text = f"{text.removesuffix('.')}; several are separated by {SEPARATOR}."
    parameter: dict[str, Any] = {
        "name": name,
        "label": name.replace("_", " ").capitalize(),
        "helpText": re.sub(r"\s+\[default: .*\]$", "", text),
        "paramType": "BOOLEAN" if option.form in ("switch", "off") else "TEXT",
        "isOptional": True,
    }
    pattern = _PATTERNS.get(option.form)
    if option.form == "choice":
        pattern = f"^({'|'.join(map(re.escape, option.choices))})$"
    if pattern is not None:
        parameter["regexes"] = [pattern]
    return parameter


def split_words(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Split the arguments from a launcher into parameters (by name) and options of Beam."""
    names = {"input", "output", *template_options()}
    parameters: dict[str, str] = {}
    others: list[str] = []
    for word in words:
        flag, equals, value = word.partition("=")
        name = flag.removeprefix("--")
        if equals and name in names:
            parameters[name] = value
        else:
            others.append(word)
    for name in ("input", "output"):
        if not parameters.get(name):
            raise UsageError(f"the template needs the parameter {name}")
    return parameters, others


def command_words(parameters: Mapping[str, str]) -> list[str]:
    """Convert parameters to arguments of the command line."""
    words: list[str] = []
    for name, option in template_options().items():
        if value := parameters.get(name):
            words += _flag_words(name, option, value)
    inputs = [path for path in parameters["input"].split(SEPARATOR) if path]
    return [*words, *inputs, parameters["output"]]


def _flag_words(name: str, option: Option, value: str) -> Iterator[str]:
    if option.form in ("switch", "off"):
        if value.lower() not in ("true", "false"):
            raise UsageError(f"parameter {name} is {value!r}: give true or false")
        if value.lower() == "true":
            yield option.flag
        return
    values = value.split(SEPARATOR) if option.form == "words" else [value]
    for one in values:
        # Flag and value are one argument, so that a value may begin with a dash.
        yield f"{option.flag}={one}"


def launch(words: Sequence[str]) -> None:
    """Write the description of the job that a launcher requests."""
    from beam_tfrecord.cli.base import job_arguments, split_output
    from beam_tfrecord.cli.write import write
    from beam_tfrecord.jobs.settings import make_settings
    from beam_tfrecord.jobs.submit import submit

    parameters, beam_words = split_words(words)
    context = write.make_context("write", command_words(parameters))
    flags = dict(context.params)
    inputs, output = split_output(flags.pop("paths"))
    # The launcher passes Beam's name of the runner; the name ``dataflow`` also sets our presets.
    others = [word for word in beam_words if not word.startswith("--runner=")]
    arguments = {**job_arguments(flags), "runner": "dataflow"}
    call = WriteOptions(inputs, output, pipeline_options=others, **arguments)
    submit(make_settings(call))


def main() -> NoReturn:
    """Run the program; an error prints one line on stderr and sets the exit code."""
    with options_named_by("flag"):
        try:
            launch(sys.argv[1:])
        except BeamTFRecordError as error:
            click.echo(f"error: {error}", err=True)
            sys.exit(error.exit_code)
        except click.ClickException as error:
            click.echo(f"error: {error.format_message()}", err=True)
            sys.exit(error.exit_code)
    sys.exit(0)
