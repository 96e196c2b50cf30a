"""What a pipeline consists of, for people who want to see it before it runs."""

from __future__ import annotations

import apache_beam as beam
from apache_beam.pipeline import AppliedPTransform, PipelineVisitor


def graph_of(pipeline: beam.Pipeline) -> dict[str, list[str]]:
    """Return the steps of a pipeline in order: by each outer step the names of those inside it."""
    steps = _Steps()
    pipeline.visit(steps)
    return steps.found


class _Steps(PipelineVisitor):
    """Collects the two outer levels of names."""

    def __init__(self) -> None:
        self.found: dict[str, list[str]] = {}

    def visit_transform(self, transform_node: AppliedPTransform) -> None:
        outer, _, inner = transform_node.full_label.partition("/")
        # A step without others inside is told by what it is, such as a GroupByKey.
        name = inner.partition("/")[0] or type(transform_node.transform).__name__
        inside = self.found.setdefault(outer, [])
        if name not in inside:
            inside.append(name)
