"""Compare devices and processes of jobs with meshes, without JAX, before any job starts."""

from __future__ import annotations

from pathlib import Path

from bayesmesh.config.experiment import ExperimentBase
from bayesmesh.errors import ConfigError
from bayesmesh.store.machine import count_devices


def check_devices(path: Path, experiment: ExperimentBase, cores: int) -> None:
    """Compare an experiment's mesh with the devices of one of its jobs on this machine.

    Args:
        path: file of the experiment.
        experiment: the experiment.
        cores: cores of one job; chain groups share those of the workflow.

    Raises:
        ConfigError: the machine has no device of the platform, or the mesh needs more devices than a job has.
    """
    mesh, platform = experiment.compute.mesh, experiment.compute.platform
    if platform in ("gpu", "tpu") and not count_devices(platform, cores):
        raise ConfigError(
            f"{path}: key 'compute.platform': is '{platform}', and this machine has none",
            "use\n    compute:\n      platform: auto\n  or run where there is one, for example with --profile profiles/slurm-gpu",
        )
    if mesh == "auto" or experiment.compute.processes > 1:
        # The devices of several processes are known only after their start.
        return
    groups = experiment.sampling.chain_groups
    available = count_devices(platform, cores)
    if mesh.chain * mesh.data > available:
        share = f" for each of the {groups} chain groups, which run at the same time" if groups > 1 else ""
        fewer = ", or lower sampling.chain_groups" if groups > 1 else ""
        raise ConfigError(
            f"{path}: key 'compute.mesh': chain {mesh.chain} x data {mesh.data} needs {mesh.chain * mesh.data} devices, but there are {available} for platform '{platform}'{share}",
            f"use\n    compute:\n      mesh: auto\n  or allow more with --cores{fewer}",
        )


def check_processes(path: Path, experiment: ExperimentBase, nodes: int, each: int, site: Path) -> None:
    """Compare an experiment's processes with those that a profile starts in each job.

    Args:
        path: file of the experiment.
        experiment: the experiment.
        nodes: nodes of a job.
        each: processes on each node.
        site: the site's file, from which the profile takes both.

    Raises:
        ConfigError: they differ; otherwise each attempt of the job would fail.
    """
    wanted, given = experiment.compute.processes, nodes * each
    if wanted == given:
        return
    source = f" ({nodes} x {each}, by {site}: keys 'gpu.nodes' and 'gpu.gpus_per_node')" if given > 1 else ""
    profile = "profiles/slurm-gpu" if wanted == 1 else "profiles/slurm-gpu-multinode"
    first = f"use {profile}" if 1 in (wanted, given) else f"change those keys of {site}"
    raise ConfigError(
        f"{path}: key 'compute.processes': is {wanted}, but each job of this profile has {given}{source}",
        f"{first}, or set\n    compute:\n      processes: {given}",
    )
