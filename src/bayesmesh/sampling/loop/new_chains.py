"""Explain why new chains are sampled although the experiment already has others, which are kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bayesmesh.errors import StoreError
from bayesmesh.store.layout import ExperimentLayout
from bayesmesh.store.records.sealed import read_sealed

_NOT_IN_IDENTITY = {f"sampling.{k}" for k in ("draws", "segment_seconds", "grace_seconds", "on_changed_environment")}
"""Recorded keys that are not part of a chain's identity."""

EARLIER = "an earlier version of bayesmesh sampled them"


def explain_new_chains(layout: ExperimentLayout, identity: str, made_from: Mapping[str, Any]) -> str:
    """Return one sentence for the log; empty if nothing was sampled before, or if the chains continue.

    Args:
        layout: paths of the experiment.
        identity: identity of the chains to sample.
        made_from: the stage's part of the configuration in ``config``, the fingerprint of the ``data``, and ``draws``, the
            sampler's version.
    """
    records = sorted(layout.chains.glob("*/identity.json"), key=lambda path: path.stat().st_mtime)
    if not records or layout.identity_record(identity).exists():
        return ""
    try:
        reason = _reason(read_sealed(records[-1]), made_from)
    except StoreError:
        reason = "their record is damaged"
    newest = records[-1].parent
    return (
        f"chains are sampled anew: {reason}; those of identity {newest.name} are kept in {newest}"
        " (`bayesmesh gc` removes what no configuration names)"
    )


def _reason(stored: Mapping[str, Any], made_from: Mapping[str, Any]) -> str:
    before, now = dict(_flat(stored.get("config", {}))), dict(_flat(made_from["config"]))
    changed = [
        f"{key} was {before.get(key, 'not set')} and is {now.get(key, 'not set')}"
        for key in sorted(before.keys() | now.keys())
        if before.get(key) != now.get(key) and key not in _NOT_IN_IDENTITY and not key.startswith("sampling.stop")
    ]
    if "data" in stored and stored["data"] != made_from["data"]:
        changed.append("the data have changed")
    if stored.get("draws") != made_from["draws"]:
        changed.append(EARLIER)
    # Everything else that determines draws is code.
    return ", ".join(changed) or "the code of the model or the kernel has changed"


def _flat(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested mappings with dotted keys."""
    if not isinstance(value, Mapping):
        yield prefix, value
        return
    for key, item in value.items():
        yield from _flat(item, f"{prefix}.{key}" if prefix else str(key))
