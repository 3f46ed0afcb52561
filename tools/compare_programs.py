#!/usr/bin/env python3
"""Compare the sampling programs of two source trees: processor seconds of compilation, and gradients per second.

    tools/compare_programs.py --before OTHER/src --after src --kernel nuts --model matrix_factorization --rounds 3
    tools/compare_programs.py --before OTHER/src --after src --kernel hmc --model softmax_regression --rate

The trees take turns in fresh processes, so that a machine whose speed drifts slows both. A tree of before the flat
position (decision 0001) has its modules elsewhere and four programs; it is measured by the same questions.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SEED = 0
SLICE = 64
ROUND_SECONDS = 0.5
"""Aimed time of one measured call."""


def make_data(model: str, *, is_large: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return simulated rows of a shipped model, and its constants; few rows where only compilation is measured."""
    import numpy as np

    generator = np.random.default_rng(SEED)
    if model == "matrix_factorization":
        shape = (943, 1682) if is_large else (60, 40)
        return {"watched": (generator.random(shape) < 0.06).astype("uint8")}, {}
    if model == "hidden_markov":
        return {"emissions": generator.normal(2, 1, (70, 51))}, {}
    if model == "softmax_regression":
        rows, pixels = (20_000, 784) if is_large else (200, 64)
        features = generator.integers(0, 255, (rows, pixels)).astype("uint8")
        labels = generator.integers(0, 10, rows).astype("uint8")
        return {"features": features, "label": labels}, {"num_classes": 10, "feature_scale": 255}
    return {"x": generator.normal(size=(1000, 3))}, {"noise_scale": 1.0}


def make_program(arguments: argparse.Namespace, rows: dict[str, Any], constants: dict[str, Any]) -> tuple[Any, Any]:
    """Return the program of a tree and the names of its programs."""
    import importlib

    def find(*names: str) -> Any:
        for name in names:
            module, _, attribute = name.rpartition(".")
            try:
                return getattr(importlib.import_module(f"bayesmesh.{module}"), attribute)
            except (ImportError, AttributeError):
                continue
        raise SystemExit(f"{arguments.tree}: has none of {', '.join(names)}")

    registry = "config.config_registry", "config.registry", "experiment.registry"
    component_path, load_component, read_options = (
        find(*(f"{module}.{name}" for module in registry))
        for name in ("component_path", "load_component", "read_options")
    )
    compute_class = find(
        "config.config_blocks.ComputeSettings", "config.blocks.ComputeSettings", "experiment.compute.ComputeSettings"
    )
    sampling_class = find(
        "config.config_blocks.SamplingSettings",
        "config.blocks.SamplingSettings",
        "experiment.sampling.SamplingSettings",
    )
    lay_out_rows = find(
        "sampling.program_rows.lay_out_rows", "sampling.rows.lay_out_rows", "sampling.mesh.lay_out_rows"
    )
    row_tile = find(
        "sampling.program_costs.row_tile",
        "sampling.program_sizes.row_tile",
        "sampling.costs.row_tile",
        "sampling.sizes.row_tile",
        "sampling.plan.row_tile",
    )
    names = find("sampling.program.PROGRAMS", "sampling.program.PHASES")
    build_mesh, configure_jax = (
        find(*(f"{module}.{name}" for module in ("sampling.sampling_mesh", "sampling.mesh")))
        for name in ("build_mesh", "configure_jax")
    )
    data_spec, field_spec = find("data.base.DataSpec"), find("data.base.FieldSpec")

    compute = compute_class.model_validate({"dtype": "float32", "mesh": {"chain": 1, "data": 1}})
    configure_jax(compute, 1)
    num_rows = len(next(iter(rows.values())))
    fields = {k: field_spec(v.shape[1:], v.dtype.name) for k, v in rows.items()}
    spec = data_spec(num_rows, fields, constants, "float32")
    model = load_component("model", arguments.model)(read_options(component_path("model", arguments.model))(), spec)
    options: dict[str, Any] = {"initial_step_size": 1e-4} | (
        {"num_leapfrog_steps": 20} if arguments.kernel == "hmc" else {}
    )
    num_warmup = 0 if arguments.rate else 200
    option_class = read_options(component_path("kernel", arguments.kernel))
    # The metric that all trees have.
    options |= {"metric": "diagonal"} if "metric" in option_class.model_fields else {}
    kernel_options = option_class(**options)
    kernel = load_component("kernel", arguments.kernel)(kernel_options, num_warmup)
    sampling = sampling_class.model_validate(
        {"chains": arguments.chains, "warmup": num_warmup, "initial": {"spread": 0.01}}
    )
    mesh = build_mesh(compute, num_chains=arguments.chains, is_sharded=False)
    tile = row_tile(model, spec, arguments.chains, mesh.devices.flat[0].platform)
    make_target = find("sampling.program_sharding.make_target", "sampling.collective.make_target")
    target = make_target(model, spec, lay_out_rows(num_rows, 1, tile), mesh, "named")
    program_class = find("sampling.program.Program")
    return program_class(target, kernel, mesh, sampling, arguments.chains, SLICE), names


