"""Keep the programs that `compile` made for `sample`, if one fork runs both stages (`running.fork_reuse`).

They are the executables that `sample` would find in the persistent cache, so the draws are the same; they need not be
traced, lowered and loaded again. The programs of `assemble` are compiled, or loaded, while the fork samples.
"""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax

from bayesmesh.config.config_blocks import SamplingSettings
from bayesmesh.config.config_registry import component_files
from bayesmesh.config.config_source_code import PACKAGE_ROOT
from bayesmesh.planning.plan_specs import StageSpec
from bayesmesh.running import fork_reuse
from bayesmesh.sampling.program import Program
from bayesmesh.sampling.program_datasets import DatasetPrograms


class Later(NamedTuple):
    """Programs of a later stage: its specification, and a function that traces and lowers them one by one."""

    spec: StageSpec
    lower: Callable[[], Iterator[jax.stages.Lowered]]


class _Kept(NamedTuple):
    spec: StageSpec
    fingerprint: str
    observed: Mapping[str, str]
    program: Program
    compiled: Mapping[str, Callable[..., Any]]


class _Prepared(NamedTuple):
    spec: StageSpec
    fingerprint: str
    compiled: Sequence[jax.stages.Compiled]


_kept: list[_Kept] = []
_later: list[Later] = []
_prepared: list[_Prepared] = []


def keep_programs(
    spec: StageSpec,
    fingerprint: str,
    observed: Mapping[str, str],
    program: Program,
    compiled: Mapping[str, Callable[..., Any]],
    later: Sequence[Later] = (),
) -> None:
    """Keep the programs of a chain group, and keep this process alive, if it is a fork of a single process on a CPU.

    Args:
        spec: specification of `compile`.
        fingerprint: fingerprint of the shards.
        observed: file -> stamp of other files that the job has read, see `Observation.files`.
        program, compiled: the programs, and their executables by name.
        later: programs that `assemble` will run, made while this process samples.
    """
    if may_keep(program):
        digests = {name: stamp.rsplit(" ", 2)[0] for name, stamp in observed.items()}
        _kept[:], _later[:] = [_Kept(spec, fingerprint, digests, program, dict(compiled))], later
        fork_reuse.stay()


def may_keep(program: Program) -> bool:
    """Return whether this process can keep the programs of a chain group for the next stage."""
    return fork_reuse.is_fork() and is_on_cpu(program) and not isinstance(program, DatasetPrograms)


def take_programs(
    spec: StageSpec, fingerprint: str, observed: Mapping[str, str], slice_draws: int
) -> tuple[Program, Mapping[str, Callable[..., Any]]] | None:
    """Return the programs that this process has kept, and their executables; None unless they are those of `sample`.

    Args:
        spec: specification of `sample`.
        fingerprint: current fingerprint of the shards.
        observed: file -> current digest of the files that `compile` has read.
        slice_draws: most iterations of a call.
    """
    while _kept:
        kept = _kept.pop()
        is_same = kept.fingerprint == fingerprint and kept.observed == observed
        if is_same and kept.program.slice_draws == slice_draws and _compiles_for(kept.spec, spec):
            return with_settings(kept.program, spec.sampling), kept.compiled
    return None


@contextlib.contextmanager
def preparing_later(fingerprint: str) -> Iterator[None]:
    """Compile the programs of the later stage in a thread, or load them from the persistent cache, while the block samples.

    Waits for the thread, unless the block raises. If the thread fails, `assemble` will raise the same error.

    Args:
        fingerprint: of the shards.
    """
    if not _later:
        yield
        return
    later, found, is_over = _later.pop(), list[jax.stages.Compiled](), threading.Event()
    _prepared.clear()

    def prepare() -> None:
        for lowered in later.lower():
            if is_over.is_set():
                return
            found.append(lowered.compile())
        _prepared[:] = [_Prepared(later.spec, fingerprint, found)]

    # A job that is asked to stop does not wait for the thread.
    thread = threading.Thread(target=prepare, name="programs of assemble", daemon=True)
    thread.start()
    with contextlib.ExitStack() as after_error:
        after_error.callback(is_over.set)
        yield
        after_error.pop_all()
    thread.join()


def take_later(spec: StageSpec, fingerprint: str) -> Sequence[jax.stages.Compiled]:
    """Return the programs that were compiled for `assemble` while this process sampled, in order; empty if there are none.

    Args:
        spec: specification of `assemble`.
        fingerprint: of the shards.
    """
    while _prepared:
        prepared = _prepared.pop()
        if (prepared.spec, prepared.fingerprint) == (spec, fingerprint):
            return prepared.compiled
    return ()


def with_settings(program: Program, sampling: SamplingSettings) -> Program:
    """Return programs with all settings of sampling, of which `compile` gets only those that matter to it."""
    made = copy.copy(program)
    made.sampling = sampling
    return made


def is_on_cpu(program: Program) -> bool:
    """Return whether the programs run on a CPU, by a single process."""
    return program.mesh.devices.flat[0].platform == "cpu" and jax.process_count() == 1


def is_of_package(spec: StageSpec) -> bool:
    """Return whether the model is code of this package alone; a user's code may keep state, such as a random number generator."""
    return all(file.is_relative_to(PACKAGE_ROOT) for file in component_files("model", spec.config["model"]))


def _compiles_for(made: StageSpec, asked: StageSpec) -> bool:
    """Return whether the specification of `sample` agrees with everything in that of `compile`."""

    def is_part(part: Any, whole: Any) -> bool:
        if isinstance(part, dict) and isinstance(whole, dict):
            return all(key in whole and is_part(value, whole[key]) for key, value in part.items())
        return bool(part == whole)

    names = (made.experiment, made.results, made.num_chains) == (asked.experiment, asked.results, asked.num_chains)
    return names and is_part(made.config, asked.config)
