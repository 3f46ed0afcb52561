"""verify: hash everything that experiments stored, and name damaged files."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path

from bayesmesh.config.declarations import list_analyses
from bayesmesh.data.shards import Shards
from bayesmesh.errors import ConfigError, StoreError
from bayesmesh.files import read_json
from bayesmesh.planning.plan import Plan
from bayesmesh.planning.specs import dataset_name, split_name
from bayesmesh.store.hashes import check_hashes
from bayesmesh.store.layout import DataLayout, ExperimentLayout, process_folder
from bayesmesh.store.manifests import missing_draws, read_manifest
from bayesmesh.store.markers import marker_names, read_markers
from bayesmesh.store.receipts import ENDING, check_receipt, receipt_file
from bayesmesh.store.sealed import read_sealed
from bayesmesh.store.segments import IDENTITY_REMEDY, ChainStore

_GROUP = re.compile(r"^group-\d{3,}")


def run(arguments: argparse.Namespace) -> int:
    """Check one experiment, or all of the configuration with stored results; return the exit code."""
    if arguments.experiment is None:
        plan = Plan()
        layouts = [layout for each in plan.experiments if _is_stored(layout := plan.layout(each))]
    else:
        layouts = [_find_experiment(arguments.experiment, "results")]
    num_damaged = 0
    for layout in layouts:
        lines = list(damage_of(layout))
        for line in lines:
            print(line)
        print(f"{layout.folder}: {f'{len(lines)} damaged' if lines else 'everything is as it was written'}")
        num_damaged += len(lines)
    if not layouts:
        print("nothing to check: no experiment has chains or a posterior yet")
    return StoreError.exit_code if num_damaged else 0


def _find_experiment(name: str, results: str) -> ExperimentLayout:
    """Return the layout of an experiment given by its name or its folder.

    Raises:
        ConfigError: nothing is stored under that name.
    """
    folder = Path(name) if "/" in name else Path(results, name)
    layout = ExperimentLayout(folder.parent, folder.name)
    if not name or len(name) > 4096 or not os.path.isdir(folder) or not _is_stored(layout):
        raise ConfigError(
            f"{name}: has no chains and no posterior",
            "name an experiment that has run, or its folder: bayesmesh verify results/NAME",
        )
    return layout


def _is_stored(layout: ExperimentLayout) -> bool:
    """Return whether an experiment has chains or a posterior."""
    return layout.chains.is_dir() or layout.posterior.is_dir()


def damage_of(layout: ExperimentLayout) -> Iterator[str]:
    """Yield one line per missing, changed or unreadable file of the data, chains, posterior and tables.

    Files are hashed in pieces; memory is bounded by one decoded dataset. Results that were never made are not damage.
    """
    datasets: dict[Path, DataLayout] = {}
    for identity in sorted(p for p in layout.chains.glob("*") if p.is_dir()):
        num_processes = yield from _record(identity / "identity.json", layout.results, datasets)
        groups = sorted(p for p in identity.iterdir() if p.is_dir() and _GROUP.match(p.name))
        for group in groups:
            yield from _chains(group)
        yield from _processes(identity, groups, num_processes)
    for manifest in sorted(layout.chains.glob("group-*.json")):
        yield from _manifest(manifest, layout)
    if layout.audit.exists():
        yield from _complaint(read_sealed, layout.audit)
    for data in datasets.values():
        yield from _data(data)
    yield from _posterior(layout)
    yield from _tables(layout)


def _record(path: Path, results: Path, datasets: dict[Path, DataLayout]) -> Generator[str, None, int]:
    """Check an identity's record and add its dataset to `datasets`; return the number of processes per group."""
    try:
        config = read_sealed(path, IDENTITY_REMEDY)["config"]
        found = DataLayout(results, dataset_name(config["data"]), split_name(config["data"]))
        datasets[found.shards] = found
        return int(config["compute"].get("processes", 1))
    except StoreError as error:
        yield error.message
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        yield f"{path}: is damaged: {error!r}"
    return 1


