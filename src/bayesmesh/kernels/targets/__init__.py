"""Targets other than models: plain functions, and any target at another temperature."""

from __future__ import annotations

from bayesmesh.kernels.targets.function import FunctionTarget
from bayesmesh.kernels.targets.tempered import TemperedTarget

__all__ = ["FunctionTarget", "TemperedTarget"]
