"""Recorded programs are those that a run without records compiles, and stand for no others."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
import yaml

from bayesmesh.data.base import DataSpec, FieldSpec
from bayesmesh.errors import StoreError
from bayesmesh.models.gaussian import Gaussian
from bayesmesh.models.gaussian import Options as GaussianOptions
from bayesmesh.sampling import recorded_programs
from bayesmesh.sampling.recorded_programs import describe_tree, restore_tree

# The likelihood calls LAPACK, reads a file, and depends on a variable that no fingerprint sees.
MODEL = """
import os
import jax, jax.numpy as jnp
from bayesmesh.config.settings import Settings
from bayesmesh.models.gaussian import Gaussian

class Options(Settings):
    prior_scale: float = 1.0
    noise_scale: float = 1.0

class Hidden(Gaussian):
    def log_likelihood(self, latents, rows):
        shift = float(os.environ["HIDDEN"]) + float(open("shift.txt").read())
        factor = jnp.linalg.cholesky(jnp.diag(jnp.exp(latents["mean"])) + shift)
        return super().log_likelihood(latents, rows) + jnp.log(jnp.diag(factor)).sum()
"""

RUN = """
import json, os, sys
from pathlib import Path
import zarr
from bayesmesh.cli import main
from bayesmesh.errors import ConfigError
from bayesmesh.running import fork_reuse
from bayesmesh.stages import compile
from bayesmesh.store.sealed import read_sealed
# `sample` takes the executables of `compile` only in a fork.
fork_reuse._State.began, fork_reuse.MOST_BYTES = 1.0, 2**40

def trace_again():
    def refuse(*_):
        raise ConfigError("traced")
    compile._compile, before = refuse, compile._compile
    code = main(["compile", "--experiment", "hidden", "--cores", "2"])
    compile._compile = before
    return "traced" if code else "recorded"

found = []
for word in sys.argv[1:]:
    if word == "trace":
        found.append(trace_again())
        continue
    if word.isdigit():
        os.environ["HIDDEN"] = word
        continue
    if word == "shift":
        Path("shift.txt").write_text("2")
        continue
    if word == "damage":
        (record,) = Path("results/.cache/programs").iterdir()
        record.write_text(record.read_text().replace("[", "[1,", 1))
        continue
    options = ["--cores", "2"] if word in ("compile", "sample") else []
    assert main([word, "--experiment", "hidden", *options]) == 0
    if word == "compile":
        audit = read_sealed(Path("results/hidden/program/audit.json"))
        assert list(audit["observed"]) == ["shift.txt"]
        found.append(audit["programs"]["segment"]["cache"])
draws = {}
for path in sorted(Path("results/hidden/chains").glob("*/group-000/draws*")):
    for name, array in zarr.open_group(str(path), mode="r").members(max_depth=None):
        if getattr(array, "shape", ()):
            draws[name] = array[:].tobytes().hex()
