"""Says why chains are sampled anew where there are others of the same experiment, which are kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bayesmesh.errors import StoreError
from bayesmesh.store.layout import ExperimentLayout
from bayesmesh.store.sealed import read_sealed

_NO_MATTER = {
    "sampling.draws",
    "sampling.segment_seconds",
    "sampling.grace_seconds",
    "sampling.on_changed_environment",
}
"""Keys that are recorded and are not part of a chain's identity."""


def explain_new_chains(layout: ExperimentLayout, identity: str, config: Mapping[str, Any], data: str) -> str:
    """Return one sentence for the log, empty where nothing was sampled before or the chains go on.

    Args:
        layout: paths of the experiment.
        identity: of the chains that are to be sampled.
        config: the stage's part of the configuration.
        data: fingerprint of the data.
    """
    folder = layout.identity(identity).parent
    if layout.identity_record(identity).exists() or not folder.is_dir():
        return ""
    others = sorted(
        (p for p in folder.iterdir() if p.name != identity and layout.identity_record(p.name).is_file()),
        key=lambda p: layout.identity_record(p.name).stat().st_mtime,
    )
    if not others:
        return ""
    newest = others[-1].name
    try:
        stored = read_sealed(layout.identity_record(newest), "delete the file")
    except StoreError:
        reason = "their record is damaged"
    else:
        reason = _reason(stored, config, data)
    return (
        f"chains are sampled anew: {reason}; those of identity {newest} are kept in {others[-1]}"
        " (`bayesmesh gc` removes what no configuration names)"
    )


def _reason(stored: Mapping[str, Any], config: Mapping[str, Any], data: str) -> str:
    before, now = dict(_flat(stored.get("config", {}))), dict(_flat(config))
    changed = [
        f"{key} was {before.get(key, 'not set')} and is {now.get(key, 'not set')}"
        for key in sorted(before.keys() | now.keys())
        if before.get(key) != now.get(key) and key not in _NO_MATTER and not key.startswith("sampling.stop")
    ]
    if "data" in stored and stored["data"] != data:
        changed.append("the data are others")
    # Everything else that decides draws is code.
    return ", ".join(changed) or "the code of the model, the kernel or the sampler is another"


def _flat(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested keys as dotted ones."""
    if not isinstance(value, Mapping):
        yield prefix, value
        return
    for key, item in value.items():
        yield from _flat(item, f"{prefix}.{key}" if prefix else str(key))