def processor_seconds() -> float:
    """Return what this process has used so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Compile a tree's programs and, if asked, run them; called in a process of its own."""
    sys.path.insert(0, str(arguments.tree))
    rows, constants = make_data(arguments.model, is_large=arguments.rate)
    program, names = make_program(arguments, rows, constants)
    compiled, seconds = {}, {}
    for name in names:
        lowered = program.trace(name).lower()
        compiler_options = program.compiler_options(name) if hasattr(program, "compiler_options") else None
        start = processor_seconds()
        compiled[name] = lowered.compile(compiler_options)
        seconds[name] = processor_seconds() - start
    found = {
        "device": program.mesh.devices.flat[0].device_kind,
        "compile": sum(seconds.values()),
        "loop": sum(v for k, v in seconds.items() if k != "initialise"),
    }
    return found | ({"rate": rate(arguments, program, compiled, rows)} if arguments.rate else {})


def rate(arguments: argparse.Namespace, program: Any, compiled: dict[str, Any], rows: dict[str, Any]) -> float:
    """Return the median of gradients per second, over all chains, of seven calls."""
    import jax
    import numpy as np

    from bayesmesh.sampling.program import GroupKey  # type: ignore[import-not-found,attr-defined,unused-ignore]

    data, key = program.put_data(rows), GroupKey(1, 0)
    if "segment" in compiled:
        given = (program.arguments(key), data)
        state, sample = compiled["initialise"](*given), compiled["segment"]
        # Newer programs also return which chains have a finite start.
        state = state if hasattr(state, "kernel") else state[0]
    else:
        given = (*key.arguments(), data)
        state, sample = compiled["finish"](compiled["initialise"](*given)), compiled["sample"]

    def run(count: int) -> tuple[float, int]:
        start = time.perf_counter()
        _, info, _ = jax.block_until_ready(sample(*given, state, np.uint32(1), np.int32(count)))
        seconds = time.perf_counter() - start
        if hasattr(info, "like"):
            # Newer programs count those of each chain.
            return seconds, int(program.statistics_to_host(info, count)["n_steps"].sum()) // arguments.chains
        steps = info["n_steps"] if isinstance(info, dict) else info.n_steps
        return seconds, int(np.asarray(steps)[:count].sum())

    run(1)
    count = int(max(1, min(SLICE, ROUND_SECONDS / max(run(1)[0], 1e-4))))
    rates = [steps * arguments.chains / seconds for seconds, steps in (run(count) for _ in range(7))]
    return statistics.median(rates)


def main() -> int:
    """Measure both trees in turns and print the ratios of after to before."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--before", type=Path)
    parser.add_argument("--after", type=Path)
    parser.add_argument("--tree", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--kernel", default="nuts")
    parser.add_argument("--model", default="matrix_factorization")
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", action="store_true", help="gradients per second too, on more data")
    arguments = parser.parse_args()
    if arguments.tree:
        print(json.dumps(measure(arguments)))
        return 0
    if not (arguments.before and arguments.after):
        parser.error("--before and --after are needed")
    for number in range(arguments.rounds):
        results = []
        for tree in (arguments.before, arguments.after):
            command = [sys.executable, __file__, "--tree", str(tree.resolve()), *sys.argv[1:]]
            environment = {**os.environ, "PYTHONPATH": ""} | (
                {"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}
            )
            done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
            if done.returncode:
                sys.exit(f"{tree}: {done.stderr.strip().splitlines()[-1]}")
            results.append(json.loads(done.stdout.splitlines()[-1]))
        before, after = results
        ratios = {k: after[k] / before[k] for k in before if k != "device"}
        said = ", ".join(f"{k} {before[k]:.4g} -> {after[k]:.4g} ({ratio:.2f})" for k, ratio in ratios.items())
        print(f"round {number + 1}, {before['device']}: {said}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
