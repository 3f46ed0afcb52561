"""Decide from the configuration alone whose chains an experiment continues, and when a refit has enough draws."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bayesmesh.config.blocks import SamplingSettings, StopSettings
from bayesmesh.config.checks import check_valid
from bayesmesh.config.declarations import read_trait
from bayesmesh.config.experiment import ExperimentBase
from bayesmesh.config.settings import numeric_options
from bayesmesh.config.sweep import Sweep
from bayesmesh.errors import ConfigError

_AUTO, _NONE = "auto", "none"
LEAST_WARMUP = 40
"""Fewest iterations of warmup: half of the last fifth of them, the short warmup, must show whether chains agree."""

_FREE = {"prior", "priors"}
"""Options of a model that may differ from those of the relative, in addition to its numbers."""


def continue_refit(whole: str, refit: ExperimentBase) -> ExperimentBase:
    """Return a refit that continues the chains of the whole experiment, and ends once its gates hold."""
    if refit.sampling.initial.relative == _NONE or not _takes_relative(refit):
        return refit
    # The refit has the settings of the whole, which may continue another experiment.
    initial = refit.sampling.initial.model_copy(update={"relative": _AUTO})
    sampling = _until_gates(refit).model_copy(update={"initial": initial})
    continued = refit.model_copy(update={"sampling": sampling})
    continued.name_relative(whole)
    return continued


def continue_first(members: Mapping[str, ExperimentBase]) -> None:
    """Let the members of a sweep continue the first one, where they differ from it only in numbers of the model or its priors."""
    first, *others = members
    for member in (members[name] for name in others):
        if member.sampling.initial.relative == _AUTO and _takes_relative(member) and _is_near(members[first], member):
            member.name_relative(first)


def check_relative(
    path: Path,
    name: str,
    experiments: Mapping[str, ExperimentBase],
    broken: Mapping[str, ConfigError],
    sweeps: Mapping[str, Sweep],
) -> None:
    """Check the experiment that `sampling.initial.relative` names, and that it does not lead back to this one.

    Args:
        path: file of the experiment.
        name: its name.
        experiments: name -> experiment.
        broken: name -> error of those that are not valid.
        sweeps: name -> sweep.

    Raises:
        ConfigError: the relative does not exist or is not valid, its chains cannot be continued, or it continues this
            experiment in turn.
    """
    experiment = experiments[name]
    relative = experiment.sampling.initial.relative
    if relative in (_AUTO, _NONE):
        return
    where = f"{path}: key 'sampling.initial.relative'"
    if relative == name:
        raise ConfigError(f"{where}: '{name}' is this experiment itself", "name another one, or use `none`")
    if relative in sweeps:
        raise ConfigError(f"{where}: '{relative}' is a sweep", f"name one of {', '.join(sweeps[relative].members)}")
    check_valid(where, name, relative, experiments, broken)
    other = experiments[relative]
    for key, values in {
        "kernel": (experiment.kernel, other.kernel),
        "compute.dtype": (experiment.compute.dtype, other.compute.dtype),
        "sampling.chains": (experiment.sampling.chains, other.sampling.chains),
    }.items():
        if values[0] != values[1]:
            raise ConfigError(f"{where}: '{relative}' has another {key}", f"give both the same {key}, or use `none`")
    if not _takes_relative(experiment) or not _takes_relative(other):
        raise ConfigError(f"{where}: needs one group of at least two chains, a warmup of at least {LEAST_WARMUP}, and a kernel that can continue others, such as nuts", "use `none`")  # fmt: skip
    # Another experiment in the chain may be at fault, and then has an error of its own.
    way, following = [name], relative
    while following in experiments and following not in way:
        way.append(following)
        following = experiments[following].relative
    if following == name:
        raise ConfigError(f"{where}: a cycle, {' -> '.join([*way, name])}", "use `none` in one of them")


def _takes_relative(experiment: ExperimentBase) -> bool:
    """Return whether kernel, chains and processes let an experiment continue the chains of another."""
    sampling = experiment.sampling
    return (
        read_trait("kernel", experiment.kernel.name, "continues_others", False)
        and sampling.chain_groups == experiment.compute.processes == 1
        and sampling.chains > 1
        and sampling.warmup >= LEAST_WARMUP
        and sampling.initial.method != "laplace"
        and experiment.data.replicates is None
    )


def _is_near(first: ExperimentBase, member: ExperimentBase) -> bool:
    """Return whether two experiments differ only in numbers of the model or its priors."""
    if type(first.model) is not type(member.model):
        return False
    free: Any = {"title": True, "model": {*numeric_options(first.model), *_FREE}}
    return first.model_dump(exclude=free) == member.model_dump(exclude=free)


def _until_gates(experiment: ExperimentBase) -> SamplingSettings:
    """Return the settings of sampling, with a rule that stops once the gates on the number of draws hold."""
    sampling, gates = experiment.sampling, experiment.gates
    # The Monte Carlo error of a mean, in standard deviations, is the inverse root of its effective sample size.
    ess = max(gates.ess_bulk.limit, gates.mcse_mean.limit**-2 if gates.mcse_mean.limit else math.inf)
    stop = sampling.stop or StopSettings(
        min_ess_bulk=min(ess, 1e9),
        min_ess_tail=min(gates.ess_tail.limit, 1e9) or None,
        max_r_hat=min(gates.r_hat.limit, 10.0) if gates.r_hat.limit > 1 else None,
        first_look=min(100, sampling.draws),
        growth=1.25,
    )
    return sampling.model_copy(update={"stop": stop})
