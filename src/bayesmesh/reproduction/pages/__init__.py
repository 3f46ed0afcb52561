"""Render the pages of benchmarks and claims."""

from pathlib import Path

__all__ = ["TEMPLATES"]

TEMPLATES = Path(__file__).resolve().parent / "templates"
"""Of these pages; what all pages share lies with the report's."""
