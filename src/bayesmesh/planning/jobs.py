"""Say what each job reads and writes, for planning, for checks before it starts, and for its seal."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import NamedTuple

from bayesmesh.config.declarations import declared
from bayesmesh.planning.specs import LATER, StageSpec
from bayesmesh.store.layout import group_name
from bayesmesh.store.receipts import receipt_file
from bayesmesh.store.seals import seal_file


class Job(NamedTuple):
    """One job of a stage.

    Attributes:
        name: such as ``diagnose`` or ``sample-group-000``.
        owner: folder of its seal: the experiment, or the dataset and its split.
        results: folder of results.
        inputs: results of other jobs that it reads.
        outputs: files and folders that it writes.
        declared: the output by which Snakemake knows the job.
    """

    name: str
    owner: str
    results: Path
    inputs: tuple[Path, ...]
    outputs: tuple[Path, ...]
    declared: Path

    @property
    def seal(self) -> Path:
        """The record of the job's last run."""
        return seal_file(self.results, self.owner, self.name)

    @property
    def lock(self) -> Path:
        """The lock that the job holds while it runs."""
        return self.seal.with_name(f".{self.name}.lock")


def job_of(spec: StageSpec, group: str = "") -> Job:
    """Return the job of a specification; for `sample`, of one chain group."""
    results, stage = Path(spec.results), spec.stage
    name = f"{stage}-{group}" if group else stage
    if stage in ("fetch", "shard"):
        data = spec.data_layout
        if stage == "fetch":
            outputs: tuple[Path, ...] = (data.fetched, data.records)
            inputs: tuple[Path, ...] = ()
            folder = data.folder
        else:
            outputs, inputs = (data.sharded, data.shards, data.shards.with_suffix(".sha256")), (data.fetched,)
            folder = data.sharded.parent
        return Job(name, folder.relative_to(results).as_posix(), results, inputs, outputs, outputs[0])
    inputs, outputs = _files_of(spec, group)
    return Job(name, spec.experiment, results, inputs, (*outputs, *_receipts(spec, outputs)), outputs[0])


def _files_of(spec: StageSpec, group: str) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Return inputs and outputs of a job of an experiment."""
    layout, stage = spec.layout, spec.stage
    if stage in LATER:
        analysis = declared(LATER[stage])
        read = (_read_by_analysis(each, analysis.reads) for each in (spec, *map(spec.of, spec.others)))
        return tuple(itertools.chain(*read)), tuple(analysis.files(layout.folder).values())
    if stage == "diagnose":
        return (layout.posterior,), (layout.summary, layout.verdict)
    sharded = spec.data_layout.sharded
    if stage == "compile":
        return (sharded,), (layout.audit,)
    if stage == "sample":
        return (sharded, layout.audit), (layout.sampled(group),)
    manifests = tuple(layout.sampled(group_name(g)) for g in range(spec.sampling.chain_groups))
    if stage == "assemble":
        return (*manifests, sharded), (layout.posterior, layout.posterior_hashes)
    asked = [declared(key) for key in LATER.values() if spec.config.get(key) is not None]
    made = itertools.chain(*(each.files(layout.folder).values() for each in asked))
    before = (sharded, layout.audit, *manifests, layout.posterior, layout.summary, layout.verdict, *made)
    return before, (layout.page, layout.ledger)


def _read_by_analysis(spec: StageSpec, words: tuple[str, ...]) -> list[Path]:
    return spec.layout.read_by(words, spec.data_layout if "data" in words else None)


def _receipts(spec: StageSpec, outputs: tuple[Path, ...]) -> list[Path]:
    """Return the receipts that a job writes beside its tables."""
    tables = set(spec.layout.tables) if spec.stage not in LATER else set(outputs)
    return [receipt_file(path) for path in outputs if path in tables]
