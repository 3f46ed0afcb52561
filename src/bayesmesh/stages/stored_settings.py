"""Find the settings with which a stored posterior was made."""

from __future__ import annotations

from pathlib import Path

from bayesmesh.config.experiment_files import experiment_file
from bayesmesh.errors import ConfigError, StoreError, suggest
from bayesmesh.planning.specs import StageSpec, parse_spec
from bayesmesh.store.layout import ExperimentLayout
from bayesmesh.store.seals import find_seal


def find_spec(layout: ExperimentLayout) -> StageSpec:
    """Return the settings with which the posterior was made, whatever the experiment's file says by now.

    Raises:
        ConfigError: there is no posterior.
        StoreError: it has been altered, or its settings are gone.
    """
    if not layout.posterior.is_dir():
        stored = [path.parent.name for path in layout.results.glob("*/posterior.zarr")]
        name, problem = layout.experiment, f"no posterior of an experiment '{layout.experiment}' in {layout.folder}"
        is_configured = experiment_file(Path("config"), name).is_file()
        remedy = f"run it first: snakemake {name}" if is_configured or not stored else suggest(name, stored)
        raise ConfigError(problem, remedy)
    made_from = find_seal(layout.results, layout.posterior).specification
    for path in sorted(layout.spec("any").parent.glob("assemble-*.json")):
        spec = parse_spec(str(path), "assemble")
        if spec.digest == made_from:
            return spec
    problem = f"{layout.spec('any').parent}: the settings with which the posterior was made are gone"
    raise StoreError(problem, "run the assemble stage again")
