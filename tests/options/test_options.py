"""The table of options against the functions and sources it stands for."""

import dataclasses
import inspect
import re
from typing import Any

import pytest

import beam_tfrecord as bt
from beam_tfrecord.cli.main import cli
from beam_tfrecord.dataset.load import Dataset
from beam_tfrecord.jobs import api
from beam_tfrecord.options.jobs import EXTRACT_OPTIONS, WRITE_OPTIONS
from beam_tfrecord.options.sources import SOURCE_OPTIONS, SourceOptions
from beam_tfrecord.sources.choose import SOURCES

# What a function has and a command line says otherwise: its arguments, what follows `--`, and
# what only a program can hand over.
NOT_FLAGS = {"inputs", "output", "pipeline_options", "progress"}


READERS = {
    name.removeprefix("ReadFrom").lower(): getattr(bt, name)
    for name in bt.__all__
    if name.startswith("ReadFrom")
}
OF_SOURCES = {field.name for field in dataclasses.fields(SourceOptions)}


def keywords_of(function):
    """Return the defaults of keyword arguments, apart from those of the options of sources."""
    return {
        name: parameter.default
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
        and name not in {*NOT_FLAGS, *OF_SOURCES}
    }


@pytest.mark.parametrize("function", [api.write, api.plan])
def test_every_keyword_is_a_flag_with_the_same_default(function):
    keywords = keywords_of(function)
    keywords.pop("source_options")
    assert keywords == {option.keyword: option.default for option in WRITE_OPTIONS}


@pytest.mark.parametrize("function", [api.write, api.plan, api.extract, api.schema])
def test_functions_have_the_options_of_sources(function):
    parameters = inspect.signature(function).parameters
    assert {*parameters} >= OF_SOURCES
    assert {option.keyword for option in SOURCE_OPTIONS} <= OF_SOURCES


def default_of(field):
    is_made = field.default_factory is not dataclasses.MISSING
    return field.default_factory() if is_made else field.default


def sources_of(option):
    """Return the kinds of the sources that have an option."""
    return [
        kind
        for kind, source in SOURCES.items()
        if option.keyword in {field.name for field in dataclasses.fields(source)}
    ]


def test_source_options_are_fields_with_the_same_defaults():
    differing = []
    for option in SOURCE_OPTIONS:
        assert sources_of(option)
        for kind in sources_of(option):
            fields = {field.name: field for field in dataclasses.fields(SOURCES[kind])}
            default = default_of(fields[option.keyword])
            # "Nothing given" has several spellings; what matters is that none of them is a value.
            if not (default == option.default or (not default and not option.default)):
                differing.append((option.flag, kind))
    assert differing == []


# What a reader has and its source does not, and the reverse: which rows it selects, size of a
# batch, where arrays of memory go, the one other way to hand over a password.
ONLY_OF_READERS = {"filter", "sample", "sample_seed", "batch_rows", "temp_dir", "password", "nan"}


@pytest.mark.parametrize("kind", sorted(SOURCES))
def test_a_reader_has_the_options_of_its_source(kind):
    reader = READERS[kind]
    parameters = inspect.signature(reader).parameters
    fields = {f.name: f for f in dataclasses.fields(SOURCES[kind]) if f.init}
    assert {*parameters} - ONLY_OF_READERS == {*fields}
    assert [name for name, field in fields.items() if not field.kw_only] == ["paths"]
    for name, field in fields.items():
        parameter = parameters[name]
        default = default_of(field)
        if name != "paths":
            assert parameter.kind is inspect.Parameter.KEYWORD_ONLY
            assert parameter.default == default or not (parameter.default or default), name


@pytest.mark.parametrize("reader", READERS.values())
def test_every_keyword_of_a_reader_is_documented_in_order(reader):
    arguments = inspect.getdoc(reader).partition("Args:\n")[2].partition("\n\n")[0]
    documented = re.findall(r"^    (?:\*\*)?(\w+): ", arguments, re.MULTILINE)
    assert sorted(documented) == sorted(inspect.signature(reader).parameters)


PUBLIC = {name: getattr(bt, name) for name in bt.__all__ if name != "__version__"}


def functions_of(value):
    """Return a function, or the public methods of a class and its `__init__`."""
    if not inspect.isclass(value):
        return [value]
    # `Batch.replace` takes the fields of the dataclass, as `dataclasses.replace` does.
    named = [f for name, f in vars(value).items() if name[0] != "_" and name != "replace"]
    return [*named, value.__init__]


def test_no_public_signature_hides_its_keywords():
    hidden = [
        (name, function.__name__)
        for name, value in (*PUBLIC.items(), ("Dataset", Dataset))
        for function in filter(inspect.isfunction, functions_of(value))
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is inspect.Parameter.VAR_KEYWORD and parameter.annotation in ("Any", Any)
    ]
    assert hidden == []


def test_extract_takes_what_it_can_use_of_write():
    keywords = keywords_of(api.extract)
    keywords.pop("source_options")
    assert keywords == {option.keyword: option.default for option in EXTRACT_OPTIONS}
    flags = {flag for p in cli.commands["extract"].params for flag in p.opts}
    assert {"--table", "--columns", "--limit", "--max-rejects", "--overwrite"} <= flags
    assert not {"--split", "--shards", "--map", "--compression"} & flags


@pytest.mark.parametrize(
    ("function", "options"),
    [(api.write, WRITE_OPTIONS), (api.plan, WRITE_OPTIONS), (api.extract, EXTRACT_OPTIONS)],
)
def test_every_keyword_is_documented(function, options):
    arguments = inspect.getdoc(function).partition("Args:\n")[2].partition("\n\n")[0]
    documented = re.findall(r"^    (\w+): ", arguments, re.MULTILINE)
    own = {*documented} - {*NOT_FLAGS, "source_options", *OF_SOURCES}
    assert {option.keyword for option in options} == own
    assert {*documented} >= OF_SOURCES


def test_write_and_plan_have_the_same_flags():
    def flags(name):
        own = {"--json", "--dry-run", "--detach", "--card", "--describe"}
        return {flag for p in cli.commands[name].params for flag in p.opts} - own

    assert flags("write") == flags("plan")
    assert {"--split", "--shard-size", "--no-shuffle", "--map", "--null", "--union"} <= flags(
        "write"
    )
