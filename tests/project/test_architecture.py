"""The pages about the architecture and the design: drawing, modules and names are the tree's."""

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "beam_tfrecord"
# What all rooms use: words and plain data.
LOWEST = {"base", "options"}
PAGE = (ROOT / "docs" / "architecture.md").read_text()
DESIGNS = {page.parent: page.read_text() for page in PACKAGE.glob("*/DESIGN.md")}
MODULE = r"`((?:\w+/)*\w+\.(?:py|pyx|h|c))`"


def drawn():
    return set(re.findall(r"^ +(\w+) --> (\w+)$", PAGE, re.MULTILINE))


def imports():
    """Return the rooms that each room imports, in functions too."""
    rooms = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    found = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        room = path.relative_to(PACKAGE).parts[0]
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ImportFrom) or node.module is None or room not in rooms:
                continue
            names = [node.module]
            if node.module == "beam_tfrecord":
                names = [f"beam_tfrecord.{alias.name}" for alias in node.names]
            parts = [name.split(".") for name in names if name.startswith("beam_tfrecord.")]
            found[room] |= {part[1] for part in parts} & rooms - {room}
    return found


def below(room, edges):
    direct = {b for a, b in edges if a == room}
    return direct.union(*(below(b, edges) for b in direct))


def test_the_drawing_has_every_room_and_no_arrow_that_the_code_has_not():
    edges, found = drawn(), imports()
    rooms = {*found}.union(*found.values())
    assert {room for edge in edges for room in edge} == rooms - LOWEST
    assert [edge for edge in edges if edge[1] not in found[edge[0]]] == []
    upward = [(a, b) for a, of in found.items() for b in of - LOWEST - below(a, edges)]
    assert upward == []


def test_the_modules_and_names_on_the_pages_exist():
    wrong = []
    for room, text in [(PACKAGE, PAGE), *DESIGNS.items()]:
        for name, module in re.findall(rf"(?:`([\w.]+)`\s+\()?{MODULE}", text):
            files = [root / module for root in (room, PACKAGE, ROOT) if (root / module).exists()]
            last = name.split(".")[-1]
            if not files or not re.search(rf"\b{last}\b", files[0].read_text()):
                wrong.append((room.name, name, module))
    assert wrong == []
    assert len(DESIGNS) > 10
    stations = re.findall(r"^(\d+)\. ", PAGE, re.MULTILINE)
    assert [int(number) for number in stations] == [*range(1, 16)]
