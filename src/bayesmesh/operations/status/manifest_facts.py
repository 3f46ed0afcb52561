"""status: read the manifests of chain groups, which are written when sampling has ended."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bayesmesh.config.blocks import SamplingSettings
from bayesmesh.errors import StoreError
from bayesmesh.store.sealed import read_sealed

__all__ = ["Manifest", "read_manifest"]

_REMEDY = "delete it and run the sample stage again, which keeps the draws and rewrites it"


@dataclasses.dataclass(frozen=True)
class Manifest:
    """How sampling of a chain group ended.

    Attributes:
        identity: identity of the chains.
        num_draws: draws per chain.
        rule: the stopping rule with its limit of draws; None without one.
        reason: why sampling stopped: ``met``, ``draws`` or ``seconds``; empty without a rule.
        written_at: seconds since the epoch.
    """

    identity: str
    num_draws: int
    rule: Mapping[str, Any] | None
    reason: str
    written_at: float

    def satisfies(self, sampling: SamplingSettings) -> bool:
        """Return whether the draws satisfy a configuration; a changed rule must be evaluated again."""
        if sampling.stop is None:
            return self.num_draws >= sampling.draws
        return self.rule == {**sampling.stop.model_dump(mode="json"), "draws": sampling.draws}


def read_manifest(path: Path) -> Manifest | None:
    """Return the facts of a manifest; None if it does not exist.

    Raises:
        StoreError: the manifest is damaged.
    """
    try:
        written_at = path.stat().st_mtime
    except FileNotFoundError:
        return None
    value = read_sealed(path, _REMEDY)
    try:
        # Manifests of the first release have no rule.
        stop = value.get("stop") or {}
        return Manifest(
            str(value["identity"]), int(value["num_draws"]), stop.get("rule"), str(stop.get("reason", "")), written_at
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise StoreError(f"{path}: is damaged: not the manifest of a chain group", _REMEDY) from error
