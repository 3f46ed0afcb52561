"""Record the programs of a chain group under everything that determines them, so that a later run need not trace and lower them.

JAX finds an executable in its persistent cache by the program's text, which requires tracing and lowering all of it. A
record names the executables by their keys there, and says which arguments they take, what they return, and how the results
are sharded over the mesh. It is sealed JSON, and the executables are bound to their keys: nothing is unpickled. They are
the executables that a run without records would have found, so the draws are bitwise equal.

A record holds for the same settings, data, code, versions, processor and files read. Programs that call Python, and
programs of a user's own kernel, are never recorded. A user's own model may depend on something that no fingerprint covers,
so its density is traced nevertheless, and must equal the recorded one.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import logging
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal
from jax.extend.mlir import ir
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bayesmesh.config.config_registry import component_files
from bayesmesh.config.config_source_code import PACKAGE_ROOT
from bayesmesh.errors import StoreError
from bayesmesh.files import hash_file
from bayesmesh.models.base import Model
from bayesmesh.planning.plan_fingerprints import stage_fingerprint
from bayesmesh.planning.plan_specs import StageSpec
from bayesmesh.planning.planned_inputs import note_read, present_digests
from bayesmesh.sampling.chain_identity import environment
from bayesmesh.sampling.compilation import Compilation
from bayesmesh.sampling.compilation_cache import load_executable
from bayesmesh.sampling.installed_versions import find_versions
from bayesmesh.sampling.kept_programs import is_of_package, is_on_cpu
from bayesmesh.sampling.program import Program
from bayesmesh.sampling.program_costs import equations_of
from bayesmesh.sampling.program_datasets import DatasetPrograms
from bayesmesh.store.sealed import read_sealed, write_sealed

type JSON = Any

_KNOWN_TARGETS = re.compile(r"lapack_\w+|Sharding|SPMD\w+|LayoutConstraint|annotate_device_placement")
"""Functions that an executable may call: those that JAX registers with XLA, but not those of a user's module."""

_PLACES = ("jax_compilation_cache_dir",)
"""Settings of JAX that do not affect what is computed, because a project may be moved."""

_CONFIG = PACKAGE_ROOT / "config"
"""Code that no stage counts as its own, although it decides the order and dtypes of the programs' arguments."""

_log = logging.getLogger("bayesmesh")


class Executable:
    """A recorded executable, called like the compiled program from which it was recorded.

    Args:
        loaded: executable from the persistent cache.
        about: its description in the record.
        mesh: mesh on which it runs.
    """

    def __init__(self, loaded: Any, about: Mapping[str, JSON], mesh: Mesh) -> None:
        self._loaded, self._kept = loaded, about["kept"]
        self._placed = [NamedSharding(mesh, _spec(each)) for each in about["lies"]]
        shapes, self._tree = jax.tree.flatten(restore_tree(about["made"]))
        lies = [NamedSharding(mesh, _spec(each)) for each in about["made_lies"]]
        self._made = [(shape.shape, at) for shape, at in zip(shapes, lies, strict=True)]

    def __call__(self, *arguments: object) -> Any:
        leaves = jax.tree.leaves(arguments)
        given = jax.device_put([leaves[i] for i in self._kept], self._placed)
        parts = self._loaded.execute_sharded(given).disassemble_into_single_device_arrays()
        arrays = [
            jax.make_array_from_single_device_arrays(shape, at, part)
            for (shape, at), part in zip(self._made, parts, strict=True)
        ]
        return jax.tree.unflatten(self._tree, arrays)


