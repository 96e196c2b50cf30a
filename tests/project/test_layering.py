"""What importing a module must not load: Beam and TensorFlow below, nearly nothing on top."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = ("apache_beam", "tensorflow")

# These may import Beam when they are imported; a module not named here is a lower layer.
UPPER_LAYERS = {
    "beam_tfrecord.rows.beam",
    "beam_tfrecord.exchange.write_steps",
    "beam_tfrecord.jobs.api",
    "beam_tfrecord.jobs.compose",
    "beam_tfrecord.jobs.export",
    "beam_tfrecord.jobs.statistics_job",
    "beam_tfrecord.preprocess.operations",
    "beam_tfrecord.preprocess.fit_and_apply",
    "beam_tfrecord.publish.last_step",
    "beam_tfrecord.testing",
    "beam_tfrecord.transforms.kept_rows",
    "beam_tfrecord.transforms.map_and_split",
    "beam_tfrecord.transforms.write",
    "beam_tfrecord.transforms.steps",
    "beam_tfrecord.transforms.read_batches",
    "beam_tfrecord.transforms.read",
    "beam_tfrecord.transforms.read_all",
    "beam_tfrecord.transforms.rows",
}


def _modules():
    """Return the names of all modules of the package, `__main__` left out: it runs."""
    found = []
    for path in sorted((ROOT / "beam_tfrecord").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return [name for name in found if not name.endswith("__main__")]


LOWER_LAYERS = [
    name
    for name in _modules()
    if name not in UPPER_LAYERS and not name.startswith("beam_tfrecord.runners")
    if name != "beam_tfrecord.frameworks.grain" or importlib.util.find_spec("grain")
]

# Imports each module in turn and tells which of the packages asked about it was first to load.
PROBE = """
import importlib, json, sys
modules, packages = json.loads(sys.argv[1])
loaded = {}
for module in modules:
    before = set(sys.modules)
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as cause:
        # Readers for packages that the tests do without are imported with those alone.
        loaded[module] = [] if cause.name == "torch" else [f"cannot be imported: {cause!r}"]
    except Exception as cause:
        loaded[module] = [f"cannot be imported: {cause!r}"]
    else:
        loaded[module] = [name for name in packages if name in set(sys.modules) - before]
print(json.dumps(loaded))
"""

# Runs the command line in this process and tells which of the packages it left loaded.
HELP_PROBE = """
import json, sys
from beam_tfrecord.cli.main import cli
packages = json.loads(sys.argv[1])
try:
    cli.main(["--help"], prog_name="beam-tfrecord")
except SystemExit as stop:
    assert not stop.code, stop.code
print("\\n" + json.dumps([name for name in packages if name in sys.modules]))
"""


def _python(code, *arguments):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _loaded_by(modules, packages):
    return json.loads(_python(PROBE, json.dumps([modules, packages])))


def test_lower_layers_load_neither_beam_nor_tensorflow():
    loaded = _loaded_by(LOWER_LAYERS, HEAVY)
    assert sorted(loaded) == sorted(LOWER_LAYERS)
    assert {name: found for name, found in loaded.items() if found} == {}


def test_importing_the_package_is_cheap():
    packages = (*HEAVY, "pyarrow", "numpy")
    assert _loaded_by(["beam_tfrecord"], packages) == {"beam_tfrecord": []}


def test_help_loads_nothing_heavy():
    if importlib.util.find_spec("beam_tfrecord.cli.main") is None:
        pytest.skip("there is no command line in this tree")
    told = _python(HELP_PROBE, json.dumps([*HEAVY, "pyarrow"]))
    assert told.startswith("Usage: beam-tfrecord")
    assert json.loads(told.splitlines()[-1]) == []
