"""Check a kernel against its declarations while its programs are traced: axes of its arrays, statistics, an unchanged state.

A wrong declaration would otherwise end in a JAX error that names neither the kernel nor the field.
"""

from __future__ import annotations

import inspect
import numbers
import re
from collections.abc import Iterable, Mapping
from typing import Any

import jax

from bayesmesh.errors import ConfigError
from bayesmesh.kernels.base import Axes, Kernel, TakesTurns
from bayesmesh.kernels.hamiltonian.metrics.base import Metric

_CONTRACT = "docs/contracts/kernel.md says what a kernel declares"
_PER_CHAIN = ("lp", "log_likelihood")
_OF_METRIC = {"metric": "data_axes", "estimate": "estimate_axes"}
"""Part of the common warmup that a metric declares -> its method."""


def check_axes(
    kernel: object, method: str, shapes: object, declared: object, lengths: Mapping[str, tuple[int, ...] | None]
) -> None:
    """Compare the axes that a kernel declares with those of its arrays.

    Args:
        kernel: the kernel.
        method: its method that declares them.
        shapes: abstract arrays; None for a part of a position without coordinates.
        declared: their `Axes`.
        lengths: name of an axis -> the lengths that it may have; None for any.

    Raises:
        ConfigError: an array has no declared axes, or more than it has dimensions, or one of another length.
    """
    found = _by_path(shapes)
    axes = _axes_of_each(found, _by_path(declared))
    for path in [*found, *axes]:
        shape, names = getattr(found.get(path), "shape", None), getattr(axes.get(path), "names", None)
        problem, remedy = "", _CONTRACT
        if path not in found:
            problem = f" declares axes for {path}, but there is no such array"
        elif names is None and found[path] is not None:
            problem = f" declares no Axes for {path}, an array of shape {shape}"
        elif names is not None and shape is not None and len(names) > len(shape):
            problem = f": {path} has the axes {names}, and the array's shape is {shape}"
        for axis, (name, length) in enumerate(zip(names or (), shape or (), strict=False)):
            if name is not None and name not in lengths:
                problem, remedy = f": {path} has an axis '{name}'", f"use {', '.join(lengths)} or None"
            elif name is not None and (allowed := lengths[name]) is not None and length not in allowed:
                expected = " or ".join(map(str, allowed))
                problem = f": axis {axis} of {path} is '{name}', of length {expected}; the array's shape is {shape}"
        if problem:
            raise ConfigError(f"{_declared_by(kernel, method, path)}(){problem}", remedy)


def check_fields(kernel: object, state: object) -> None:
    """Refuse a state without the fields from which draws are taken.

    Raises:
        ConfigError: one is missing.
    """
    for name in ("position", "log_prior", "log_likelihood"):
        if not hasattr(state, name):
            raise ConfigError(f"{_name(kernel)}: the state that init() returns lacks {name}", _CONTRACT)


def check_adaptive(kernel: Kernel[Any, Any, Any, Any]) -> None:
    """Refuse a kernel that would adapt beyond its warmup, while draws are kept.

    Raises:
        ConfigError: it does.
    """
    number, most = kernel.num_adaptive, kernel.num_warmup
    if isinstance(number, numbers.Real) and isinstance(most, int) and not 0 <= number <= most:
        raise ConfigError(f"{_name(kernel)}: num_adaptive is {number} of {most} warmup iterations", _CONTRACT)


def offers_turns(kernel: object) -> bool:
    """Return whether a kernel offers its own `step` in parts."""
    return isinstance(kernel, TakesTurns) and type(kernel).step is TakesTurns.step


def check_turns(kernel: Kernel[Any, Any, Any, Any], state: object, declared: object, num_chains: int) -> None:
    """Refuse a kernel that offers `step` in parts where chains cannot go on without each other.

    Args:
        kernel: the kernel.
        state: its abstract state.
        declared: the `Axes` of the state, which fit it.
        num_chains: number of all chains.

    Raises:
        ConfigError: chains interact, some are not reported, or they share an array of the state.
    """
    found = _by_path(state)
    axes = _axes_of_each(found, _by_path(declared))
    shared = [
        p for p, x in found.items() if getattr(x, "shape", ()) and getattr(axes.get(p), "names", ())[:1] != ("chain",)
    ]
    if kernel.interacts:
        problem = "and its chains interact"
    elif (num_reported := kernel.num_chains_reported(num_chains)) != num_chains:
        problem = f"and reports {num_reported} of {num_chains} chains"
    elif shared:
        problem = f"and {shared[0]} of its state is an array without the axis 'chain'"
    else:
        return
    raise ConfigError(
        f"{_name(kernel)}: offers step() in parts, {problem}",
        f"define step() in place of the parts, and chains wait for each other; {_CONTRACT}",
    )