class Records:
    """The record of the programs of a chain group: looked up before anything is traced, or made afterwards.

    Args:
        spec: specification of `compile`.
        fingerprint: of the shards.
    """

    def __init__(self, spec: StageSpec, fingerprint: str) -> None:
        model_class, _ = spec.component("model")
        devices = Mesh(np.array(jax.devices()), ("device",))
        about = {
            "config": spec.config, "chains": spec.num_chains, "data": fingerprint,
            "code": [stage_fingerprint(spec), *(hash_file(file) for file in sorted(_CONFIG.glob("*.py")))],
            "environment": environment(devices, model_class.packages), "requirements": find_versions(_requirements(), may_lack=True),
            # A user's module may have changed the settings of JAX.
            "jax": _settings(),
        }  # fmt: skip
        self._settings = about["jax"]
        key = hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode()).hexdigest()
        self._path = Path(spec.results) / ".cache" / "programs" / f"{key}.json"
        self._is_possible = jax.process_count() == 1 and _is_of_package("kernel", spec)
        self._is_own, self._density = not is_of_package(spec), ""

    def find(self) -> dict[str, JSON] | None:
        """Return the record; None if it is missing or damaged, or if files that were read have changed."""
        if not self._is_possible or not self._path.exists():
            return None
        try:
            found = read_sealed(self._path, must_have_digest=True)
        except StoreError as error:
            _log.warning("%s; its programs are traced again", error.message)
            self._path.unlink(missing_ok=True)
            return None
        if present_digests(found["observed"]) != found["observed"]:
            return None
        note_read(found["observed"])
        return found

    def load(
        self, found: Mapping[str, JSON], make: Callable[[], Program]
    ) -> tuple[Program, dict[str, Executable]] | None:
        """Return the programs of a record and their executables, which load in threads while the programs are built.

        Args:
            found: the record.
            make: builds the programs, which take the shapes of their state from the record.

        Returns:
            The programs and executables; None if an executable is gone, or if the model's density is not the recorded one.
        """
        programs, devices = found["programs"], jax.devices()[: found["num_devices"]]
        if any(about["calls_lapack"] for about in programs.values()):
            # A program that calls LAPACK crashes unless its routines have been registered, which lowering would do.
            jax.jit(jax.lax.linalg.cholesky).lower(jax.ShapeDtypeStruct((1, 1), np.float64))
        with ThreadPoolExecutor() as pool:
            loading = [pool.submit(load_executable, about["key"], devices) for about in programs.values()]
            program = make()
            is_same = not found["density"] or found["density"] == digest_density(program)
        loaded = [each.result() for each in loading]
        if not is_same or None in loaded or devices != [*program.mesh.devices.flat]:
            return None
        # These replace what the program would trace.
        vars(program)["state_shapes"] = restore_tree(found["state"])
        made = {k: Executable(each, programs[k], program.mesh) for k, each in zip(programs, loaded, strict=True)}
        return program, made

    def trace_density(self, program: Program) -> None:
        """Trace what `save` needs from a user's own model, while programs compile."""
        if self._is_own and self._can_hold(program) and _is_traced_whole(program.target.model):
            self._density = digest_density(program)

    def _can_hold(self, program: Program) -> bool:
        return self._is_possible and is_on_cpu(program) and not isinstance(program, DatasetPrograms)

    def save(
        self,
        program: Program,
        compiled: Mapping[str, Compilation],
        observed: Mapping[str, str],
        facts: Mapping[str, JSON],
    ) -> None:
        """Record programs, if possible.

        Args:
            program, compiled: the programs, and their compilations by name.
            observed: file -> stamp of other files that the job has read, see `Observation.files`.
            facts: further facts that the compile stage needs from a record.
        """
        # A user's analysis, imported since, may have changed them too.
        is_possible = self._can_hold(program) and self._settings == _settings()
        # A file of this package, too, may import a user's code, which is observed.
        is_own = self._is_own or bool(observed)
        if not is_possible or (is_own and not _is_traced_whole(program.target.model)):
            return
        state, programs = describe_tree(program.state_shapes), {k: _describe(v) for k, v in compiled.items()}
        if state is None or None in programs.values():
            return
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        digests = {name: stamp.rsplit(" ", 2)[0] for name, stamp in observed.items()}
        density = (self._density or digest_density(program)) if is_own else ""
        content = {"observed": digests, "density": density, "state": state, "programs": programs}
        write_sealed(self._path, {**facts, **content})


def _settings() -> dict[str, object]:
    """Return the current settings of JAX."""
    return {name: value for name, value in jax.config.values.items() if name not in _PLACES}


def digest_density(program: Program) -> str:
    """Return a digest of everything that programs take from the model, as traced now."""
    target = program.target
    of_one = target.position.position_shapes

    def use(position: Any, one: Any, data: Any, key: jax.Array) -> Any:
        return target.bind(data).log_density(position), target.constrain(one), target.sample_prior(key)

    key = jax.eval_shape(lambda: jax.random.key(0))
    jaxpr = jax.make_jaxpr(use)(program.position_shapes, of_one, program.data_shapes, key)
    found = hashlib.sha256(re.sub(r"0x[0-9a-f]+", "", f"{jaxpr} {of_one} {program.kernel.options!r}").encode())
    for constant in _constants(jaxpr):
        found.update(constant.tobytes())
    return found.hexdigest()


def _constants(jaxpr: ClosedJaxpr) -> Iterator[np.ndarray]:
    """Yield the constants of a jaxpr and of those nested in it, which its text shows only in part or not at all."""
    values = [*jaxpr.consts]
    for equation in equations_of(jaxpr):
        values += [variable.val for variable in equation.invars if isinstance(variable, Literal)]
        for value in jax.tree.leaves(equation.params, is_leaf=lambda x: isinstance(x, ClosedJaxpr)):
            values += getattr(value, "consts", ())
    for value in values:
        is_key = isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
        yield np.asarray(jax.random.key_data(value) if is_key else value)


