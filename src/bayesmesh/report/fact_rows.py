"""Convert free-form JSON (audit, manifest, versions) to rows of a table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from bayesmesh.analyses.figures import formats

Fact = tuple[str, str]
"""A name and a value, as text."""


MAX_FACTS = 200
MAX_ITEMS = 20
MAX_TEXT = 300


def list_facts(found: Mapping[str, object], prefix: str = "") -> list[Fact]:
    """Return the leaves of nested mappings as names and readable values.

    The name determines the unit. Names that end in ``_seconds`` or ``_s`` are durations; names with ``bytes``, and
    numbers directly below ``memory``, are sizes; names with ``flop`` are counts of operations. The rest of a
    mapping is left out after `MAX_FACTS` leaves, and the rest of a list after `MAX_ITEMS` mappings.

    Args:
        found: the mapping.
        prefix: text before each name.

    >>> list_facts({"segment": {"compile_seconds": 2.5, "num_equations": 412, "temp_bytes": 2048, "devices": ["cpu:0"]}})
    [('segment · compile', '2.5 s'), ('segment · num equations', '412'), ('segment · temp', '2.0 KiB'), ('segment · devices', 'cpu:0')]
    """
    facts: list[Fact] = []
    for key, value in found.items():
        if len(facts) >= MAX_FACTS:
            facts.append(("and more", "see the file"))
            break
        if isinstance(value, Mapping) and value:
            facts.extend(list_facts(value, f"{prefix}{_spaced(str(key))} · "))
        elif isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
            for position, item in enumerate(value[:MAX_ITEMS]):
                facts.extend(list_facts(item, f"{prefix}{_spaced(str(key))} {position + 1} · "))
            if len(value) > MAX_ITEMS:
                facts.append((f"{prefix}{_spaced(str(key))}", f"{len(value) - MAX_ITEMS} more: see the file"))
        else:
            name, text = _leaf(str(key), value, prefix)
            facts.append((prefix + name, text))
    return facts


def tabulate_facts(found: object) -> dict[str, list[Any]]:
    """Return a mapping of mappings as columns and rows (name, cells); no rows for any other value.

    >>> tabulate_facts({"warmup": {"compile_seconds": 6.8}, "sample": {"compile_seconds": 8.0, "cache": "cold"}})
    {'columns': ['compile', 'cache'], 'rows': [('warmup', ['6.8 s', '']), ('sample', ['8.0 s', 'cold'])]}
    """
    if not isinstance(found, Mapping) or not all(isinstance(item, Mapping) for item in found.values()):
        return {"columns": [], "rows": []}
    facts = {str(name): dict(list_facts(item)) for name, item in found.items()}
    columns = list(dict.fromkeys(column for cells in facts.values() for column in cells))
    return {"columns": columns, "rows": [(name, [cells.get(c, "") for c in columns]) for name, cells in facts.items()]}


def _leaf(key: str, value: object, prefix: str) -> Fact:
    if isinstance(value, bool):
        return _spaced(key), "yes" if value else "no"
    if isinstance(value, (int, float)):
        return _number(key, value, prefix)
    if value is None:
        return _spaced(key), formats.NOT_RECORDED
    if isinstance(value, (list, Mapping)):
        value = ", ".join(map(str, value)) or "none"
    text = str(value)
    return _spaced(key), text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]} … ({len(text):,} characters)"


def _number(key: str, value: float, prefix: str) -> Fact:
    lower = key.lower()
    if lower.endswith(("_seconds", "_s")) or lower == "seconds":
        return _spaced(re.sub(r"_(seconds|s)$", "", key)), formats.duration(value)
    if "bytes" in lower or prefix.endswith("memory · "):
        return _spaced(re.sub(r"_bytes$", "", key)), formats.size(value)
    if "flop" in lower:
        return _spaced(key), formats.quantity(value)
    return _spaced(key), formats.count(value) if isinstance(value, int) else formats.real(value)


def _spaced(key: str) -> str:
    return key.replace("_", " ")
