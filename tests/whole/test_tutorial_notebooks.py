"""The notebooks of the tutorials: cells are the blocks of the pages, which the pages' tests run."""

import os
import sys
from pathlib import Path

import pytest

from tests.helpers.repository import ROOT

pytestmark = pytest.mark.slow

DOCS = ROOT / "docs"


@pytest.mark.parametrize("page", sorted(DOCS.glob("tutorial-*.md")), ids=lambda page: page.stem)
def test_a_notebook_is_made_of_its_page(page, monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    import make_notebooks

    committed = (DOCS / "notebooks" / f"{page.stem}.ipynb").read_text(encoding="utf-8")
    assert committed == make_notebooks.notebook(page), "run: python docs/make_notebooks.py"
    assert f"/docs/notebooks/{page.stem}.ipynb" in page.read_text(encoding="utf-8")


def test_a_notebook_runs(tmp_path, monkeypatch):
    import nbclient
    import nbformat

    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    notebook = nbformat.read(DOCS / "notebooks" / "tutorial-database-to-flink.ipynb", 4)
    notebook.cells = [cell for cell in notebook.cells if not cell.source.startswith("%pip")]
    place = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=300, resources=place).execute()
    cells = (cell for cell in notebook.cells if cell.cell_type == "code")
    printed = "".join(output.get("text", "") for cell in cells for output in cell.outputs)
    assert "521 of 27,004 rows cannot be written" in printed
    assert printed.endswith("\n24276 EWR\n")
