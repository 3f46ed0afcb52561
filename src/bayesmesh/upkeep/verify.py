"""verify: hash everything that an experiment stored, and name what is damaged."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bayesmesh.data.shards import open_shards
from bayesmesh.errors import ConfigError, StoreError
from bayesmesh.experiment.stages import dataset_name, split_name
from bayesmesh.store.files import read_json
from bayesmesh.store.hashes import check_hashes
from bayesmesh.store.layout import DataLayout, ExperimentLayout
from bayesmesh.store.receipts import ENDING, check_receipt
from bayesmesh.store.segments import ChainStore

__all__ = ["damage_of", "find_experiment"]

_GROUP = re.compile(r"^group-\d{3,}")


def find_experiment(name: str, results: str) -> ExperimentLayout:
    """Return the files of an experiment that is given by its name or by its folder.

    Raises:
        ConfigError: nothing is stored under that name.
    """
    folder = Path(name) if "/" in name else Path(results, name)
    if (
        not name
        or len(name) > 4096
        or not os.path.isdir(folder)
        or not ((folder / "chains").is_dir() or (folder / "posterior.zarr").is_dir())
    ):
        raise ConfigError(
            f"{name}: holds no chains and no posterior",
            "give an experiment that was run, or its folder: bayesmesh verify results/NAME",
        )
    return ExperimentLayout(folder.parent, folder.name)


def damage_of(layout: ExperimentLayout) -> Iterator[str]:
    """Yield one line for everything that is missing, changed or unreadable: data, chains, posterior, tables.

    Memory is that of one decoded dataset; files are hashed piece by piece.
    """
    datasets: dict[Path, DataLayout] = {}
    for identity in sorted(p for p in layout.chains.glob("*") if p.is_dir()):
        yield from _record(identity / "identity.json", layout.results, datasets)
        for group in sorted(p for p in identity.iterdir() if p.is_dir() and _GROUP.match(p.name)):
            yield from _chains(group)
    for manifest in sorted(layout.chains.glob("group-*.json")):
        yield from _manifest(manifest, layout)
    for data in datasets.values():
        try:
            open_shards(data.shards).verify()
        except StoreError as error:
            yield error.message
    if layout.posterior.exists():
        yield from check_hashes(layout.posterior)
    yield from _tables(layout)


def _tables(layout: ExperimentLayout) -> Iterator[str]:
    """Hold every table to its receipt: its own hash, and those of what it was made of."""
    for receipt in sorted(layout.folder.rglob(f"*{ENDING}")):
        path = receipt.with_name(receipt.name.removesuffix(ENDING))
        try:
            if path.is_file():
                check_receipt(layout.results, path)
        except StoreError as error:
            yield error.message


def _record(path: Path, results: Path, datasets: dict[Path, DataLayout]) -> Iterator[str]:
    """Look at an identity's record, and note the data that its chains are about."""
    try:
        data = read_json(path)["config"]["data"]
        found = DataLayout(results, dataset_name(data), split_name(data))
        datasets[found.shards] = found
    except StoreError as error:
        yield error.message
    except (KeyError, TypeError) as error:
        yield f"{path}: is damaged: {error!r}"


def _chains(folder: Path) -> Iterator[str]:
    """Check one chain group; nothing is written."""
    about = folder / "store.json"
    if not about.is_file():
        yield f"{about}: is missing"
        return
    try:
        yield from ChainStore(folder, 1, {"identity": folder.parent.name}).damage()
    except StoreError as error:
        yield error.message


def _manifest(path: Path, layout: ExperimentLayout) -> Iterator[str]:
    try:
        value: Any = read_json(path)
        folder = layout.folder / value["folder"]
        if not folder.is_dir():
            yield f"{path}: names {folder}, which is gone"
    except StoreError as error:
        yield error.message
    except (KeyError, TypeError) as error:
        yield f"{path}: is damaged: {error!r}"