def _is_traced_whole(model: Model) -> bool:
    """Return whether programs take nothing from a model except what `digest_density` traces."""
    has_units = model.unit_groups or model.normal_groups
    return type(model).observed_information is Model.observed_information and not has_units


def _is_of_package(kind: str, spec: StageSpec) -> bool:
    return all(file.is_relative_to(PACKAGE_ROOT) for file in component_files(kind, spec.config[kind]))


def _requirements() -> Iterator[str]:
    """Yield the distributions that this package and its extras require: their code is part of programs."""
    for line in requires("bayesmesh") or ():
        yield re.split(r"[^\w.-]", line, maxsplit=1)[0]


def _describe(made: Compilation) -> dict[str, JSON] | None:
    """Return the description of a program in a record, or None if the program cannot be recorded."""
    compiled, targets, made_of = made.compiled, _targets(made.lowered), describe_tree(made.lowered.out_info)
    # JAX drops arguments that a program does not use, and has no public way to tell which.
    kept = sorted(compiled._executable._kept_var_idx)
    given = compiled.in_tree.flatten_up_to(compiled.input_shardings)
    lies, made_lies = [given[i] for i in kept], jax.tree.leaves(compiled.output_shardings)
    if (
        made.key is None or made_of is None or compiled._params.const_args
        or not _calls_only_known(targets)
        or not all(isinstance(each, NamedSharding) for each in (*lies, *made_lies))
    ):  # fmt: skip
        return None
    return {
        "key": made.key, "calls_lapack": any(name.startswith("lapack_") for name in targets), "equations": made.num_equations,
        "kept": kept, "lies": [*map(_axes, lies)], "made": made_of, "made_lies": [*map(_axes, made_lies)],
    }  # fmt: skip


def _calls_only_known(targets: Collection[str]) -> bool:
    """Return whether a program calls only functions that JAX registers with XLA, and none of Python or of a user's module."""
    return all(map(_KNOWN_TARGETS.fullmatch, targets))


def _targets(lowered: jax.stages.Lowered) -> set[str]:
    """Return the functions outside XLA that a program calls."""
    found = set[str]()

    def visit(operation: Any) -> Any:
        if operation.name == "stablehlo.custom_call":
            found.add(operation.attributes["call_target_name"].value)
        return ir.WalkResult.ADVANCE

    module: Any = lowered.compiler_ir("stablehlo")
    module.operation.walk(visit)
    return found


def _axes(at: NamedSharding) -> list[JSON]:
    return [list(axis) if isinstance(axis, tuple) else axis for axis in at.spec]


def _spec(axes: Sequence[JSON]) -> PartitionSpec:
    return PartitionSpec(*(tuple(axis) if isinstance(axis, list) else axis for axis in axes))


def describe_tree(tree: Any) -> JSON:
    """Return a tree of tuples, named tuples of this package, dicts and abstract arrays as JSON; None if it contains anything else."""
    if hasattr(tree, "dtype") and hasattr(tree, "shape"):
        is_number = isinstance(tree.dtype, np.dtype)
        return {"shape": list(tree.shape), "dtype": tree.dtype.name} if is_number else None
    if tree is None:
        return {"none": True}
    cls, parts, about = type(tree), [*tree.values()] if isinstance(tree, dict) else tree, dict[str, JSON]()
    if cls is dict and all(isinstance(key, str) for key in tree):
        about = {"keys": [*tree]}
    elif isinstance(tree, tuple) and hasattr(tree, "_fields") and cls.__module__.startswith("bayesmesh."):
        about = {"type": f"{cls.__module__}:{cls.__qualname__}"}
    elif cls is not tuple:
        return None
    found = [describe_tree(part) for part in parts]
    return None if None in found else {**about, "parts": found}


def restore_tree(found: Mapping[str, JSON]) -> Any:
    """Return the tree that `describe_tree` described.

    Raises:
        StoreError: it names anything other than a named tuple of this package.
    """
    if "shape" in found:
        return jax.ShapeDtypeStruct(tuple(found["shape"]), np.dtype(found["dtype"]))
    if "none" in found:
        return None
    parts = [restore_tree(part) for part in found["parts"]]
    if "keys" in found:
        return dict(zip(found["keys"], parts, strict=True))
    if "type" not in found:
        return tuple(parts)
    module, _, name = found["type"].partition(":")
    made = getattr(importlib.import_module(module), name, None) if module.startswith("bayesmesh.") else None
    if not (isinstance(made, type) and issubclass(made, tuple)):
        raise StoreError(
            f"a record of programs names '{found['type']}', which no record holds",
            "remove `.cache/programs` in the folder of results",
        )
    return made(*parts)
