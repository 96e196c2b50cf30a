"""The help: grouped by subject, short by default, and what shells complete."""

import os
import re
import shutil
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from beam_tfrecord.cli.main import cli
from beam_tfrecord.options import GROUPS
from beam_tfrecord.options.jobs import WRITE_OPTIONS
from tests.helpers.repository import ROOT

PAGE = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")


def help_of(*words):
    ran = CliRunner().invoke(cli, words, prog_name="beam-tfrecord", env={"COLUMNS": "100"})
    assert ran.exit_code == 0, ran.output
    return ran.stdout


def flags_in(text):
    listed = text[re.search(r"^\w.*:$", text, re.MULTILINE).start() :]
    return re.findall(r"^  (?:-\w, )?(--[\w-]+)", listed, re.MULTILINE)


def flags_of(name):
    params = [one for one in cli.commands[name].params if isinstance(one, click.Option)]
    return {*(one.opts[-1] for one in params), "--help"}


@pytest.mark.parametrize("name", ["write", "plan", "extract", "schema"])
def test_help_shows_the_common_options_and_names_the_way_to_the_others(name):
    short, full = help_of(name, "--help"), help_of(name, "--help-all")
    common = {one.flag for one in WRITE_OPTIONS if one.common} & flags_of(name)
    assert common < {*flags_in(short)}
    assert {"--types", "--no-header", "--names", "--null"} <= {*flags_in(short)}
    assert len(flags_in(short)) <= 20
    assert {*flags_in(full)} == flags_of(name)
    hidden = len(flags_in(full)) - len(flags_in(short))
    assert short.endswith(f"\n{hidden} more options: beam-tfrecord {name} --help-all\n")
    assert "more options" not in full


def test_options_are_under_their_subjects_in_order():
    full = help_of("write", "--help-all")
    titles = re.findall(r"^(\w.*):$", full, re.MULTILINE)
    assert titles == list(GROUPS)
    of_images = full.partition("\nImages:\n")[2].partition("\n\n")[0]
    assert "  --resize SIZE" in of_images
    assert "--delimiter" not in of_images
    columns = {
        line.index(line.split(maxsplit=2)[2]) for line in full.splitlines() if "--seed" in line
    }
    assert columns == {full.splitlines()[-1].index("Show this message")}


@pytest.mark.parametrize("name", ["verify", "diff", "repair"])
def test_a_command_with_few_options_shows_all_of_them(name):
    assert {*flags_in(help_of(name, "--help"))} == flags_of(name)
    assert help_of(name, "--help") == help_of(name, "--help-all")


def test_without_a_command_the_commands_are_shown():
    ran = CliRunner().invoke(cli, [], prog_name="beam-tfrecord", env={"COLUMNS": "100"})
    assert ran.output == help_of("--help")
    assert "..." not in ran.output.partition("\n\nOptions:")[2]


def test_the_page_has_all_commands():
    for name in cli.commands:
        assert f"`{name}`" in PAGE


# Does what bash does when somebody types words and presses the tab key after the last of them.
TAB = """
eval "$(_BEAM_TFRECORD_COMPLETE=bash_source beam-tfrecord)"
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
compopt() { local IFS=' '; echo "compopt $*"; }
_beam_tfrecord_completion beam-tfrecord
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.slow_after(4)
@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (["ver"], ["verify"]),
        (["write", "--delim"], ["--delimiter"]),
        (["write", "--compression", ""], ["none", "gzip"]),
        (["show", "--code", "k"], ["keras"]),
        (["write", "trips"], ["compopt -o default", ""]),
        (["write", "--schema", "s"], ["compopt -o default", ""]),
    ],
)
def test_bash_completes_commands_flags_values_and_paths(words, completed, tmp_path):
    program = tmp_path / "beam-tfrecord"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m beam_tfrecord "$@"\n')
    program.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(
        ["bash", "-c", TAB, "bash", "beam-tfrecord", *words],
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stderr == ""
    assert ran.stdout.splitlines() == completed


LOOKED_FOR = """
concat convert count delete info inspect merge mix read shuffle split validate
"""


@pytest.mark.parametrize("word", LOOKED_FOR.split())
def test_commands_that_people_look_for_name_what_does_their_work(word):
    ran = CliRunner().invoke(cli, [word, "a.csv", "b"])
    assert ran.exit_code == 2
    said = f"No such command {word!r}. Use "
    assert said in ran.stderr
    hint = ran.stderr.partition(said)[2].partition(" (see ")[0]
    assert all((ROOT / page).exists() for page in re.findall(r"docs/[\w-]+\.md", hint))
    assert set(re.findall(r"\w+", hint)) & (set(cli.commands) | {"mix"})
