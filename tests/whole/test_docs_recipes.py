"""Recipes of docs/ for packages that the tests do not have: what they call of ours exists.

They are ``py`` blocks, which `test_docs` does not run.
"""

import ast
import functools
import inspect

import pytest

import beam_tfrecord as bt
from tests.helpers.pages import blocks_of
from tests.helpers.repository import ROOT

METHODS = ("tf", "keras", "torch", "grain", "of_shards", "batches")
BLOCKS = [
    pytest.param(block.text, id=f"{page.stem}-{block.line}")
    for page in sorted((ROOT / "docs").glob("*.md"))
    for block in blocks_of(page)
    if block.language == "py"
]


def calls(block):
    """Yield each call of a function of `bt`, or of a method of a dataset, with its signature."""
    dataset = inspect.signature(bt.load).return_annotation
    dataset = vars(inspect.getmodule(bt.load))[dataset] if isinstance(dataset, str) else dataset
    for node in ast.walk(ast.parse(block)):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="bt"), attr=name)):
                yield node, inspect.signature(getattr(bt, name))
            case ast.Call(func=ast.Attribute(attr=name)) if name in METHODS:
                yield node, inspect.signature(functools.partial(getattr(dataset, name), None))


@pytest.mark.parametrize("block", BLOCKS)
def test_calls_fit_their_functions(block):
    for call, signature in calls(block):
        signature.bind(*call.args, **{option.arg: None for option in call.keywords})


def test_the_recipes_are_found():
    assert len(BLOCKS) >= 6
    assert sum(len(list(calls(block.values[0]))) for block in BLOCKS) >= 8
