"""Keep the programs that `compile` has made for `sample`, where a fork does both (`running.staying`).

They are the same executables, and so the same draws, as those that `sample` would find in the persistent cache; without
tracing, lowering and loading them again.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax

from bayesmesh.config.blocks import SamplingSettings
from bayesmesh.config.registry import component_files
from bayesmesh.config.source_imports import PACKAGE_ROOT
from bayesmesh.planning.specs import StageSpec
from bayesmesh.running import staying
from bayesmesh.sampling.datasets import DatasetPrograms
from bayesmesh.sampling.program import Program


class _Kept(NamedTuple):
    spec: StageSpec
    fingerprint: str
    observed: Mapping[str, str]
    program: Program
    compiled: Mapping[str, Callable[..., Any]]


_kept: list[_Kept] = []


def keep_programs(
    spec: StageSpec,
    fingerprint: str,
    observed: Mapping[str, str],
    program: Program,
    compiled: Mapping[str, Callable[..., Any]],
) -> None:
    """Keep the programs of a chain group, and let this process stay, if it is a fork of a single process on a CPU.

    Args:
        spec: specification of `compile`.
        fingerprint: of the shards.
        observed: file -> stamp of what the job has read besides, see `Observation.files`.
        program, compiled: the programs, and their executables by name.
    """
    if staying.is_fork() and is_on_cpu(program) and not isinstance(program, DatasetPrograms):
        digests = {name: stamp.rsplit(" ", 2)[0] for name, stamp in observed.items()}
        _kept[:] = [_Kept(spec, fingerprint, digests, program, dict(compiled))]
        staying.stay()


def take_programs(
    spec: StageSpec, fingerprint: str, observed: Mapping[str, str], slice_draws: int
) -> tuple[Program, Mapping[str, Callable[..., Any]]] | None:
    """Return the programs that this process has kept, and their executables; None unless they are those of `sample`.

    Args:
        spec: specification of `sample`.
        fingerprint, observed: what the shards, and the files that `compile` has read, hold now: the latter file -> digest.
        slice_draws: most iterations of a call.
    """
    while _kept:
        kept = _kept.pop()
        is_same = kept.fingerprint == fingerprint and kept.observed == observed
        if is_same and kept.program.slice_draws == slice_draws and _compiles_for(kept.spec, spec):
            return with_settings(kept.program, spec.sampling), kept.compiled
    return None


def with_settings(program: Program, sampling: SamplingSettings) -> Program:
    """Return programs with settings of which `compile` is told only those that matter to it."""
    made = copy.copy(program)
    made.sampling = sampling
    return made


def is_on_cpu(program: Program) -> bool:
    """Return whether the programs run on a CPU, by a single process."""
    return program.mesh.devices.flat[0].platform == "cpu" and jax.process_count() == 1


def is_of_package(spec: StageSpec) -> bool:
    """Return whether the model is code of this package alone: that of users may keep state, such as a generator of numbers."""
    return all(file.is_relative_to(PACKAGE_ROOT) for file in component_files("model", spec.config["model"]))


def _compiles_for(made: StageSpec, asked: StageSpec) -> bool:
    """Return whether everything that `compile` was told is what `sample` is told."""

    def is_part(part: Any, whole: Any) -> bool:
        if isinstance(part, dict) and isinstance(whole, dict):
            return all(key in whole and is_part(value, whole[key]) for key, value in part.items())
        return bool(part == whole)

    names = (made.experiment, made.results, made.num_chains) == (asked.experiment, asked.results, asked.num_chains)
    return names and is_part(made.config, asked.config)
