"""Make refits: copies of an experiment, each without some of its rows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from bayesmesh.config.declarations import has_refits, key_of
from bayesmesh.config.errors import explain
from bayesmesh.config.experiment import ExperimentBase
from bayesmesh.config.refit_settings import LeftOut, Refits
from bayesmesh.config.registry import options_class
from bayesmesh.config.settings import NAME_PATTERN
from bayesmesh.errors import ConfigError


def make_refits(path: Path, name: str, experiment: ExperimentBase) -> dict[str, ExperimentBase]:
    """Return name -> refit, for the refits that an experiment's analyses request, and tell the experiment their names.

    Each has the settings of the experiment without its analyses.

    Args:
        path: file of the experiment.
        name: its name.
        experiment: its settings.

    Raises:
        ConfigError: a name is too long or shared by two refits, or the experiment is itself a refit.
    """
    made: dict[str, ExperimentBase] = {}
    named: dict[str, tuple[str, ...]] = {}
    for analysis in filter(has_refits, experiment.requested_analyses()):
        left_out = _left_out(path, analysis, experiment)
        if not left_out:
            continue
        if experiment.data.replicates is not None:
            raise ConfigError(
                f"{path}: key '{key_of(analysis)}': samples again without some rows, of one dataset and not of the many of data.replicates",
                "remove one of the two",
            )
        if experiment.data.left_out is not None:
            raise ConfigError(
                f"{path}: key 'data.left_out': not together with {key_of(analysis)}", "remove one of the two"
            )
        named[analysis] = tuple(f"{name}-{ending}" for ending in left_out)
        for refit, rows in zip(named[analysis], left_out.values(), strict=True):
            if not re.fullmatch(NAME_PATTERN, refit):
                raise ConfigError(
                    f"{path}: key '{key_of(analysis)}': '{refit}' would be the name of a refit; names match {NAME_PATTERN}",
                    "give the file a shorter name, or the members of its sweep, as `cases` with a `name`",
                )
            if refit in made:
                raise ConfigError(
                    f"{path}: key '{key_of(analysis)}': another analysis has refits of the same name, '{refit}'",
                    "give one of them another number of folds, or other rows",
                )
            made[refit] = experiment.without_analyses(
                {
                    "title": f"{experiment.title[:150]}, {rows.words}",
                    "data": experiment.data.model_copy(
                        update={"left_out": rows.model_copy(update={"asked_by": key_of(analysis)})}
                    ),
                }
            )
    experiment.name_refits(named)
    return made


def _left_out(path: Path, analysis: str, experiment: ExperimentBase) -> Mapping[str, LeftOut]:
    """Return what the refits of an analysis leave out; the analysis of a user's own package is imported to know them."""
    try:
        settings = experiment.analysis_settings(analysis)
    except ValidationError as error:
        raise explain(path, error, options_class("analysis", analysis), under=key_of(analysis)) from error
    except ConfigError as error:
        raise ConfigError(f"{path}: key '{key_of(analysis)}': {error.message}", error.remedy) from error
    return settings.left_out() if isinstance(settings, Refits) else {}
