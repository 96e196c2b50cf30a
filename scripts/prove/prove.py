"""Runs one of the long proofs of what the package promises, and keeps its result beside this file.

Each `prove_NAME.py` has a function `prove`, whose arguments are the options of the proof.
"""

from __future__ import annotations

import argparse
import ast
import datetime
import importlib
import importlib.metadata
import inspect
import json
import platform
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "results"
_PACKAGES = ("beam-tfrecord", "numpy", "pyarrow", "tensorflow", "tfx-bsl", "hypothesis")


def keep(name: str, found: dict[str, Any], seconds: float) -> None:
    """Write the result of a proof in place of the last one."""
    made = {
        "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
        "python": platform.python_version(),
        "versions": {package: importlib.metadata.version(package) for package in _PACKAGES},
        "seconds": round(seconds),
    }
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps(found | made, indent=1, ensure_ascii=False)
    (RESULTS / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def proofs() -> dict[str, str]:
    """Return what each proof is about, by its name, without their imports, which take long."""
    modules = {path.stem: ast.parse(path.read_text()) for path in sorted(HERE.glob("prove_*.py"))}
    return {
        name.removeprefix("prove_"): (ast.get_docstring(module) or "").splitlines()[0]
        for name, module in modules.items()
    }


def main() -> None:
    """Run one proof; it ends with an error where something does not hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parsers = parser.add_subparsers(dest="proof", required=True, metavar="PROOF")
    chosen = {name: parsers.add_parser(name, help=about) for name, about in proofs().items()}
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in chosen:
        parser.parse_args()  # says which proofs there are, and ends
    prove = importlib.import_module(f"prove_{name}").prove
    chosen[name].description = inspect.getdoc(prove)
    for option in inspect.signature(prove).parameters.values():
        told = f"default: {option.default:,}"
        chosen[name].add_argument(f"--{option.name}", type=int, default=option.default, help=told)
    options = vars(parser.parse_args())
    del options["proof"]
    begun = time.monotonic()
    found = prove(**options)
    keep(name, found, time.monotonic() - begun)
    print(json.dumps(found, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
