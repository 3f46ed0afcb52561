"""Options of kernels for tests that build one without a model."""

from __future__ import annotations

from typing import Any


def kernel_options(name: str, **options: Any) -> Any:
    """Return validated options; a metric that they leave open is the diagonal one, for there is no model to choose by."""
    from bayesmesh.config.blocks import AUTO
    from bayesmesh.config.registry import component_path, read_options

    made = read_options(component_path("kernel", name))(**options)
    return made.model_copy(update={"metric": "diagonal"}) if getattr(made, "metric", "") == AUTO else made
