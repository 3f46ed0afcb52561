"""The settings in which experiments differ, from their stored specifications."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from bayesmesh.files import write_json
from bayesmesh.report.comparison.comparison_settings import differing_settings
from bayesmesh.store.layout import ExperimentLayout


def stored(results: Path, name: str, *configs: dict[str, Any]) -> ExperimentLayout:
    layout = ExperimentLayout(results, name)
    for time, config in enumerate(configs):
        write_json(path := layout.spec(f"sample-{time}"), {"stage": "sample", "config": config})
        os.utime(path, (time, time))
    return layout


def test_only_settings_that_differ_are_listed_as_last_run(tmp_path: Path) -> None:
    shared = {"sampling": {"seed": 1, "draws": 100}, "title": "A", "report": {"caption": "of A"}}
    first = {"model": {"name": "glm", "formula": "y ~ x", "family": "normal", "prior_scale": 1.0}, **shared}
    other = {"model": {"name": "log_density", "function": "mine:density", "prior": {"a": "normal(0, 1)"}}, **shared}
    old = {**first, "sampling": {"seed": 7, "draws": 100}}
    layouts = [stored(tmp_path, "first", old, first), stored(tmp_path, "other", {**other, "title": "B"})]
    assert differing_settings(layouts) == {
        "model.name": ["glm", "log_density"],
        "model.formula": ["y ~ x", ""],
        "model.family": ["normal", ""],
        "model.function": ["", "mine:density"],
        "model.prior": ["", "{a: normal(0, 1)}"],
    }


def test_equal_settings_and_missing_specifications_make_no_table(tmp_path: Path) -> None:
    config = {"model": {"name": "glm", "formula": "y ~ x"}}
    assert differing_settings([stored(tmp_path, "a", config), stored(tmp_path, "b", config)]) == {}
    assert differing_settings([stored(tmp_path, "c"), stored(tmp_path, "d")]) == {}
