"""Options of kernels for tests that build one without a model."""

from __future__ import annotations

from typing import Any


def kernel_options(name: str, **options: Any) -> Any:
    """Return validated options; a metric that they leave open is the diagonal one, for there is no model to choose by."""
    from bayesmesh.config.blocks import AUTO
    from bayesmesh.config.registry import options_class

    made = options_class("kernel", name)(**options)
    return made.model_copy(update={"metric": "diagonal"}) if getattr(made, "metric", "") == AUTO else made


def kernels_of_any_target() -> list[str]:
    """Return the kernels that run on every target; the others need models of a kind, and have tests of their own."""
    from bayesmesh.config.registry import list_components, load_component

    return [name for name in list_components("kernel") if not load_component("kernel", name).needs_normal_units]
