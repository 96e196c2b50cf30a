"""Makes docs/notebooks/ from the tutorials, by jupytext: python docs/make_notebooks.py."""

import re
from pathlib import Path

import jupytext

DOCS = Path(__file__).parent
REPOSITORY = "https://github.com/beam-tfrecord/beam-tfrecord"
TUTORIALS = sorted(DOCS.glob("tutorial-*.md"))


def _cell(match):
    """Return a block as a cell of Python, if it is one that a notebook runs."""
    language, text = match.groups()
    if language == "console":
        commands = re.findall(r"^\$ ((?:.*\\\n)*.*\n)", text, re.MULTILINE)
        text = "".join(f"!{command}" for command in commands)
    elif language == "sh" and (installs := re.findall(r"^pip install.*\n", text, re.MULTILINE)):
        text = "".join(f"%{install}" for install in installs)
    elif language == "python":
        text = re.sub(r"^# (\w+\.py)\n", r"%%writefile \1\n", text)
    else:  # Jupytext would run a block of sh.
        return "" if language == "text" else f"```text\n{text}```"
    return f"```python\n{text}```"


def notebook(page):
    """Return the notebook of a page as text: its blocks without their output."""
    text = re.sub(r"^```(\w+)\n(.*?)^```$", _cell, page.read_text("utf-8"), flags=re.M | re.S)
    text = re.sub(r"\]\((?=[\w-]+\.md)", f"]({REPOSITORY}/blob/main/docs/", text)
    text = re.sub(r"\]\((?=[\w-]+\.jpg)", f"]({REPOSITORY}/raw/main/docs/", text)
    made = jupytext.reads(text, fmt="md")
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    made.metadata = {"kernelspec": kernel}
    for number, cell in enumerate(made.cells):
        cell.update(id=f"cell-{number}", metadata={})
    return jupytext.writes(made, fmt="ipynb")


if __name__ == "__main__":
    for page in TUTORIALS:
        target = DOCS / "notebooks" / f"{page.stem}.ipynb"
        target.parent.mkdir(exist_ok=True)
        target.write_text(notebook(page), encoding="utf-8")
