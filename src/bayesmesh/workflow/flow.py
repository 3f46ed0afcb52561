"""The stages of the flow: the keys of an experiment that each reads, and the components whose code it runs."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from bayesmesh.config.declarations import OWN_KEY, AnalysisDeclaration, declared, list_analyses
from bayesmesh.config.experiment import ExperimentBase
from bayesmesh.errors import ConfigError

LATER = {each.verb: each.name for each in list_analyses()}
"""Verb of an analysis of this package, which not all data and models support -> its key in an experiment."""

_READS: dict[str, tuple[str, ...]] = {
    "fetch": ("data",),
    "shard": ("data",),
    "compile": ("data", "model", "kernel", "sampling", "compute"),
    "sample": ("data", "model", "kernel", "sampling", "compute"),
    "assemble": ("data", "model", "sampling", "compute", "posterior"),
    "diagnose": ("gates",),
    # A member of a sweep is an experiment like any other.
    "report": (
        *(key for key in ExperimentBase.model_fields if key != "sweep"),
        "data",
        "model",
        "kernel",
        *LATER.values(),
    ),
}

STAGES = (*(stage for stage in _READS if stage != "report"), *LATER, "report")
"""The stages in the order of the flow; analyses of users' packages, whose stage is ``module:attribute``, come before the last."""

LEAVES_OUT: dict[str, dict[str, set[str]]] = {
    # More draws extend the chains, and the seed is an argument, so neither changes the programs.
    "compile": {
        "sampling": {"draws", "stop", "chains", "chain_groups", "seed", "grace_seconds", "on_changed_environment"}
    },
    "fetch": {
        "data": {
            "held_out_fraction",
            "split_seed",
            "held_out_groups",
            "held_out_last",
            "held_out_users",
            "left_out",
            "replicates",
        }
    },
    # Rows are sorted by dataset when they are read.
    "shard": {"data": {"replicates"}},
}
"""Stage -> keys below its top-level keys that it does not read."""

DOES_NOT_TRIGGER: dict[str, set[str]] = {
    # The lengths of calls and segments change no draw; that of warmup is an argument of the programs.
    "compile": {"sampling.segment_seconds", "sampling.warmup"},
    # More groups do not change the draws of a group; the specification states its number of chains separately.
    "sample": {
        "sampling.segment_seconds", "sampling.grace_seconds", "sampling.on_changed_environment",
        "sampling.chains", "sampling.chain_groups",
    },
}  # fmt: skip
"""Stage -> keys that it reads but that change none of its results: a change takes effect when the stage next runs."""

ARITHMETIC = {"dtype", "platform", "matmul_precision"}
"""Keys of `compute` for stages that find the data by name and open them in the experiment's dtype."""

READS_ONLY: dict[str, dict[str, set[str]]] = {
    "assemble": {"compute": ARITHMETIC, "sampling": {"draws", "chains", "chain_groups", "mode"}}
}
"""Stage -> keys below its top-level keys, if it reads only a few; see also `stage_config`."""

_COMPONENTS: dict[str, tuple[str, ...]] = {
    "fetch": ("source",), "shard": ("source",), "compile": ("model", "kernel"), "sample": ("model", "kernel"),
    "assemble": ("model",), "diagnose": (), "report": (),
}  # fmt: skip


def analysis_of(stage: str) -> AnalysisDeclaration | None:
    """Return the analysis of a stage; None for a stage that is not one.

    Raises:
        ConfigError: the module or the class of a user's analysis does not exist.
    """
    name = stage if ":" in stage else LATER.get(stage)
    return declared(name) if name is not None else None


def stage_word(stage: str) -> str:
    """Return the name of a stage in names of files and in messages: for an analysis, its verb."""
    analysis = analysis_of(stage)
    return analysis.verb if analysis else stage


def reads(stage: str) -> tuple[str, ...]:
    """Return the top-level keys of an experiment that a stage reads."""
    analysis = analysis_of(stage)
    if analysis is None:
        return _READS[stage]
    key = OWN_KEY if analysis.is_own else analysis.name
    return (*(("data", "model") if "data" in analysis.reads else ()), "compute", key)


def components(stage: str) -> tuple[str, ...]:
    """Return the kinds of component whose code a stage runs."""
    analysis = analysis_of(stage)
    if analysis is None:
        return _COMPONENTS[stage]
    return ("model",) if "data" in analysis.reads else ()


def stages_of(experiment: ExperimentBase) -> list[str]:
    """Return the stages of an experiment in the order of the flow, with the analyses that it asks for."""
    asked = [declared(name).stage for name in experiment.requested_analyses()]
    return [*(stage for stage in _READS if stage != "report"), *asked, "report"]


def list_analysis_rules(config: Path = Path("config")) -> list[str]:
    """Return the names of the rules of analyses, for profiles, which Snakemake reads before the configuration.

    Analyses of users' packages are found in the text of experiment files, so one in a comment counts too.
    """
    texts = [
        file.read_text(encoding="utf-8", errors="replace") for file in sorted((config / "experiments").glob("*.yaml"))
    ]
    verbs = dict.fromkeys(LATER)
    for name in dict.fromkeys(name for text in texts for name in _NAMED.findall(text)):
        # Models, kernels and sources have such names too, and a mistake in an analysis is reported when experiments are read.
        with contextlib.suppress(ConfigError):
            verbs[declared(name).verb] = None
    return list(verbs)


_NAMED = re.compile(r"(?<![\w.:/])[A-Za-z_][\w.]*:[A-Za-z_]\w*")
"""Text that may be a name ``module:attribute``."""
