"""Check the kernel of an experiment from source text: the chains it needs, and its start.

The start `auto` becomes `prior` for a kernel that must start from the prior.
"""

from __future__ import annotations

from pathlib import Path

from bayesmesh.config.blocks import check_chains, check_start
from bayesmesh.config.declarations import read_flag, read_trait
from bayesmesh.config.experiment import ExperimentBase


def resolve_start(experiment: ExperimentBase) -> ExperimentBase:
    """Return an experiment whose start, if it was `auto`, is the one that its kernel needs."""
    initial = experiment.sampling.initial
    if initial.method != "auto" or not read_flag("kernel", experiment.kernel.name, "starts_from_prior"):
        return experiment
    resolved = initial.model_copy(update={"method": "prior"})
    return experiment.model_copy(update={"sampling": experiment.sampling.model_copy(update={"initial": resolved})})


def check_kernel(path: Path, experiment: ExperimentBase) -> None:
    """Check that an experiment suits its kernel; what the kernel computes is checked when compiling.

    Args:
        path: file of the experiment, for messages.
        experiment: the experiment.

    Raises:
        ConfigError: the kernel needs other chains, or another start.
    """
    kernel, sampling = experiment.kernel.name, experiment.sampling
    least, multiple = (read_trait("kernel", kernel, trait) or 1 for trait in ("min_chains", "chain_multiple"))
    check_chains(str(path), kernel, sampling.chains_per_group, least, multiple, sampling.chain_groups)
    if read_flag("kernel", kernel, "starts_from_prior"):
        check_start(str(path), kernel, sampling.initial)
