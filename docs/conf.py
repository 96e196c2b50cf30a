"""Configures the site that scripts/docs builds from these pages, which GitHub shows as well."""

import os
import re
import sys

from pygments.lexers.special import TextLexer

sys.path.insert(0, os.path.dirname(__file__))
import site_reference

project = "beam_tfrecord"
html_title = "beam_tfrecord"
copyright = "the authors of beam_tfrecord"
root_doc = "site/index"
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
]
html_theme = "furo"
html_theme_options = {"top_of_page_buttons": []}
templates_path = ["site/_templates"]
html_static_path = ["site/_static"]
html_favicon = "site/_static/favicon.svg"
html_extra_path = ["site/home"]
html_css_files = ["custom.css"]
html_js_files = [("search.js", {"defer": "defer"}), ("regions.js", {"defer": "defer"})]
exclude_patterns = ["**/DESIGN.md", "own_source", "site/_*", "site/home"]
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
# Of a block with prompts, the commands are copied, without prompts and output.
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
copybutton_line_continuation_character = "\\"
autodoc_typehints = "none"
strip_signature_backslash = True
smartquotes_action = "D"
# Names in backquotes, as docstrings have them, are links.
default_role = "py:obj"
python_maximum_signature_line_length = 80
REPOSITORY = "https://github.com/beam-tfrecord/beam-tfrecord/blob/main/"
TABS = re.compile(r"^<!-- tabs -->\n(.*?)^<!-- end of tabs -->$", re.DOTALL | re.MULTILINE)
SIGNATURE = re.compile(r"<dl>\n(<dd>.*?)</dl>", re.DOTALL)
NOTE = re.compile(r"^> \*\*Note:\*\* ?(.*(?:\n>.*)*)", re.MULTILINE)


def _tabs(match):
    """Return tabs of the parts that begin with a line in bold; a label is chosen on all pages."""
    _, *parts = re.split(r"^\*\*(.+)\*\*\n", match[1], flags=re.MULTILINE)
    tabs = [
        f":::{{tab-item}} {label}\n:sync: {label.lower()}\n\n{text.strip()}\n:::\n"
        for label, text in zip(parts[::2], parts[1::2], strict=True)
    ]
    return f"::::{{tab-set}}\n:sync-group: way\n\n{''.join(tabs)}::::"


def _note(match):
    lines = re.sub(r"^> ?", "", match[1], flags=re.MULTILINE)
    return f":::{{note}}\n{lines}\n:::"


def _for_the_site(app, name, source):
    """Make tabs and notes, and let links to files that are no pages lead to the repository."""
    text = NOTE.sub(_note, TABS.sub(_tabs, source[0]))
    text = re.sub(r"\]\(\.\./(?=[\w.])", f"]({REPOSITORY}", text)
    source[0] = text.replace("](own_source/)", f"]({REPOSITORY}docs/own_source)")


def _with_plurals(app, what, name, found, options, lines):
    lines[:] = map(site_reference.with_plurals, lines)


def _for_everyone(app, name, template, context, doctree):
    """Correct what screen readers stumble over, and load Mermaid on pages with a diagram."""
    tree = context["furo_navigation_tree"]
    context["furo_navigation_tree"] = tree.replace(
        'role="heading"', 'role="heading" aria-level="2"'
    )
    body = context.get("body", "").replace('<th class="head"></th>', "<td></td>")
    body = body.replace('<th class="head"><p></p></th>', "<td></td>")
    context["body"] = SIGNATURE.sub(_lines_of_signature, body)
    if 'class="highlight-mermaid' in body:
        app.add_js_file("mermaid/mermaid.tiny.js", loading_method="defer")
        app.add_js_file("diagrams.js", loading_method="defer")


def _lines_of_signature(match):
    lines = match[1].replace("<dd>", "<div>").replace("</dd>", "</div>")
    return f'<div class="sig-lines">{lines}</div>'


def setup(app):
    """Connect the above to Sphinx."""
    app.connect("builder-inited", lambda app: site_reference.write(app.srcdir))
    app.connect("source-read", _for_the_site)
    app.connect("autodoc-process-docstring", _with_plurals, 0)
    app.connect("html-page-context", _for_everyone, 900)
    app.connect("build-finished", site_reference.write_for_models)
    app.add_lexer("mermaid", TextLexer)
