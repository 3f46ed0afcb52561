"""Render the pages of benchmarks and claims."""

from pathlib import Path

TEMPLATES = Path(__file__).resolve().parent / "templates"
"""Templates of these pages; shared templates are in `report`."""
