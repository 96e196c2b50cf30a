"""A release: its version, the README on a package index, the workflows, and the files it builds."""

import email
import importlib
import json
import os
import re
import subprocess
import sys
import tomllib

import pytest

from beam_tfrecord._version import __version__
from tests.helpers.repository import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
RELEASE = ROOT / "scripts" / "release"
REPOSITORY = PROJECT["project"]["urls"]["Source"]
WORKFLOWS = ROOT / ".github" / "workflows"
PYTHONS = ("3.11", "3.12", "3.13")


@pytest.fixture
def release(monkeypatch):
    """Return the module behind scripts/release/build."""
    monkeypatch.syspath_prepend(str(RELEASE))
    return importlib.import_module("release")


def test_links_of_the_readme_lead_to_this_version(tmp_path):
    # A process of its own, because pip and setuptools each change what ``import distutils`` finds.
    command = [sys.executable, "setup.py", "--quiet", "dist_info", "--output-dir", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True)
    (metadata,) = tmp_path.glob("*/METADATA")
    given = email.message_from_bytes(metadata.read_bytes())
    assert given["Description-Content-Type"] == "text/markdown"
    description = given.get_payload()
    assert isinstance(description, str)
    code = r"^```.*?^```$|`[^`\n]*`"
    text = re.sub(code, "", description, flags=re.DOTALL | re.MULTILINE)
    links = re.findall(r"\]\(([^)\s]+)|(?:src|srcset|href)=\"([^\"]+)", text)
    own = re.compile(rf"{REPOSITORY}/(?:blob|raw)/v{re.escape(__version__)}/([^#]+)")
    found = [own.match(markdown) for markdown, _ in links]
    assert any(found)
    for (markdown, html), match in zip(links, found, strict=True):
        assert (markdown or html).startswith(("https://", "#")), markdown or html
        assert match is None or (ROOT / match[1]).exists(), match[1]


def test_everything_names_the_same_versions_of_python(release):
    classifiers = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["project"]["classifiers"]))
    assert tuple(classifiers) == release.PYTHONS == PYTHONS
    builds = PROJECT["tool"]["cibuildwheel"]["build"]
    assert builds == [f"cp{python.replace('.', '')}-macosx_arm64" for python in PYTHONS]
    for workflow in WORKFLOWS.glob("*.yml"):
        matrices = re.findall(r"python: (\[.+\])", workflow.read_text(encoding="utf-8"))
        assert set(matrices) <= {'["3.11", "3.12", "3.13"]'}, workflow


@pytest.mark.parametrize(
    ("tag", "heading", "message"),
    [
        (None, "## [Unreleased]", None),
        ("v1.2.3", "## [1.2.3] - 2026-01-31", None),
        ("v1.2.4", "## [1.2.3] - 2026-01-31", "the tag v1.2.4 does not match version 1.2.3 in"),
        ("v1.2.3", "## [Unreleased]", r"has no heading '## \[1.2.3\] - YYYY-MM-DD'"),
        ("v1.2.3", "## [1.2.3]", r"has no heading '## \[1.2.3\] - YYYY-MM-DD'"),
    ],
)
def test_a_tag_names_the_version_and_the_changelog_has_it(release, tmp_path, tag, heading, message):
    (tmp_path / "beam_tfrecord").mkdir()
    (tmp_path / "beam_tfrecord" / "_version.py").write_text('__version__ = "1.2.3"\n')
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n{heading}\n")
    person = ("-c", "user.name=A", "-c", "user.email=a@b.example")
    for command in (
        ("init", "--quiet"),
        ("add", "."),
        (*person, "commit", "--quiet", "-m", "x"),
        *([("tag", tag)] if tag else []),
    ):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    if message is None:
        assert release.check_version(tmp_path) == "1.2.3"
    else:
        with pytest.raises(SystemExit, match=message):
            release.check_version(tmp_path)


@pytest.mark.parametrize("date", ["2026-01-30", "2026-01-31"])
def test_a_proof_is_not_older_than_the_release_before(release, tmp_path, date):
    results = tmp_path / "scripts" / "prove" / "results"
    results.mkdir(parents=True)
    (results / "kill.json").write_text(json.dumps({"date": date}))
    changelog = "## [1.2.3] - 2026-03-01\n\n## [1.2.2] - 2026-01-31\n"
    release.check_proofs(tmp_path, "1.2.2", changelog.partition("\n")[2])
    if date == "2026-01-31":
        release.check_proofs(tmp_path, "1.2.3", changelog)
    else:
        with pytest.raises(SystemExit, match="the proof kill is older than the last release"):
            release.check_proofs(tmp_path, "1.2.3", changelog)


@pytest.mark.slow
def test_what_a_wheel_is_tried_with_runs():
    done = subprocess.run(
        [sys.executable, str(RELEASE / "smoke.py")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("_records.abi3.so: right\n")


@pytest.mark.slow
def test_every_extra_resolves(release):
    release.check_extras(PYTHONS[0], release.PLATFORMS[0])


@pytest.mark.parametrize(
    ("left_out", "more", "message"),
    [
        ({"docs/guarantees.md"}, set(), r"the sdist lacks docs/guarantees\.md$"),
        (set(), {"a/b.so", "a/b.py"}, r"the sdist has a/b\.so$"),
    ],
)
def test_an_sdist_with_a_file_too_few_or_too_many_is_refused(release, left_out, more, message):
    release.check_sdist(release.IN_SDIST)
    with pytest.raises(SystemExit, match=message):
        release.check_sdist(release.IN_SDIST - left_out | more)
