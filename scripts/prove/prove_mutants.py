"""Small changes of the code that publishes, exchanges, orders and encodes: do the tests notice?"""

from __future__ import annotations

import ast
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
_WHOLE = ["tests/whole/test_golden.py", "tests/whole/test_resume.py"]
# Code, and the tests of its promises.
_ROOMS = {
    "publish": [
        "tests/publish",
        "tests/jobs/test_warnings.py",
        "tests/whole/test_schema_limits.py",
        *_WHOLE,
    ],
    "exchange": ["tests/exchange", *_WHOLE],
    "records": ["tests/records", "tests/transforms", *_WHOLE],
    "loading/order.py": ["tests/dataset/test_format.py", "tests/dataset/test_order.py"],
}
_TIMEOUT_S = 300
_COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult}


def prove(*, mutants: int = 200, seed: int = 1) -> dict[str, Any]:
    """Return the share of mutants that a test notices, and each that none does, to look at."""
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as scratch:
        for name in ("beam_tfrecord", "tests", "conftest.py", "pyproject.toml", "docs", "scripts"):
            source, target = ROOT / name, Path(scratch, name)
            (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
        places = [
            (path, number, room)
            for room in _ROOMS
            for path in _modules(Path(scratch, "beam_tfrecord", room))
            for number, _ in enumerate(_mutations(ast.parse(path.read_text())))
        ]
        survivors, killed = [], 0
        for path, number, room in draw.sample(places, min(mutants, len(places))):
            code, change = _mutant(path, number)
            if _is_noticed(Path(scratch), code, path, _ROOMS[room]):
                killed += 1
            else:
                survivors.append(f"{path.relative_to(scratch)}:{change}")
                print("lives:", survivors[-1], file=sys.stderr, flush=True)
    tried = killed + len(survivors)
    share = round(killed / max(tried, 1), 3)
    return {"of": len(places), "tried": tried, "noticed": share, "survivors": sorted(survivors)}


def _modules(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(path.glob("*.py"))


def _mutant(path: Path, number: int) -> tuple[str, str]:
    """Return the code of a module with its mutation `number`, and where and what that is."""
    tree = ast.parse(path.read_text())
    for at, (node, change) in enumerate(_mutations(tree)):
        if at == number:
            line, before = node.lineno, ast.unparse(node)
            for field, value in change.items():
                setattr(node, field, value)
            what = f"{line}: {before:.60} -> {ast.unparse(ast.fix_missing_locations(node)):.60}"
            return ast.unparse(tree), what
    raise IndexError(number)


def _mutations(tree: ast.Module) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield every node that can be changed, with its changed fields."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARISONS:
            yield node, {"ops": [_COMPARISONS[type(node.ops[0])](), *node.ops[1:]]}
        elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            yield node, {"op": _OPERATORS[type(node.op)]()}
        elif isinstance(node, ast.BoolOp):
            yield node, {"op": ast.Or() if isinstance(node.op, ast.And) else ast.And()}
        elif isinstance(node, ast.If | ast.IfExp):
            yield node, {"test": ast.UnaryOp(ast.Not(), copy.deepcopy(node.test))}
        elif isinstance(node, ast.Constant) and type(node.value) in (int, bool):
            is_flag = isinstance(node.value, bool)
            yield node, {"value": not node.value if is_flag else node.value + 1}
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            yield node, {"value": ast.Constant(None)}


def _is_noticed(scratch: Path, code: str, path: Path, tests: list[str]) -> bool:
    whole = path.read_text()
    path.write_text(code)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not slow", *tests],
            cwd=scratch,
            env=os.environ | {"PYTHONPATH": str(scratch)},
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return True
    finally:
        path.write_text(whole)
    return done.returncode != 0
