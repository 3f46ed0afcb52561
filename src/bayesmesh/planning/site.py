"""What a cluster is like: `profiles/site.yaml`, read by the profiles and by the rules.

The one place for partition, account, limits and model of GPU. A profile is a template of Snakemake's: it gets the
site from `site_for`, which asks the scheduler first whether it would take such a job at all.
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError, model_validator

from bayesmesh.config.explain import explain
from bayesmesh.config.loading import read_yaml
from bayesmesh.config.settings import Settings, does_not_fit
from bayesmesh.errors import ConfigError, UserError
from bayesmesh.running.slurm.commands import refusal, test_only_command

__all__ = ["SITE_FILE", "GpuNodes", "Nodes", "Site", "is_profile_given", "load_site", "site_for"]

SITE_FILE = "profiles/site.yaml"

Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.,:@+-]{0,127}$")]
"""What reaches sbatch: no blank, no quote, no leading dash."""


class Nodes(Settings):
    """A kind of node, and what one job may ask of it."""

    partition: Word | None = None
    """Partition; the scheduler's default when null."""
    qos: Word | None = None
    """Quality of service; the scheduler's default when null."""
    cores: int = Field(4, ge=1, le=1024)
    """Cores of one job."""
    max_memory_mb: int = Field(32_000, ge=1000)
    """Most memory of one job, in MB."""
    max_minutes: int = Field(240, ge=5)
    """Longest job, in minutes: the limit of the partition."""


class GpuNodes(Nodes):
    """Nodes with GPUs."""

    model: Word | None = None
    """Model of GPU as the scheduler spells it; any when null."""
    nodes: int = Field(2, ge=1, le=4096)
    """Nodes of one job that spans several."""
    gpus_per_node: int = Field(1, ge=1, le=64)
    """GPUs that such a job takes on each of its nodes."""

    @property
    def total(self) -> int:
        """GPUs of a job that spans several nodes, and its processes."""
        return self.nodes * self.gpus_per_node

    @property
    def on_each_node(self) -> str:
        """What such a job asks of each node. Of a total, a node that is partly taken would give less than its share."""
        return f"--ntasks-per-node={self.gpus_per_node} --gpus-per-node={self.gpus(self.gpus_per_node)}"

    def gpus(self, count: int) -> str:
        """Return a number of GPUs as the scheduler spells it, with their model."""
        return f"{self.model}:{count}" if self.model else str(count)


class Site(Settings):
    """A cluster."""

    account: Word | None = None
    """Account that is charged; the scheduler's default when null."""
    cpu: Nodes = Field(Nodes())
    """Nodes without accelerator."""
    gpu: GpuNodes = Field(GpuNodes())
    """Nodes with GPUs."""
    stop_seconds: int = Field(120, ge=10, le=3600)
    """A job is told to stop so long before its time is up, so that it can commit."""

    @model_validator(mode="after")
    def _leave_time_to_work(self) -> Site:
        for kind, nodes in (("cpu", self.cpu), ("gpu", self.gpu)):
            if 2 * self.stop_seconds > 60 * nodes.max_minutes:
                raise does_not_fit(
                    "stop_seconds",
                    f"{self.stop_seconds} s are more than half of {kind}.max_minutes: {nodes.max_minutes}",
                    f"set stop_seconds to at most {30 * nodes.max_minutes}, or raise {kind}.max_minutes",
                )
        return self

    @property
    def stop_minutes(self) -> int:
        """Minutes that a job is given besides, because it is told to stop before its time is up."""
        return math.ceil(self.stop_seconds / 60)

    def runtime(self, kind: str, minutes: int, shares: int = 1) -> str:
        """Return the minutes that a job asks for as Snakemake's expression, more with each attempt.

        Args:
            kind: ``cpu`` or ``gpu``.
            minutes: for the work, at the first attempt.
            shares: rules that take turns in one job and whose times add up; this is one's.
        """
        limits = self.cpu if kind == "cpu" else self.gpu
        stop = math.ceil(self.stop_minutes / shares)
        return f"min({minutes} * attempt + {stop}, {limits.max_minutes // shares})"


def load_site(environ: Mapping[str, str] = os.environ) -> tuple[Path, Site]:
    """Return the site's file and what it says; all defaults where there is none.

    Args:
        environ: `BAYESMESH_SITE` names another file.

    Raises:
        ConfigError: it cannot be read, or a key is unknown or wrong.
    """
    named = environ.get("BAYESMESH_SITE")
    path = Path(named or SITE_FILE)
    if not named and not path.exists():
        return path, Site()
    try:
        return path, Site.model_validate(read_yaml(path))
    except ValidationError as error:
        raise explain(path, error, Site) from error


def is_profile_given(words: Sequence[str], environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether Snakemake was called with a profile of the user's choice."""
    return "SNAKEMAKE_PROFILE" in environ or any(word.split("=")[0] == "--profile" for word in words)


def site_for(kind: str, *, nodes: bool = False) -> Site:
    """Return the site for a profile, or end the program with a message: a template can do neither more nor less.

    Args:
        kind: ``cpu`` or ``gpu``.
        nodes: whether a job takes `gpus_per_node` GPUs on each of `nodes` nodes, and not one GPU on one node.
    """
    try:
        path, site = load_site()
        check_with_scheduler(path, site, kind, nodes)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    return site


def check_with_scheduler(path: Path, site: Site, kind: str, nodes: bool = False) -> None:
    """Let the scheduler say, without submitting anything, whether it would take the largest job of the site.

    Raises:
        ConfigError: it would not; gives its reason and the key to change.
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
    options += [f"--partition={where.partition}"] if where.partition else []
    options += [f"--account={site.account}"] if site.account else []
    options += [f"--qos={where.qos}"] if where.qos else []
    if isinstance(where, GpuNodes):
        options += [f"--gpus={where.gpus(where.total if nodes else 1)}"]
        options += [f"--nodes={where.nodes}", f"--ntasks={where.total}", *where.on_each_node.split()] if nodes else []
    return options


_REASONS = (
    ("qos", "{kind}.qos", "take one of those that `sacctmgr show user $USER withassoc` lists, or null"),
    ("partition name|invalid partition", "{kind}.partition", "take one of those that `sinfo` lists"),
    ("account", "account", "take one of those that `sacctmgr show user $USER withassoc` lists"),
    ("time limit", "{kind}.max_minutes", "take at most the TIMELIMIT that `sinfo` shows for the partition"),
    ("node count", "gpu.nodes", "take no more than `sinfo -o '%P %D'` shows"),
    ("processors", "{kind}.cores", "take no more than a node has: `sinfo -o '%P %c'`"),
    ("memory", "{kind}.max_memory_mb", "take no more than a node has: `sinfo -o '%P %m'`"),
    ("gres|gpu", "gpu.model", "see with `sinfo -o '%P %G'` which GPUs the partition has"),
)


def _blame(said: str, kind: str) -> tuple[str, str]:
    """The key that a refusal is about, and what to do; a configuration that no node has may be about several."""
    for pattern, key, remedy in _REASONS:
        if re.search(pattern, said, re.IGNORECASE):
            return key.format(kind=kind), remedy
    if kind == "gpu":
        return "gpu", "lower gpus_per_node, nodes, cores or max_memory_mb to what `sinfo -o '%P %D %c %m %G'` shows"
    return "cpu", "lower cores or max_memory_mb to what `sinfo -o '%P %D %c %m'` shows"
