"""Build the sections on time, data and settings, with free-form JSON (audit, manifest, versions) as rows of a table."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from bayesmesh.analyses.figures import formats
from bayesmesh.report.times import (
    AROUND,
    BESIDE,
    ORDER,
    SAMPLING,
    WAITING,
    Phase,
    TimeSpent,
    jobs_of,
    sampling_seconds,
    work_seconds,
)

MAX_JOBS = 24

_NOT_IN_BARS = (WAITING, *BESIDE)


def build_timing(time: TimeSpent) -> dict[str, Any] | None:
    """Return the content of the section on time; None if there are no phases, other attempts or missing jobs."""
    phases = time.phases
    if not phases and not time.others and not time.missing:
        return None
    jobs = jobs_of(phases)
    longest_first = sorted(jobs, key=lambda name: -work_seconds(jobs[name]))
    kept = [name for name in jobs if name in longest_first[:MAX_JOBS]]
    longest = max(map(work_seconds, jobs.values()), default=0.0) or 1.0
    colours = _colours(phases)
    return {
        "bars": [_bar(name, jobs[name], longest, colours) for name in kept],
        "full_bar": formats.duration(longest),
        "legend": list(colours.items()),
        "rows": [_row(phase) for name in kept for phase in jobs[name]],
        "sentence": _sentence(time),
        "num_left_out": len(jobs) - len(kept),
        "others": [(each.job, each.reason, each.num_attempts, formats.duration(each.seconds)) for each in time.others],
    }


def _colours(phases: Sequence[Phase]) -> dict[str, int]:
    names = {phase.phase for phase in phases if phase.seconds and phase.phase not in _NOT_IN_BARS}
    ordered = [name for name in ORDER if name in names] + sorted(names - set(ORDER))
    # The seven longest phases get colours of their own; the others share the last colour, grey.
    total = {name: sum(p.seconds or 0.0 for p in phases if p.phase == name) for name in ordered}
    coloured = sorted(sorted(ordered, key=lambda name: -total[name])[:7], key=ordered.index)
    return {name: coloured.index(name) if name in coloured else 7 for name in ordered}


def _bar(job: str, phases: Sequence[Phase], longest: float, colours: Mapping[str, int]) -> dict[str, Any]:
    """Return the bar of a job: stacked segments (phase, percentage of the longest job, time, number of the colour)."""
    segments = [
        (
            f"{phase.phase} ({phase.detail})" if phase.detail else phase.phase,
            100 * phase.seconds / longest,
            formats.duration(phase.seconds),
            colours[phase.phase],
        )
        for phase in phases
        if phase.seconds and phase.phase not in _NOT_IN_BARS
    ]
    return {"job": job, "seconds": formats.duration(work_seconds(phases)), "segments": segments}


def _row(phase: Phase) -> tuple[str, ...]:
    rate = phase.gradients / phase.seconds if phase.gradients and phase.seconds else None
    counts = (formats.count(value) if value else "" for value in (phase.gradients, rate))
    sizes = (formats.size(value) if value else "" for value in (phase.bytes, phase.peak_memory_bytes))
    return phase.job, phase.phase, phase.detail, formats.duration(phase.seconds), *counts, *sizes, phase.device


def _sentence(time: TimeSpent) -> str:
    phases = time.phases

    def total(*names: str) -> float:
        return sum(phase.seconds or 0.0 for phase in phases if phase.phase in names)

    sampling = sampling_seconds(time)
    clauses = (
        ("of which {} for warmup and sampling", 0.0 if math.isnan(sampling) else sampling),
        ("{} for starting and ending jobs", total(*AROUND)),
        ("plus {} in the scheduler's queue", total(WAITING)),
    )
    missing = f" The times of {', '.join(time.missing)} are missing: no ledger has them." if time.missing else ""
    if not phases:
        return f"No job in the ledgers produced the present results.{missing}"
    parts = [f"The jobs that produced these results took {formats.duration(work_seconds(phases))}"]
    parts += [clause.format(formats.duration(seconds)) for clause, seconds in clauses if seconds]
    running = [p for p in phases if p.phase in SAMPLING and p.gradients and p.seconds]
    gradients, seconds = sum(p.gradients or 0 for p in running), sum(p.seconds or 0 for p in running)
    rate = (
        f" While chains move, a job evaluates {formats.count(gradients / seconds)} gradients per second on average."
        if seconds
        else ""
    )
    return ", ".join(parts) + "." + rate + missing


def dump_settings(config: Mapping[str, object]) -> str:
    """Return a configuration as YAML in its own order; values that JSON cannot represent become text.

    >>> dump_settings({"title": "Digits", "sampling": {"chains": 4}})
    'title: Digits\\nsampling:\\n  chains: 4\\n'
    """
    plain = json.loads(json.dumps(config, default=str))
    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=100)


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
