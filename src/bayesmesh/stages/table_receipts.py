"""Receipts of what stages write: their tables, and the draws and data that these were made of."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from bayesmesh.planning.specs import StageSpec
from bayesmesh.stages.experiment_files import data_layout, experiment_layout
from bayesmesh.store.receipts import write_receipts

__all__ = ["sign"]


def sign(spec: StageSpec, outputs: Iterable[Path], *, inputs: Iterable[Path] = (), has_data: bool = False) -> None:
    """Write the receipts of a stage's outputs.

    Args:
        spec: of the stage.
        outputs: tables that it wrote.
        inputs: files that it read, beside the posterior.
        has_data: whether it also read the data.
    """
    read = [experiment_layout(spec).posterior_hashes, *inputs]
    if has_data:
        read.append(data_layout(spec).sharded)
    write_receipts(Path(spec.results), f"{spec.stage} {spec.experiment}", outputs, read)