def check_complete(kernel: object, found: jax.Array, num_chains: int) -> jax.Array:
    """Return what `is_complete` returns; refuse all but a bool for each chain.

    Raises:
        ConfigError: it has another shape or dtype.
    """
    if found.shape != (num_chains,) or found.dtype != bool:
        raise ConfigError(
            f"{_name(kernel)}: is_complete() returns {found.dtype} of shape {found.shape}",
            f"return a bool for each chain, {(num_chains,)}: whether its transition is complete",
        )
    return found


def check_state[Tree](kernel: object, method: str, after: Tree, before: Tree, maker: str = "init") -> Tree:
    """Return a state, or other data that a kernel passes on; refuse it if a method changes its tree structure, a shape or a dtype.

    Args:
        kernel: the kernel.
        method: its method.
        after: what it returns.
        before: what it was given.
        maker: the method that made the first one.

    Raises:
        ConfigError: the method does.
    """
    then, now = _by_path(before), _by_path(after)
    for path in [*then, *now]:
        one, other = (_describe(arrays.get(path)) for arrays in (then, now))
        if one != other:
            raise ConfigError(
                f"{_name(kernel)}: {method}() returns {path} as {other}, and was given {one}",
                f"return every array with the shape and dtype that `{maker}` gave it",
            )
    return after


def read_statistics(kernel: object, names: Iterable[str], info: object, num_reported: int) -> dict[str, jax.Array]:
    """Return the fields of an Info that the kernel declares as statistics.

    Raises:
        ConfigError: a field is missing, or has a shape other than () or (reported chain,); log densities must be per chain.
    """
    said, statistics = f"{_name(kernel)}: Info of step()", {}
    for name in names:
        if not hasattr(info, name):
            raise ConfigError(f"{said} lacks {name}, which `statistics` declares", _CONTRACT)
        statistics[name] = getattr(info, name)
        shape, is_per_chain = statistics[name].shape, name in _PER_CHAIN
        if shape != (num_reported,) and (shape != () or is_per_chain):
            expected, or_shared = ("", "") if is_per_chain else (" or ()", ", or one that all chains share")
            raise ConfigError(
                f"{said}: {name} has shape {shape}, not {(num_reported,)}{expected}",
                f"return one value for each reported chain{or_shared}",
            )
    return statistics


def _name(kernel: object) -> str:
    return f"{inspect.getsourcefile(type(kernel))}: kernel {type(kernel).__name__}"


def _declared_by(kernel: object, method: str, path: str) -> str:
    """Return the file, class and method that declare the axes of an array; a metric declares its own."""
    metric = getattr(kernel, "metric", None)
    found = re.match(r"\w+", path)
    if isinstance(metric, Metric) and method == "adaptation_axes" and found and found[0] in _OF_METRIC:
        return f"{inspect.getsourcefile(type(metric))}: metric {type(metric).__name__}: {_OF_METRIC[found[0]]}"
    return f"{_name(kernel)}: {method}"


def _axes_of_each[Leaf](found: Mapping[str, Leaf], declared: Mapping[str, Leaf]) -> dict[str, Leaf]:
    """Return declared axes by path; axes in place of a tuple are repeated for each of its arrays."""
    tuples = {path: whole for path in found if (whole := path.rpartition("[")[0]) in declared and path not in declared}
    alone = {path: axes for path, axes in declared.items() if path not in tuples.values()}
    return alone | {path: declared[whole] for path, whole in tuples.items()}


def _by_path(tree: object) -> dict[str, jax.ShapeDtypeStruct | Axes | None]:
    leaves = jax.tree_util.tree_leaves_with_path(tree, is_leaf=lambda x: x is None or isinstance(x, Axes))
    return {jax.tree_util.keystr(path).removeprefix("."): leaf for path, leaf in leaves}


def _describe(array: object) -> str:
    return f"{array.dtype} of shape {array.shape}" if hasattr(array, "dtype") and hasattr(array, "shape") else "nothing"
