"""Write the receipts of tables, with the draws and data from which they were made."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from bayesmesh.planning.specs import StageSpec
from bayesmesh.store.receipts import write_receipts


def sign(spec: StageSpec, outputs: Iterable[Path], inputs: Iterable[Path]) -> None:
    """Write the receipts of a stage's outputs.

    Args:
        spec: specification of the stage.
        outputs: outputs of the stage; the files among them get a receipt.
        inputs: files that it read; for a posterior, its list of hashes.
    """
    write_receipts(Path(spec.results), f"{spec.stage} {spec.experiment}", outputs, inputs)
