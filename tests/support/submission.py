"""What a profile for Slurm has sbatch asked for, by way of the executor, without Snakemake."""

from __future__ import annotations

import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from snakemake_executor_plugin_slurm.submit_string import get_submit_command
from snakemake_executor_plugin_slurm.utils import set_gres_string
from snakemake_executor_plugin_slurm.validation import validate_slurm_extra
from yte import process_yaml

from workspace import ROOT

__all__ = ["read_profile", "sbatch_command"]


def read_profile(profile: str) -> dict[str, Any]:
    """Return a profile's content, such as ``slurm-gpu``'s, for the site of the moment."""
    content: dict[str, Any] = process_yaml((ROOT / "profiles" / profile / "config.yaml").read_text())
    return content


def sbatch_command(profile: str, rule: str, log: Path = Path("log")) -> list[str]:
    """Return the command that submits a rule's job at its first attempt, up to the script.

    Args:
        profile: folder of the profile.
        rule: name of the rule.
        log: gets what the job says.
    """
    content = read_profile(profile)
    wanted = {"gpu": 0, **content["default-resources"], **content["set-resources"].get(rule, {})}
    resources = _Resources({name: _value(given) for name, given in wanted.items()})
    job: Any = SimpleNamespace(resources=resources, threads=1)
    validate_slurm_extra(job)
    places = {
        "account": f"-A {resources['slurm_account']}", "partition": f"-p {resources['slurm_partition']}",
        "slurm_logfile": str(log), "run_uuid": rule, "comment_str": rule, "workdir": str(log.parent),
    }  # fmt: skip
    return shlex.split(get_submit_command(job, places) + set_gres_string(job))


class _Resources(dict[str, Any]):
    """Resources of a job as the executor reads them: by name or as attributes."""

    __getattr__ = dict.__getitem__


def _value(given: Any) -> Any:
    """Evaluate as Snakemake does at a first attempt: a word that is no expression is itself."""
    try:
        return eval(given, {"min": min, "attempt": 1}) if isinstance(given, str) else given  # noqa: S307
    except (NameError, SyntaxError):
        return given
