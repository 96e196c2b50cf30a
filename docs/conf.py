"""Configures the site that scripts/docs builds from these pages, which GitHub shows as well."""

import re

from pygments.lexers.special import TextLexer

project = "beam_tfrecord"
html_title = "beam_tfrecord"
copyright = "the authors of beam_tfrecord"
root_doc = "site/index"
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_click",
    "sphinx_copybutton",
    "sphinx_design",
]
html_theme = "furo"
exclude_patterns = ["**/DESIGN.md", "own_source"]
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
# A copied line has no prompt, and a copied block no output.
copybutton_prompt_text = r"\$ |>>> "
copybutton_prompt_is_regexp = True
autodoc_typehints = "none"
autosummary_generate = False
REPOSITORY = "https://github.com/beam-tfrecord/beam-tfrecord/blob/main/"


def _link_to_repository(app, name, source):
    """Let links to files that are no pages lead to the repository."""
    text = re.sub(r"\]\(\.\./(?=[\w.])", f"]({REPOSITORY}", source[0])
    source[0] = text.replace("](own_source/)", f"]({REPOSITORY}docs/own_source)")


def _plural_of_a_name(app, what, name, found, options, lines):
    """Let a letter follow a name in backquotes, as in plurals."""
    lines[:] = [re.sub(r"(?<![`\w])`([^`]+)`(?=\w)", r"``\1``\ ", line) for line in lines]


def setup(app):
    """Connect the above to Sphinx."""
    app.connect("source-read", _link_to_repository)
    app.connect("autodoc-process-docstring", _plural_of_a_name, 0)
    app.add_lexer("mermaid", TextLexer)
