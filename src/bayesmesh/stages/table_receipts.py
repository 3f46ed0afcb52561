"""Receipts of what stages write: their tables, and the draws and data that these were made of."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from bayesmesh.planning.specs import StageSpec
from bayesmesh.store.receipts import write_receipts

__all__ = ["sign"]


def sign(spec: StageSpec, outputs: Iterable[Path], inputs: Iterable[Path]) -> None:
    """Write the receipts of a stage's outputs.

    Args:
        spec: of the stage.
        outputs: what it wrote; files among it get a receipt.
        inputs: files that it read; of a posterior, its list of hashes.
    """
    write_receipts(Path(spec.results), f"{spec.stage} {spec.experiment}", outputs, inputs)
