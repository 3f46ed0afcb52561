"""Check the other experiments that analyses name in their settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bayesmesh.config.experiment import ExperimentBase
from bayesmesh.errors import ConfigError, suggest

__all__ = ["check_named"]


def check_named(paths: Mapping[str, Path], experiments: Mapping[str, ExperimentBase]) -> None:
    """Check that the experiments named by analyses exist, without duplicates or cycles.

    Args:
        paths: name -> file of every experiment.
        experiments: name -> experiment.

    Raises:
        ConfigError: a named experiment has no file, is named twice, or leads back to the experiment itself.
    """
    for name, experiment in experiments.items():
        for analysis in experiment.analyses():
            named = experiment.named_experiments(analysis)
            where = f"{paths[name]}: key '{analysis}.experiments'"
            for other in named:
                if other not in experiments:
                    raise ConfigError(f"{where}: no experiment '{other}'", suggest(other, set(experiments) - {name}))
                if named.count(other) > 1:
                    raise ConfigError(f"{where}: '{other}' is named twice", "name each experiment once")
            circle = _circle(analysis, [name], experiments)
            if circle:
                raise ConfigError(
                    f"{where}: the request is circular: {' -> '.join(circle)}",
                    f"an analysis always reads its own experiment; name only others in '{analysis}',"
                    " and none that names this one",
                )


def _circle(analysis: str, way: list[str], experiments: Mapping[str, ExperimentBase]) -> list[str]:
    """Return a cycle from an experiment through named ones back to itself, empty if there is none."""
    for other in experiments[way[-1]].named_experiments(analysis):
        if other == way[0]:
            return [*way, other]
        if other in experiments and other not in way and (found := _circle(analysis, [*way, other], experiments)):
            return found
    return []
