"""The pages of docs/ as blocks of code, and a block of a console as commands."""

import dataclasses
import re
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        language: What follows the opening fence.
        text: What is between the fences.
        page: Path of the page.
        line: Number of its first line in the page, from 1.
    """

    language: str
    text: str
    page: Path
    line: int

    @property
    def file(self):
        """Name of the file that the block is to be saved as."""
        named = re.match(r"# ([\w.]+\.py)\n", self.text)
        return named and named[1]

    def compiled(self):
        """Compile it as a file in the current directory, with the line numbers of the page.

        TensorFlow reads the source of functions, and tracebacks show it.
        """
        file = Path(f"{self.page.stem}-{self.line}.py").absolute()
        file.write_text("\n" * (self.line - 1) + self.text)
        return compile(file.read_text(), str(file), "exec")


def blocks_of(page):
    """Return the fenced blocks of a page, in order."""
    blocks, opened = [], None
    lines = page.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        if line.startswith("```") and opened is None:
            opened = number
        elif line == "```" and opened is not None:
            text = "".join(f"{line}\n" for line in lines[opened : number - 1])
            blocks.append(Block(lines[opened - 1][3:], text, page, opened + 1))
            opened = None
    assert opened is None, page
    return blocks


def console(block):
    """Yield every command of a console block, and the output that is shown for it."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command = re.match(r"(?:.*\\\n)*.*\n", part)
        assert command is not None
        yield command[0], part[command.end() :]
