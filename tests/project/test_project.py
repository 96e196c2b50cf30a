"""Rules of the repository itself: sizes, names and versions."""

import importlib.metadata
import os
import re

from packaging.version import Version

from beam_tfrecord._version import __version__
from tests.helpers.repository import ROOT, tracked_files

MOST_LINES = {
    r"beam_tfrecord/.*\.(py|pyi|pyx|pxd|pxi|c|h|java)": 500,
    r"pipelines/\w+\.py": 75,
    r"beam_tfrecord/\w+/DESIGN\.md": 40,
}

# The brackets keep this file from holding what it forbids.
FOREIGN = re.compile(
    r"(?<![\w./~-])/(?:work|root|home)/|/opt/whee[l]s|/tmp/brie[f]"
    r"|pypi\.or[g]|pythonhoste[d]|repo1?\.mave[n]|registry\.npmj[s]|deb\.debia[n]"
)


PUBLIC = {"beam_tfrecord", "beam_tfrecord.errors", "beam_tfrecord.testing"}
# Rooms of kernels and pure functions, which tests call themselves.
FUNCTIONS = ("native", "records", "format", "features")
INNER_IMPORTS = 161
IMPORT = re.compile(r"^from (beam_tfrecord[\w.]*) import", re.MULTILINE)


def test_no_more_tests_than_there_are_import_inner_modules():
    inner = [
        path
        for path in tracked_files()
        if re.fullmatch(r"test_\w+\.py", path.name)
        and path.relative_to(ROOT).parts[1] not in FUNCTIONS
        and set(IMPORT.findall(path.read_text(encoding="utf-8"))) - PUBLIC
    ]
    assert len(inner) <= INNER_IMPORTS, "test what is promised, through public names"
    assert len(inner) == INNER_IMPORTS, f"write INNER_IMPORTS = {len(inner)}: it only falls"


def _scripts():
    shell = [path for path in (ROOT / "scripts").rglob("*") if path.is_file() and not path.suffix]
    return [*shell, ROOT / ".ci" / "run"]


def test_scripts_are_short_executable_and_say_what_they_are_for():
    for script in _scripts():
        lines = script.read_text(encoding="utf-8").splitlines()
        assert os.access(script, os.X_OK), script
        assert lines[0] in ("#!/bin/sh", "#!/usr/bin/env bash"), script
        assert lines[1].startswith("# "), script
        assert len(lines) <= 25, script


def test_sources_pipelines_and_design_pages_are_short():
    too_long = {
        path: lines
        for path in tracked_files()
        for pattern, most in MOST_LINES.items()
        if re.fullmatch(pattern, str(path.relative_to(ROOT)))
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > most
    }
    assert too_long == {}


def test_no_paths_or_hosts_of_one_machine():
    found = {}
    for path in tracked_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        if match := FOREIGN.search(text):
            found[str(path.relative_to(ROOT))] = match.group()
    assert found == {}


def test_changelog_and_version_agree():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.+)$", text, flags=re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    released = [re.fullmatch(r"\[(\d+\.\d+\.\d+)\] - \d{4}-\d{2}-\d{2}", it) for it in headings[1:]]
    assert None not in released
    unreleased = text.split("## [Unreleased]", 1)[1].split("\n## ", 1)[0].strip()
    # Between releases the version is either the last one told, or the one being written about.
    assert unreleased or (released and released[0] and released[0][1] == __version__)
    numbers = [Version(match[1]) for match in released if match]
    assert numbers == sorted(numbers, reverse=True)
    assert Version(__version__) >= max(numbers, default=Version("0"))


def test_installed_metadata():
    found = importlib.metadata.metadata("beam-tfrecord")
    assert found["Version"] == __version__
    assert found["License-Expression"] == "Apache-2.0"
    assert found["Requires-Python"] in ("<3.14,>=3.11", ">=3.11,<3.14")
    assert {"tensorflow", "transform", "gcp", "all"} <= set(found.get_all("Provides-Extra"))
    script = importlib.metadata.entry_points(group="console_scripts", name="beam-tfrecord")
    assert [entry.value for entry in script] == ["beam_tfrecord.cli.main:main"]
