"""Determine what each job reads and writes, for planning, for checks before it starts, and for its seal."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from bayesmesh.config.declarations import AnalysisDeclaration
from bayesmesh.store.layout import DataLayout, ExperimentLayout, group_name
from bayesmesh.store.records.files import InputFiles
from bayesmesh.store.records.seals import seal_file
from bayesmesh.workflow.flow import analysis_of
from bayesmesh.workflow.specs import StageSpec

ASIDE = ".aside"
"""What is added to the name of a record that is set aside, see `bayesmesh.workflow.reruns`."""


class Job(NamedTuple):
    """One job of a stage.

    Attributes:
        name: such as ``diagnose`` or ``sample-group-000``.
        owner: folder of its seal: the experiment, or the dataset and its split.
        results: folder of results.
        inputs: results of other jobs that it reads.
        outputs: files and folders that it writes.
        declared: the output by which Snakemake knows the job.
        files: files of the user that it reads.
    """

    name: str
    owner: str
    results: Path
    inputs: tuple[Path, ...]
    outputs: tuple[Path, ...]
    declared: Path
    files: InputFiles = InputFiles({})

    @property
    def seal(self) -> Path:
        """The record of the job's last run."""
        return seal_file(self.results, self.owner, self.name)

    @property
    def aside(self) -> Path:
        """The same while the job is to run again."""
        return self.seal.with_name(f"{self.seal.name}{ASIDE}")

    @property
    def log(self) -> Path:
        """The output of its last attempt."""
        return self.results / self.owner / "logs" / f"{self.name}.log"

    @property
    def is_sampling(self) -> bool:
        """Whether it extends chains, which have locks and markers of their own."""
        return self.name.startswith("sample-")

    @property
    def lock(self) -> Path:
        """The lock that the job holds while it runs."""
        return self.seal.with_name(f".{self.name}.lock")


def data_outputs(data: DataLayout) -> dict[str, tuple[Path, ...]]:
    """Return job -> files and folders that it writes, beginning with the one by which Snakemake knows the job."""
    return {
        "fetch": (data.fetched, data.records),
        "shard": (data.sharded, data.shards, data.shards.with_suffix(".sha256")),
    }


def experiment_outputs(
    layout: ExperimentLayout, groups: Iterable[str] = (), analyses: Iterable[AnalysisDeclaration] = ()
) -> dict[str, tuple[Path, ...]]:
    """Return the same for an experiment with these chain groups and analyses."""
    return {
        "compile": (layout.audit,),
        **{f"sample-{group}": (layout.sampled(group),) for group in groups},
        "assemble": (layout.posterior_hashes, layout.posterior),
        "diagnose": (layout.summary, layout.verdict, layout.verdicts, layout.efficiency),
        **{each.verb: tuple(each.files(layout.folder).values()) for each in analyses},
        "report": (layout.page, layout.ledger),
    }


def job_of(spec: StageSpec, group: str = "") -> Job:
    """Return the job of a specification; for `sample`, of one chain group."""
    results, stage = Path(spec.results), spec.stage
    if stage in ("fetch", "shard"):
        data = spec.data_layout
        outputs, inputs = data_outputs(data)[stage], (data.fetched,) if stage == "shard" else ()
        owner, files = outputs[0].parent.relative_to(results).as_posix(), InputFiles({})
        if stage == "fetch":
            files = spec.input_files()
        return Job(stage, owner, results, inputs, outputs, outputs[0], files)
    name, analysis = f"{stage}-{group}" if group else spec.word, analysis_of(stage)
    outputs = experiment_outputs(spec.layout, [group] if group else [], [analysis] if analysis else [])[name]
    return Job(name, spec.experiment, results, _inputs(spec), outputs, outputs[0])


def _inputs(spec: StageSpec) -> tuple[Path, ...]:
    """Return what a job of an experiment reads."""
    layout, stage = spec.layout, spec.stage
    if (analysis := analysis_of(stage)) is not None:
        specs = (spec, *map(spec.of, spec.others))
        return tuple(file for each in specs for file in read_by_analysis(each, analysis))
    if stage == "diagnose":
        return (layout.posterior,)
    sharded = spec.data_layout.sharded
    if stage == "compile":
        return (sharded,)
    if stage == "sample":
        return (sharded, layout.audit)
    manifests = tuple(layout.sampled(group_name(g)) for g in range(spec.sampling.chain_groups))
    if stage == "assemble":
        return (*manifests, sharded)
    made = (file for each in spec.analyses for file in each.files(layout.folder).values())
    return (sharded, layout.audit, *manifests, layout.posterior, layout.summary, layout.verdict, *made)


def read_by_analysis(spec: StageSpec, analysis: AnalysisDeclaration) -> list[Path]:
    """Return the files of an experiment that an analysis reads by `Analysis.reads`; of a refit, also the verdict."""
    is_refit = bool(spec.config.get("data", {}).get("left_out"))
    words = list(dict.fromkeys([*analysis.reads, *(["verdict"] if is_refit else [])]))
    return spec.layout.read_by(words, spec.data_layout if "data" in words else None)
