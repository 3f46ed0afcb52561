"""Read the description of a cluster, `profiles/site.yaml`, for the profiles and the rules.

It alone sets partition, account, limits and GPU model. A profile is a Snakemake template that gets the site from
`site_for`, which first tests whether the scheduler accepts such a job.
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from bayesmesh.config.errors import validate
from bayesmesh.config.settings import Settings, does_not_fit
from bayesmesh.config.yaml_reader import read_yaml
from bayesmesh.errors import ConfigError, UserError
from bayesmesh.workflow.slurm.commands import refusal, test_only_command

SITE_FILE = "profiles/site.yaml"

Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.,:@+-]{0,127}$")]
"""Pattern of words passed to sbatch: no blank, no quote, no leading dash."""


class Nodes(Settings):
    """A kind of node, and the limits of one job on it."""

    partition: Word | None = None
    """Partition; the scheduler's default if null."""
    qos: Word | None = None
    """Quality of service; the scheduler's default if null."""
    cores: int = Field(4, ge=1, le=1024)
    """Cores of one job."""
    max_memory_mb: int = Field(32_000, ge=1000)
    """Largest memory of one job, in MB."""
    max_minutes: int = Field(240, ge=5)
    """Longest job, in minutes: the limit of the partition."""


class GpuNodes(Nodes):
    """Nodes with GPUs."""

    model: Word | None = None
    """GPU model as the scheduler spells it; any model if null."""
    nodes: int = Field(2, ge=1, le=4096)
    """Nodes of a job that spans several nodes."""
    gpus_per_node: int = Field(1, ge=1, le=64)
    """GPUs of such a job on each of its nodes."""

    @property
    def total(self) -> int:
        """Total number of GPUs, and of processes, of a job over several nodes."""
        return self.nodes * self.gpus_per_node

    @property
    def on_each_node(self) -> str:
        """Options that request GPUs and tasks per node; with only a total, Slurm may distribute them unevenly."""
        return f"--ntasks-per-node={self.gpus_per_node} --gpus-per-node={self.gpus(self.gpus_per_node)}"

    def gpus(self, count: int) -> str:
        """Return a number of GPUs as the scheduler spells it, with their model."""
        return f"{self.model}:{count}" if self.model else str(count)


class Site(Settings):
    """A cluster."""

    account: Word | None = None
    """Account to charge; the scheduler's default if null."""
    cpu: Nodes = Field(Nodes())
    """Nodes without accelerator."""
    gpu: GpuNodes = Field(GpuNodes())
    """Nodes with GPUs."""
    stop_seconds: int = Field(120, ge=10, le=3600)
    """Seconds between the stop signal and the time limit of a job, for its last commit."""

    @model_validator(mode="after")
    def _leave_time_to_work(self) -> Site:
        for kind, nodes in (("cpu", self.cpu), ("gpu", self.gpu)):
            if 2 * self.stop_seconds > 60 * nodes.max_minutes:
                raise does_not_fit(
                    "stop_seconds",
                    f"{self.stop_seconds} s is more than half of {kind}.max_minutes: {nodes.max_minutes}",
                    f"set stop_seconds to at most {30 * nodes.max_minutes}, or raise {kind}.max_minutes",
                )
        return self

    @property
    def stop_minutes(self) -> int:
        """Additional minutes of a job, because it is told to stop before its time limit."""
        return math.ceil(self.stop_seconds / 60)

    def runtime(self, kind: str, minutes: int, shares: int = 1) -> str:
        """Return the minutes that a job requests as a Snakemake expression, more with each attempt.

        Args:
            kind: ``cpu`` or ``gpu``.
            minutes: minutes of work at the first attempt.
            shares: number of rules that run in turn in one job; the result is for one of them.
        """
        limits = self.cpu if kind == "cpu" else self.gpu
        stop = math.ceil(self.stop_minutes / shares)
        return f"min({minutes} * attempt + {stop}, {limits.max_minutes // shares})"


def load_site(environ: Mapping[str, str] = os.environ) -> tuple[Path, Site]:
    """Return the site's file and its settings; defaults if the file does not exist.

    Args:
        environ: environment variables; `BAYESMESH_SITE` names another file.

    Raises:
        ConfigError: the file is unreadable, or a key is unknown or invalid.
    """
    named = environ.get("BAYESMESH_SITE")
    path = Path(named or SITE_FILE)
    if not named and not path.exists():
        return path, Site()
    return path, validate(path, Site, read_yaml(path))


def site_for(kind: str, *, nodes: bool = False) -> Site:
    """Return the site for a profile; on an error, print it and exit, because a template cannot handle exceptions.

    Args:
        kind: ``cpu`` or ``gpu``.
        nodes: whether a job uses `gpus_per_node` GPUs on each of `nodes` nodes, instead of one GPU on one node.
    """
    try:
        path, site = load_site()
        check_with_scheduler(path, site, kind, nodes)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    return site


def check_with_scheduler(path: Path, site: Site, kind: str, nodes: bool = False) -> None:
    """Ask the scheduler, without submitting, whether it would accept the largest job of the site.

    Raises:
        ConfigError: it would not; the message has its reason and the key to change.
    """
    options = _options_of_largest(site, kind, nodes)
    if refused := refusal(options):
        reason, said = refused
        key, remedy = _blame(said, kind)
        raise ConfigError(
            f"{path}: key '{key}': the scheduler would refuse the jobs: {reason}",
            f"{remedy} ({' '.join(test_only_command(options))})",
        )


def _options_of_largest(site: Site, kind: str, nodes: bool) -> list[str]:
    """Return the options of sbatch for the largest job of the site."""
    where = site.cpu if kind == "cpu" else site.gpu
    options = [f"--time={where.max_minutes}", f"--mem={where.max_memory_mb}", f"--cpus-per-task={where.cores}"]
    named = {"partition": where.partition, "account": site.account, "qos": where.qos}
    options += [f"--{name}={word}" for name, word in named.items() if word]
    if isinstance(where, GpuNodes):
        options += [f"--gpus={where.gpus(where.total if nodes else 1)}"]
        options += [f"--nodes={where.nodes}", f"--ntasks={where.total}", *where.on_each_node.split()] if nodes else []
    return options


_REASONS = (
    ("qos", "{kind}.qos", "choose one that `sacctmgr show user $USER withassoc` lists, or null"),
    ("partition name|invalid partition", "{kind}.partition", "choose one that `sinfo` lists"),
    ("account", "account", "choose one that `sacctmgr show user $USER withassoc` lists"),
    ("time limit", "{kind}.max_minutes", "use at most the TIMELIMIT that `sinfo` shows for the partition"),
    ("node count", "gpu.nodes", "use at most the number that `sinfo -o '%P %D'` shows"),
    ("processors", "{kind}.cores", "use at most what a node has: `sinfo -o '%P %c'`"),
    ("memory", "{kind}.max_memory_mb", "use at most what a node has: `sinfo -o '%P %m'`"),
    ("gres|gpu", "gpu.model", "`sinfo -o '%P %G'` shows the GPUs of the partition"),
)


def _blame(said: str, kind: str) -> tuple[str, str]:
    """Return the key that a refusal concerns and the remedy; an unavailable node configuration may concern several."""
    for pattern, key, remedy in _REASONS:
        if re.search(pattern, said, re.IGNORECASE):
            return key.format(kind=kind), remedy
    if kind == "gpu":
        return "gpu", "lower gpus_per_node, nodes, cores or max_memory_mb to what `sinfo -o '%P %D %c %m %G'` shows"
    return "cpu", "lower cores or max_memory_mb to what `sinfo -o '%P %D %c %m'` shows"
