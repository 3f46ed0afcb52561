"""Receipts: beside a table, what its job wrote, out of which files, on which machine.

A table that was edited by hand is not the one that its receipt names, and one that was made from other draws than are
stored names other inputs. Receipts say that a number came out of a run; that the run computed it is checked
by computing it again (`bayesmesh.reproduction.claims`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from bayesmesh.errors import StoreError
from bayesmesh.files import hash_file, read_json, write_json
from bayesmesh.running.machine import machine_name

ENDING = ".receipt.json"
"""Of a receipt's name, behind the name of its file."""

_REMEDY = "run the stage that writes it again"


class Receipt(NamedTuple):
    """What a job said of a file.

    Attributes:
        sha256: of the file.
        inputs: file below the results -> sha256.
        job: what wrote it.
        machine: what it ran on.
        written_at: local time with offset.
        is_quick: whether sizes were small, so that the numbers are no evidence.
    """

    sha256: str
    inputs: Mapping[str, str]
    job: str
    machine: str
    written_at: str
    is_quick: bool = False


def receipt_file(path: Path) -> Path:
    """Return where the receipt of a file lies.

    >>> receipt_file(Path("mnist/diagnostics/summary.csv")).name
    'summary.csv.receipt.json'
    """
    return path.with_name(f"{path.name}{ENDING}")


def write_receipts(
    results: Path, job: str, outputs: Iterable[Path], inputs: Iterable[Path] = (), *, is_quick: bool = False
) -> None:
    """Write a receipt beside each output that is there.

    Args:
        results: folder of results; names of inputs are relative to it.
        job: stage or benchmark.
        outputs: files that the job wrote.
        inputs: files that it read; of a Zarr store, its list of hashes.
        is_quick: see `Receipt`.
    """
    used = {path.relative_to(results).as_posix(): hash_file(path) for path in inputs if path.is_file()}
    about = {
        "job": job,
        "is_quick": is_quick,
        "machine": machine_name(),
        "written_at": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }
    for path in outputs:
        if path.is_file():
            write_json(receipt_file(path), {**about, "inputs": used, "sha256": hash_file(path)})


def check_receipt(results: Path, path: Path) -> Receipt:
    """Return the receipt of a file, after holding file and inputs to it.

    Raises:
        StoreError: there is none, it is damaged, the file is not as it was written, or an input is another by now.
    """
    if not receipt_file(path).is_file():
        raise StoreError(f"{path}: has no receipt, so that nothing says which run wrote it", _REMEDY)
    receipt = _read(receipt_file(path))
    if hash_file(path) != receipt.sha256:
        raise StoreError(f"{path}: not what the run stored: its sha256 is not the one of its receipt", _REMEDY)
    for name, value in receipt.inputs.items():
        used = results / name
        if not used.is_file() or hash_file(used) != value:
            raise StoreError(f"{path}: was made from another {name} than is stored", _REMEDY)
    return receipt


def _read(path: Path) -> Receipt:
    value = read_json(path)
    wanted = set(Receipt._fields)
    needed = wanted - set(Receipt._field_defaults)
    if not isinstance(value, dict) or not needed <= set(value) <= wanted or not isinstance(value["inputs"], dict):
        raise StoreError(f"{path}: is damaged: not a receipt", _REMEDY)
    return Receipt(**value)
