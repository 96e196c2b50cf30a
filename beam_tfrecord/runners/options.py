"""Beam's options, asked often."""

from __future__ import annotations

from typing import Any, TypeVar

from apache_beam.options.pipeline_options import PipelineOptions

V = TypeVar("V", bound=PipelineOptions)


class Options(PipelineOptions):
    """Options that parse the command line once for each kind of view.

    Beam asks for a view several times a step, and parses all words for each: a quarter of the time
    that a small pipeline takes to start. All views share their values, so one of each will do.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # Beam's own way to set an attribute takes it for an option.
        object.__setattr__(self, "_views", {})

    def view_as(self, cls: type[V]) -> V:
        """Return the view of a kind, always the same one."""
        views: dict[type[PipelineOptions], Any] = self._views
        if cls not in views:
            views[cls] = super().view_as(cls)
        view: V = views[cls]
        return view
