"""Programs of a chain group, built and run as sampling does."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from cases import NUM_ROWS, Case


@dataclasses.dataclass(frozen=True)
class Run:
    """What the programs of a chain group gave: states, draws, and statistics of as many iterations as were asked for."""

    warmup_state: Any
    warmup_statistics: Mapping[str, np.ndarray]
    state: Any
    statistics: Mapping[str, np.ndarray]
    draws: Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Built:
    """A program, compiled, with its data on the devices."""

    program: Any
    compiled: Mapping[str, Any]
    data: Any

    def arguments(self, seed: int = 3, first_chain: int = 0) -> Any:
        """Return the numbers that the programs are called with."""
        from bayesmesh.sampling.program.values import GroupKey

        return self.program.arguments(GroupKey(seed, first_chain))

    def run(
        self, num_draws: int, seed: int = 3, first_chain: int = 0, segment: int = 0, *, is_through_host: bool = False
    ) -> Run:
        """Go from the start to as many draws, in segments of `segment` iterations where that is given.

        Args:
            is_through_host: whether every segment begins from a checkpoint, with the leaves of the state on the host.
        """
        import jax

        arguments, warmup = self.arguments(seed, first_chain), self.program.sampling.warmup
        begin, _ = self.compiled["initialise"](arguments, self.data)
        warm, warmup_statistics, _ = self.go(arguments, begin, 0, warmup, segment, is_through_host=is_through_host)
        state, statistics, draws = self.go(arguments, warm, warmup, num_draws, segment, is_through_host=is_through_host)
        return Run(jax.device_get(warm), warmup_statistics, jax.device_get(state), statistics, draws)

    def go(
        self, arguments: Any, state: Any, first: int, wanted: int, segment: int = 0, *, is_through_host: bool = False
    ) -> tuple[Any, dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Make `wanted` iterations from absolute iteration `first`; returns state, statistics and draws."""
        import jax

        parts, done = [], 0
        while done < wanted or not parts:
            count = min(segment or self.program.slice_draws, wanted - done)
            given = self.program.state_to_device(checkpoint(state)) if is_through_host else state
            state, statistics, draws = self.compiled["segment"](
                arguments, self.data, given, np.uint32(first + done), np.int32(count)
            )
            parts.append((self.program.statistics_to_host(statistics, count), self.program.draws_to_host(draws, count)))
            done += count
        return state, *jax.tree.map(lambda *x: np.concatenate(x), *parts)


def checkpoint(state: Any) -> dict[str, np.ndarray]:
    """Return the leaves of a state by name, on the host, as the store keeps them."""
    import jax

    from bayesmesh.sampling.program.values import name_leaves

    return dict(zip(name_leaves(state), map(np.asarray, jax.tree.leaves(state)), strict=True))


_COMPILED: dict[Any, Mapping[str, Any]] = {}


def build(
    case: Case,
    kernel: str,
    *,
    num_chains: int = 4,
    num_warmup: int = 20,
    most_draws: int = 32,
    mesh: tuple[int, int] = (1, 1),
    row_tile: int = NUM_ROWS,
    initial: Mapping[str, Any] | None = None,
    sharding: str = "named",
    is_optimised: bool = True,
    takes_turns: bool | None = None,
    **kernel_options: Any,
) -> Built:
    """Return compiled programs; `takes_turns` is chosen by the program where it is None."""
    from bayesmesh.sampling.program.chain_group import PROGRAMS

    program = make_program(
        case, kernel, num_chains, num_warmup, most_draws, mesh, row_tile, initial, kernel_options, sharding
    )
    if takes_turns is not None:
        program.takes_turns = takes_turns
    key = (
        case.model_class, case.spec.num_rows, case.spec.entry_counts, case.spec.dtype, repr(case.spec.fields),
        repr(case.spec.constants), _constants(case.options), kernel, _constants(program.kernel.options), num_chains,
        most_draws, mesh, row_tile, *(getattr(program.sampling.initial, name) for name in ("method", "steps", "climbers", "curvature_at")), sharding,
        is_optimised, program.takes_turns, program.target.uses_gpu_path,
    )  # fmt: skip
    if key not in _COMPILED:
        options = {"xla_backend_optimization_level": 3 if is_optimised else 0}
        _COMPILED[key] = {name: program.trace(name).lower().compile(options) for name in PROGRAMS}
    return Built(program, _COMPILED[key], program.put_data(case.rows))


def forget() -> None:
    """Drop all compiled programs, of `build` and of JAX."""
    import jax

    _COMPILED.clear()
    jax.clear_caches()


def _constants(options: Any) -> str:
    """The options that are compiled in; tests/unit/sampling/test_arguments.py shows that no other ones are."""
    from bayesmesh.config.settings import numeric_options

    numbers = numeric_options(options)
    return repr({k: v for k, v in options.model_dump().items() if k not in numbers})


def make_program(
    case: Case,
    kernel: str,
    num_chains: int = 4,
    num_warmup: int = 20,
    most_draws: int = 32,
    mesh: tuple[int, int] = (1, 1),
    row_tile: int = NUM_ROWS,
    initial: Mapping[str, Any] | None = None,
    kernel_options: Mapping[str, Any] | None = None,
    sharding: str = "named",
) -> Any:
    import jax
    from jax.sharding import AxisType

    from bayesmesh.config.blocks import SamplingSettings
    from bayesmesh.config.registry import load_component, options_class
    from bayesmesh.sampling.density.mesh import CHAIN_AXIS, DATA_AXIS
    from bayesmesh.sampling.density.rows import lay_out_rows
    from bayesmesh.sampling.density.sharding import make_target
    from bayesmesh.sampling.program.chain_group import Program
    from bayesmesh.sampling.program.sizes import resolve_auto

    devices = jax.devices()[: mesh[0] * mesh[1]]
    placed = jax.make_mesh(mesh, (CHAIN_AXIS, DATA_AXIS), axis_types=(AxisType.Auto,) * 2, devices=devices)
    options = options_class("kernel", kernel)(**(kernel_options or {}))
    # Draws of the prior by default: a start for every kernel.
    initial = {"method": "prior"} | dict(initial or {})
    sampling = SamplingSettings.model_validate({"chains": num_chains, "warmup": num_warmup, "initial": initial})
    layout = lay_out_rows(case.spec.num_rows, mesh[1], row_tile, case.spec.entry_counts)
    target = make_target(case.model, case.spec, layout, placed, sharding)
    options = resolve_auto(options, target, is_at_mode=sampling.initial.method == "laplace")
    return Program(
        target, load_component("kernel", kernel)(options, num_warmup), placed, sampling, num_chains, most_draws
    )
