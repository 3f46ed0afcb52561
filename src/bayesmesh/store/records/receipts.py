"""Receipts: records beside a table of the job that wrote it, its inputs, and the machine.

A receipt reveals a table that was edited by hand, or made from inputs other than those stored. It shows that a run wrote
a number; only recomputing it shows that the number is right.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

import pydantic

from bayesmesh.errors import StoreError
from bayesmesh.files import hash_file, read_json, write_json
from bayesmesh.store.machine import machine_name

ENDING = ".receipt.json"
"""Suffix that a receipt adds to the name of its file."""

_REMEDY = "run the stage that writes it again"


class Receipt(pydantic.BaseModel):
    """The record of a table.

    Attributes:
        sha256: hash of the table.
        inputs: file relative to the results -> sha256.
        job: job that wrote the table.
        machine: machine on which it ran.
        written_at: local time with offset.
        is_quick: whether the run was small, so that its numbers prove nothing.
    """

    model_config = pydantic.ConfigDict(frozen=True, strict=True, extra="forbid")

    sha256: str
    inputs: dict[str, str]
    job: str
    machine: str
    written_at: str
    is_quick: bool = False


def receipt_file(path: Path) -> Path:
    """Return the path of a file's receipt.

    >>> receipt_file(Path("mnist/diagnostics/summary.csv")).name
    'summary.csv.receipt.json'
    """
    return path.with_name(f"{path.name}{ENDING}")


def write_receipts(
    results: Path, job: str, outputs: Iterable[Path], inputs: Iterable[Path] = (), *, is_quick: bool = False
) -> None:
    """Write a receipt beside each existing output.

    Args:
        results: folder of all results; names of inputs are relative to it.
        job: stage or benchmark.
        outputs: files that the job wrote.
        inputs: files that it read; for a Zarr store, its list of hashes.
        is_quick: see `Receipt`.
    """
    used = {path.relative_to(results).as_posix(): hash_file(path) for path in inputs if path.is_file()}
    now = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    for path in filter(Path.is_file, outputs):
        receipt = Receipt(
            sha256=hash_file(path), inputs=used, job=job, machine=machine_name(), written_at=now, is_quick=is_quick
        )
        write_json(receipt_file(path), receipt.model_dump())


def check_receipt(results: Path, path: Path) -> Receipt:
    """Return the receipt of a file after comparing the file and its inputs with it.

    Raises:
        StoreError: the receipt is missing or damaged, or the file or an input has changed since.
    """
    if not receipt_file(path).is_file():
        raise StoreError(f"{path}: has no receipt, so the run that wrote it is unknown", _REMEDY)
    try:
        receipt = Receipt.model_validate(read_json(receipt_file(path)))
    except pydantic.ValidationError as error:
        raise StoreError(f"{receipt_file(path)}: is damaged: not a receipt", _REMEDY) from error
    if hash_file(path) != receipt.sha256:
        raise StoreError(f"{path}: not what the run stored: its sha256 differs from that in its receipt", _REMEDY)
    for name, value in receipt.inputs.items():
        used = results / name
        if not used.is_file() or hash_file(used) != value:
            raise StoreError(f"{path}: was made from another {name} than the stored one", _REMEDY)
    return receipt
