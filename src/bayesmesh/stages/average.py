"""average: posterior predictive averages on the test rows, scored against single draws."""

from __future__ import annotations

from bayesmesh.averaging.average import average
from bayesmesh.errors import DataError
from bayesmesh.experiment.stages import StageSpec
from bayesmesh.ledger import Ledger
from bayesmesh.sampling.mesh import configure_jax
from bayesmesh.stages.context import model_class_and_options, shards_of
from bayesmesh.stages.files import experiment_layout
from bayesmesh.store.posterior import open_posterior

__all__ = ["run"]


def run(spec: StageSpec, ledger: Ledger, cores: int | None = None) -> str:
    """Average; returns a line for the log."""
    configure_jax(spec.settings("compute"), cores)
    layout = experiment_layout(spec)
    shards, data_spec = shards_of(spec)
    test_rows = shards.test_rows()
    if not test_rows:
        raise DataError(
            f"experiment '{spec.experiment}': key 'averaging': source {spec.config['data']['source']} has no test rows to score on",
            "remove the key averaging",
        )
    model_class, options = model_class_and_options(spec)
    with ledger.phase("average"):
        result = average(
            model_class(options, data_spec),
            data_spec,
            open_posterior(layout.posterior),
            test_rows,
            spec.settings("averaging"),
            layout,
        )
    return (
        f"accuracy {result['single_accuracy']:.4f} of single draws, {result['average_accuracy']:.4f} of their average"
    )