print(json.dumps([found, draws]))
"""


@pytest.fixture
def run(tmp_path: Path, user_environment: dict[str, str]) -> Callable[..., tuple[list[str], dict[str, str], str]]:
    """Return a function that runs stages in a process as a user's.

    It returns where each `compile` found its programs, all draws, and what was said.
    """
    experiment = {
        "title": "Hidden", "data": {"source": "gaussian", "num_rows": 16}, "model": {"name": "hidden_model:Hidden"},
        "kernel": {"name": "hmc"}, "sampling": {"chains": 2, "warmup": 20, "draws": 8},
    }  # fmt: skip
    for name, text in {
        "hidden_model.py": MODEL, "shift.txt": "0", "config/config.yaml": "experiments: [hidden]\n",
        "config/experiments/hidden.yaml": yaml.safe_dump(experiment),
    }.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    def run(*words: str) -> tuple[list[str], dict[str, str], str]:
        variables = {**user_environment, "HIDDEN": "1", "PYTHONPATH": str(tmp_path)}
        command = [sys.executable, "-c", RUN, *words]
        done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found, draws = json.loads(done.stdout.splitlines()[-1])
        return found, draws, done.stderr

    return run


def test_recorded_programs_make_the_same_draws_and_stand_for_no_others(
    tmp_path: Path, run: Callable[..., tuple[list[str], dict[str, str], str]]
) -> None:
    found, draws, _ = run("fetch", "shard", "compile", "sample")
    assert found == ["cold"]
    assert {"mean", "lp"} <= {name.rpartition("/")[2] for name in draws}
    for folder in ("chains", "program"):
        (tmp_path / "results" / "hidden" / folder).rename(tmp_path / folder)
    # In a process in which nothing has been lowered that calls LAPACK. What no fingerprint sees changes the density, which is
    # traced: its programs are others. A damaged record is not used.
    found, recorded, said = run("compile", "sample", "2", "trace", "1", "trace", "damage", "trace", "shift", "trace")
    assert found == ["recorded", "traced", "recorded", "traced", "traced"]
    assert recorded == draws
    assert "is damaged: its content is not what was written; its programs are traced again" in said


class Pair(NamedTuple):
    """Not of the package."""

    one: Any
    other: Any


@pytest.mark.parametrize("tree", [Pair(1.0, 2.0), [np.zeros(2)], {"key": jax.random.key(0)}, ({"x": object()},)])
def test_other_trees_are_not_recorded(tree: Any) -> None:
    assert describe_tree(tree) is None


def test_a_tree_comes_back() -> None:
    from bayesmesh.kernels.base import Position
    from bayesmesh.sampling.program_values import ChainState

    shape = jax.ShapeDtypeStruct((4, 2), np.dtype(np.float32))
    tree = ChainState(Position(shape, None), {"b": (shape,), "a": shape})
    found = restore_tree(json.loads(json.dumps(describe_tree(tree))))
    assert (found, jax.tree.structure(found)) == (tree, jax.tree.structure(tree))


def test_constants_within_a_jaxpr_are_part_of_its_digest() -> None:
    def constants(value: float) -> list[bytes]:
        inner = jax.jit(lambda x: x + np.full(50, value))
        jaxpr = jax.make_jaxpr(lambda x: jax.lax.fori_loop(0, 3, lambda _, y: inner(y), x))(np.zeros(50))
        return [each.tobytes() for each in recorded_programs._constants(jaxpr)]

    assert np.full(50, 1.5).tobytes() in constants(1.5)
    assert constants(1.5) != constants(2.5)


def test_a_key_that_a_model_keeps_is_part_of_the_digest() -> None:
    def constants(seed: int) -> list[bytes]:
        key = jax.random.key(seed)
        jaxpr = jax.make_jaxpr(lambda x: x + jax.random.normal(key, x.shape))(np.zeros(2))
        return [each.tobytes() for each in recorded_programs._constants(jaxpr)]

    assert constants(0) != constants(1)


def test_a_model_of_which_programs_take_more_than_its_density_is_not_recorded() -> None:
    class Normals(Gaussian):
        @property
        def normal_groups(self) -> tuple[str, ...]:
            return ("local",)

    options, spec = GaussianOptions(), DataSpec(4, {"x": FieldSpec((), "float32")}, {}, "float32")
    assert [recorded_programs._is_traced_whole(each(options, spec)) for each in (Gaussian, Normals)] == [True, False]


@pytest.mark.parametrize("name", ["builtins:list", "bayesmesh.files:write_text", "bayesmesh.kernels.base:Missing"])
def test_a_record_that_names_anything_but_a_named_tuple_is_refused(name: str) -> None:
    with pytest.raises(StoreError, match=f"names '{name}'"):
        restore_tree({"type": name, "parts": []})


def test_calls_of_python_are_not_recorded() -> None:
    def call(x: Any) -> Any:
        return jax.pure_callback(np.sin, jax.ShapeDtypeStruct((), np.float32), x)

    one = jax.ShapeDtypeStruct((), np.float32)
    assert not recorded_programs._calls_only_known(recorded_programs._targets(jax.jit(call).lower(one)))
    of_lapack = recorded_programs._targets(jax.jit(jax.numpy.linalg.cholesky).lower(one.update(shape=(2, 2))))
    assert of_lapack
    assert recorded_programs._calls_only_known(of_lapack)
