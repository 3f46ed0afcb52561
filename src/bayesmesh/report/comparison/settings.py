"""Find the settings in which experiments differ, from the specifications that their jobs stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bayesmesh.config.sweep import value_text
from bayesmesh.files import JSON, read_json
from bayesmesh.store.layout import ExperimentLayout

_APART = ("title", "report")
"""Keys that change the pages alone."""

_TELLING = ("formula", "family", "function", "prior")
"""Keys that are shown even if some of the experiments have none, because their models differ."""


def differing_settings(layouts: Sequence[ExperimentLayout]) -> dict[str, list[str]]:
    """Return dotted key -> its value in each experiment, for the keys in which they differ.

    Raises:
        StoreError: a specification is damaged.
    """
    found = [_settings(layout) for layout in layouts]
    keys = dict.fromkeys(key for settings in found for key in settings)
    rows = {key: [value_text(each[key]) if each.get(key) is not None else "" for each in found] for key in keys}
    return {
        key: texts
        for key, texts in rows.items()
        if len(set(texts)) > 1 and (key.rpartition(".")[2] in _TELLING or all(key in each for each in found))
    }


def _settings(layout: ExperimentLayout) -> dict[str, JSON]:
    """Return dotted key -> value of the last specification of each stage; blocks within blocks stay whole."""
    found: dict[str, JSON] = {}
    for path in sorted(layout.spec("any").parent.glob("*.json"), key=lambda path: path.stat().st_mtime):
        config = read_json(path).get("config", {})
        for key, value in config.items() if isinstance(config, Mapping) else ():
            if isinstance(value, Mapping):
                found |= {f"{key}.{name}": inner for name, inner in value.items()}
            else:
                found[key] = value
    return {key: value for key, value in found.items() if key.partition(".")[0] not in _APART}
