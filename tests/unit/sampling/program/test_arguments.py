"""Numbers of a run are arguments of its programs: other values need no other program, and do what a constant would."""

from __future__ import annotations

import contextlib
import hashlib
from typing import Any

import jax
import numpy as np
import pytest
from pydantic import ValidationError

from bayesmesh.config.registry import list_components, options_class
from bayesmesh.config.settings import numeric_options
from bayesmesh.sampling.program.chain_group import PROGRAMS, Program
from bayesmesh.sampling.program.values import GroupKey
from kernel_options import kernels_of_any_target

NUM_WARMUP, NUM_DRAWS = 8, 6


def fingerprint(program: Program) -> dict[str, str]:
    """Name -> digest of the lowered program."""
    texts = {name: program.trace(name).lower().as_text() for name in PROGRAMS}
    return {k: hashlib.sha256(v.encode()).hexdigest() for k, v in texts.items()}


def changed(options: Any) -> dict[str, float | int]:
    """Every numeric option with another value that is allowed."""
    return {name: another(options, name, value) for name, value in numeric_options(options).items()}


def another(options: Any, name: str, value: float) -> float:
    """The first of some other values that the option takes."""
    near = (value + 1, value - 1) if isinstance(value, int) else (0.9 * value, 1.1 * value, value + 0.1, value - 0.1)
    given = options.model_dump()
    for each in near:
        with contextlib.suppress(ValidationError):
            if each != value:
                return numeric_options(type(options).model_validate(given | {name: each}))[name]
    raise AssertionError(f"option '{name}' = {value} takes none of {near}")


@pytest.mark.parametrize("kernel", kernels_of_any_target())
def test_other_numbers_are_the_same_program(make_case, make_program, kernel) -> None:
    """All of them at once, of kernel and model, with the length of warmup and where chains start."""
    constant = {"max_tree_depth": 2} if kernel == "nuts" else {}
    options = options_class("kernel", kernel)(**constant)
    numbers = changed(options)
    assert {"initial_step_size", "target_acceptance"} & set(type(options).model_fields) <= set(numbers)
    one = make_program(make_case("gaussian"), kernel, kernel_options=constant)
    other = make_program(
        make_case("gaussian", prior_scale=2.5), kernel, num_warmup=77,
        initial={"spread": 0.5, "widening": 2.0, "learning_rate": 0.2},
        kernel_options=constant | numbers,
    )  # fmt: skip
    first, second = one.arguments(GroupKey(0, 0)), other.arguments(GroupKey(9, 4))
    second = second._replace(attempt=first.attempt + 1)
    assert all(np.all(x != y) for x, y in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True))
    assert fingerprint(one) == fingerprint(other)


def test_what_is_compiled_in_changes_the_program(make_case, make_program) -> None:
    """The comparison above can fail."""
    case = make_case("gaussian")
    programs = [make_program(case, "hmc", kernel_options={"metric": m}) for m in ("identity", "diagonal")]
    assert fingerprint(programs[0])["segment"] != fingerprint(programs[1])["segment"]


@pytest.mark.parametrize("model", list_components("model"))
def test_numbers_of_every_model_are_arguments(make_case, make_program, model) -> None:
    """The start of the chains alone: it has prior and likelihood in it, and is traced in a moment."""
    case = make_case(model)
    other = make_case(model, **changed(case.options))
    texts = [make_program(c, "hmc").trace("initialise").lower().as_text() for c in (case, other)]
    assert texts[0] == texts[1]


def values(**numbers: Any) -> dict[str, Any]:
    """Numbers of a run, some of them changed."""
    return {
        "prior_scale": 1.0, "initial_step_size": 0.1, "num_leapfrog_steps": 2, "num_warmup": NUM_WARMUP, "seed": 3,
        "spread": 1.0, "target_acceptance": 0.8,
    } | numbers  # fmt: skip


def built(build: Any, make_case: Any, given: dict[str, Any]) -> Any:
    return build(
        make_case("gaussian", prior_scale=given["prior_scale"]), "hmc", num_warmup=given["num_warmup"],
        is_optimised=False, initial={"spread": given["spread"]},
        **{k: given[k] for k in ("initial_step_size", "num_leapfrog_steps", "target_acceptance")},
    )  # fmt: skip


CHANGES = [
    {"prior_scale": 0.3}, {"initial_step_size": 0.02}, {"num_warmup": 3}, {"seed": 4},
    {"spread": 0.1}, {"target_acceptance": 0.5},
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_another_number_gives_other_draws_by_the_same_program(build, make_case, change) -> None:
    usual, other = (built(build, make_case, values(**c)) for c in ({}, change))
    assert usual.compiled is other.compiled
    seeds = (3, change.get("seed", 3))
    first, second = (b.run(NUM_DRAWS, seed=s).draws["mean"] for b, s in zip((usual, other), seeds, strict=True))
    assert (first[-1] != second[-1]).all()


def test_an_argument_does_what_a_constant_would(build, make_case) -> None:
    """Every number changed, and compiled in: plain Python numbers in model and kernel, as if nothing were an argument."""
    given = values(prior_scale=0.3, initial_step_size=0.05, num_leapfrog_steps=3, num_warmup=5, seed=11, spread=0.5)
    with_arguments = built(build, make_case, given)
    expected = with_arguments.run(NUM_DRAWS, seed=11, first_chain=2)

    case = make_case("gaussian", prior_scale=0.3)
    program = built(build, make_case, given).program
    program.target.with_options = lambda options: program.target
    program.kernel.with_arguments = lambda options, num_warmup: program.kernel
    assert isinstance(program.kernel.options.initial_step_size, float)
    assert isinstance(program.kernel.num_warmup, int)
    arguments = program.arguments(GroupKey(11, 2))
    data = program.put_data(case.rows)
    state, _ = jax.jit(lambda d: program.initialise(arguments, d))(data)
    run = jax.jit(lambda d, s, i, n: program.segment(arguments, d, s, i, n))
    count = given["num_warmup"] + NUM_DRAWS
    state, statistics, draws = run(data, state, np.uint32(0), np.int32(count))
    kept = slice(given["num_warmup"], count)
    np.testing.assert_allclose(draws["mean"][kept], expected.draws["mean"], rtol=1e-12, atol=1e-12)
    found = program.statistics_to_host(statistics, count)
    for name, value in expected.statistics.items():
        np.testing.assert_allclose(found[name][kept], value, rtol=1e-11, err_msg=name)
