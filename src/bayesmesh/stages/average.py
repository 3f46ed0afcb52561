"""average: posterior predictive averages on the test rows, scored against single draws."""

from __future__ import annotations

from bayesmesh.analyses.averaging.average import average
from bayesmesh.planning.specs import StageSpec
from bayesmesh.running.ledger import Ledger
from bayesmesh.sampling.mesh import configure_jax
from bayesmesh.stages.context import in_file_of, shards_of
from bayesmesh.stages.experiment_files import experiment_layout
from bayesmesh.stages.table_receipts import sign
from bayesmesh.store.posterior_reader import open_posterior

__all__ = ["run"]


def run(spec: StageSpec, ledger: Ledger, cores: int | None = None) -> str:
    """Average; returns a line for the log."""
    configure_jax(spec.compute, cores)
    layout = experiment_layout(spec)
    shards, data_spec = shards_of(spec)
    model_class, options = spec.component("model")
    with in_file_of(spec), ledger.phase("average"):
        result = average(
            model_class(options, data_spec),
            data_spec,
            open_posterior(layout.posterior),
            shards.test_rows(),
            spec.settings("averaging"),
            layout,
        )
    sign(spec, [layout.averaging_scores], has_data=True)
    return (
        f"accuracy {result['single_accuracy']:.4f} of single draws, {result['average_accuracy']:.4f} of their average"
    )