def _chains(folder: Path) -> Iterator[str]:
    """Check one chain group without writing."""
    about = folder / "store.json"
    if not about.is_file():
        yield f"{about}: is missing"
        return
    try:
        yield from ChainStore(folder, 1, {"identity": folder.parent.name}).damage()
    except StoreError as error:
        yield error.message


def _processes(identity: Path, folders: Sequence[Path], num_processes: int) -> Iterator[str]:
    """Check that every group with commits has one folder per process."""
    for group in sorted({_GROUP.findall(folder.name)[0] for folder in folders if marker_names(folder)}):
        for process in range(num_processes):
            folder = process_folder(identity / group, process)
            if not folder.is_dir():
                yield f"{folder}: is missing, although {num_processes} processes made the draws of {group}"


def _manifest(path: Path, layout: ExperimentLayout) -> Iterator[str]:
    """Compare the manifest of a group with the folders of its processes."""
    try:
        manifest = read_manifest(path)
        group = layout.folder / manifest.folder
        for process in range(manifest.num_processes):
            folder = process_folder(group, process)
            if not folder.is_dir():
                yield f"{path}: names {folder}, which is missing"
            elif group.parent.name != manifest.identity:
                yield f"{path}: is damaged: {folder} is not of identity {manifest.identity}"
            else:
                markers = read_markers(folder)
                line = missing_draws(path, manifest, folder, markers[-1] if markers else None)
                yield from [line] if line else []
    except StoreError as error:
        yield error.message


def _complaint(check: Callable[..., object], *arguments: object) -> Iterator[str]:
    """Yield the message of a check that finds damage."""
    try:
        check(*arguments)
    except StoreError as error:
        yield error.message


def _data(data: DataLayout) -> Iterator[str]:
    """Check manifests and shards of a dataset; shards of earlier versions have no list of hashes."""
    for path in (data.fetched, data.sharded):
        yield from _complaint(read_sealed, path)
    if data.shards.with_suffix(".sha256").exists():
        yield from check_hashes(data.shards)
    yield from _complaint(lambda: Shards(data.shards).verify())


def _posterior(layout: ExperimentLayout) -> Iterator[str]:
    """Check the posterior, and that each of its chain groups exists as long as the folder of its identity does."""
    if not layout.posterior.exists():
        if layout.posterior_hashes.exists():
            yield f"{layout.posterior}: is missing, although {layout.posterior_hashes} lists its files"
        return
    yield from check_hashes(layout.posterior)
    about = layout.posterior / "zarr.json"
    try:
        groups = [layout.folder / name for name in read_json(about)["attributes"].get("groups", [])]
    except StoreError as error:
        yield error.message
    except (AttributeError, KeyError, TypeError) as error:
        yield f"{about}: is damaged: {error!r}"
    else:
        for group in groups:
            if group.parent.is_dir() and not group.is_dir():
                yield f"{group}: is missing, although its draws are in {layout.posterior}"


def _tables(layout: ExperimentLayout) -> Iterator[str]:
    """Compare every table with its receipt: the hash of the table and the hashes of its inputs."""
    receipts = layout.folder.rglob(f"*{ENDING}")
    signed = {path.with_name(path.name.removesuffix(ENDING)) for path in receipts}
    of_analyses = (path for each in list_analyses() for path in each.files(layout.folder).values())
    tables = [*layout.tables, *(path for path in of_analyses if path.is_file())]
    for path in sorted(signed | {path for path in tables if path.exists()}):
        if not path.is_file():
            yield f"{path}: is missing, although {receipt_file(path)} exists"
        elif not receipt_file(path).is_file():
            yield f"{receipt_file(path)}: is missing, so the run that wrote {path} is unknown"
        else:
            yield from _complaint(check_receipt, layout.results, path)
