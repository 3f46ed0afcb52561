"""Locate the files of a stage."""

from __future__ import annotations

from pathlib import Path

from bayesmesh.planning.specs import StageSpec, dataset_name, split_name
from bayesmesh.store.layout import DataLayout, ExperimentLayout


def experiment_layout(spec: StageSpec) -> ExperimentLayout:
    """Return the files of the spec's experiment."""
    return ExperimentLayout(Path(spec.results), spec.experiment)


def data_layout(spec: StageSpec) -> DataLayout:
    """Return the files of the spec's dataset; `fetch` has no split."""
    data = spec.config["data"]
    split = split_name(data) if "held_out_fraction" in data else ""
    return DataLayout(Path(spec.results), dataset_name(data), split)


def ledger_file(spec: StageSpec, job: str) -> Path:
    """Return the ledger file of a job; for shared data it lies beside the data."""
    if spec.stage in ("fetch", "shard"):
        return data_layout(spec).folder / "ledger" / f"{job}.jsonl"
    return experiment_layout(spec).ledger_part(job)
