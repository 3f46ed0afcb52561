"""recommend: rankings of unwatched films with their uncertainty, and their held-out scores."""

from __future__ import annotations

from bayesmesh.analyses.recommendation.recommend import recommend
from bayesmesh.planning.specs import StageSpec
from bayesmesh.running.ledger import Ledger
from bayesmesh.sampling.mesh import configure_jax
from bayesmesh.stages.context import in_file_of, shards_of
from bayesmesh.stages.experiment_files import experiment_layout
from bayesmesh.stages.table_receipts import sign
from bayesmesh.store.posterior_reader import open_posterior

__all__ = ["run"]


def run(spec: StageSpec, ledger: Ledger, cores: int | None = None) -> str:
    """Recommend; returns a line for the log."""
    configure_jax(spec.compute, cores)
    layout = experiment_layout(spec)
    shards, data_spec = shards_of(spec)
    model_class, options = spec.component("model")
    with in_file_of(spec), ledger.phase("recommend"):
        result = recommend(
            model_class(options, data_spec),
            data_spec,
            open_posterior(layout.posterior),
            shards,
            spec.settings("recommendation"),
            layout,
        )
    tables = [layout.recommendations_top, layout.recommendations_genres]
    sign(spec, [*tables, layout.recommendations_users, layout.recommendations_scores], has_data=True)
    return ", ".join(f"{k} {v}" for k, v in result.items() if isinstance(v, (int, float, str)))
