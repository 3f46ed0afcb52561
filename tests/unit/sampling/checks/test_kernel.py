"""A kernel whose declarations do not fit its arrays is refused when its programs are traced, by its name and field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import pytest

from bayesmesh.errors import ConfigError
from bayesmesh.kernels.base import CHAIN, POSITION, SCALAR, Axes, Kernel, Position
from bayesmesh.kernels.hmc import Hmc
from bayesmesh.kernels.nuts import Nuts
from bayesmesh.sampling.checks.kernel import offers_turns
from bayesmesh.sampling.program.chain_group import Program

NUM_CHAINS = 4


@pytest.fixture
def trace(make_case, make_program) -> Callable[..., None]:
    """A function of methods and attributes that lowers the program of a kernel in which they stand for its parent's."""

    def run(mesh: tuple[int, int] = (1, 1), parent: type[Kernel] = Hmc, **changed: Any) -> None:
        right = make_program(make_case("gaussian"), parent.__name__.lower(), num_chains=NUM_CHAINS, mesh=mesh)
        kernel_class: type[Kernel] = type("Mine", (parent,), {"__module__": __name__, **changed})
        kernel = kernel_class(right.kernel.options, right.kernel.num_warmup)
        program = Program(right.target, kernel, right.mesh, right.sampling, NUM_CHAINS, right.slice_draws)
        # Small programs wait, whatever their kernel offers.
        program.takes_turns = offers_turns(kernel)
        program.trace("segment").lower()

    return run


def test_right_declarations_are_taken(trace) -> None:
    trace()


class Fewer(NamedTuple):
    """The axes of a state, but for those of the gradient."""

    position: Any = POSITION
    log_prior: Any = CHAIN
    log_likelihood: Any = CHAIN
    num_steps: Any = SCALAR


AXES = {
    "no axes for a field": (
        lambda self: Fewer(),
        r"state_axes\(\) declares no Axes for gradient.shared, an array of shape \(4, ",
    ),
    "another tree": (lambda self: (CHAIN,), r"state_axes\(\) declares no Axes for position.shared"),
    "not axes": (
        lambda self: Hmc.state_axes(self)._replace(log_prior="chain"),
        r"state_axes\(\) declares no Axes for log_prior, an array of shape \(4,\)",
    ),
    "axes for nothing": (
        lambda self: Hmc.state_axes(self)._replace(num_steps=(SCALAR, SCALAR)),
        r"state_axes\(\) declares no Axes for num_steps, an array of shape \(\)",
    ),
    "more axes than dimensions": (
        lambda self: Hmc.state_axes(self)._replace(num_steps=CHAIN),
        r"num_steps has the axes \('chain',\), and the array's shape is \(\)",
    ),
    "chains where coordinates are": (
        lambda self: Hmc.state_axes(self)._replace(gradient=Position(Axes(None, "chain"), None)),
        r"axis 1 of gradient.shared is 'chain', of length 4; the array's shape is \(4, ",
    ),
    "an unknown axis": (
        lambda self: Hmc.state_axes(self)._replace(log_prior=Axes("chains")),
        "log_prior has an axis 'chains'\\n  remedy: use chain, entry, spread or None",
    ),
}


@pytest.mark.parametrize("wrong", AXES)
def test_wrong_axes_of_a_state_are_refused(trace, wrong: str) -> None:
    state_axes, message = AXES[wrong]
    with pytest.raises(ConfigError, match=f"kernel Mine: .*{message}"):
        trace(state_axes=state_axes)


def test_axes_of_an_array_that_is_not_there_are_refused(trace) -> None:
    with pytest.raises(ConfigError, match=r"adaptation_axes\(\) declares axes for extra, but there is no such array"):
        trace(adaptation_axes=lambda self: Hmc.adaptation_axes(self)._replace(extra=SCALAR))


def test_a_statistic_that_info_lacks_is_refused(trace) -> None:
    wrong = {**Hmc.statistics, "swapped": Hmc.statistics["lp"]}
    with pytest.raises(ConfigError, match=r"kernel Mine: Info of step\(\) lacks swapped"):
        trace(statistics=wrong)


def test_a_statistic_of_another_shape_is_refused(trace) -> None:
    def step(self: Hmc, *given: Any) -> Any:
        state, info = Hmc.step(self, *given)
        return state, info._replace(energy=info.energy[:2])

    with pytest.raises(ConfigError, match=r"kernel Mine: .*energy has shape \(2,\), not \(4,\) or \(\)"):
        trace(step=step)


def test_a_log_density_that_chains_share_is_refused(trace) -> None:
    def step(self: Hmc, *given: Any) -> Any:
        state, info = Hmc.step(self, *given)
        return state, info._replace(log_likelihood=info.log_likelihood.sum())

    with pytest.raises(
        ConfigError,
        match=r"log_likelihood has shape \(\), not \(4,\)\n  remedy: return one value for each reported chain(?!,)",
    ):
        trace(step=step)


def test_a_state_without_what_draws_are_taken_from_is_refused(trace) -> None:
    with pytest.raises(ConfigError, match=r"kernel Mine: the state that init\(\) returns lacks position"):
        trace(init=lambda self, key, position, target: (position,))


def test_a_step_that_changes_its_state_is_refused(trace) -> None:
    def step(self: Hmc, *given: Any) -> Any:
        state, info = Hmc.step(self, *given)
        return state._replace(log_prior=state.log_prior.astype(jnp.float32)), info

    with pytest.raises(
        ConfigError, match=r"step\(\) returns log_prior as float32 of shape \(4,\), and was given float64"
    ):
        trace(step=step)


def test_an_adaptation_that_changes_its_tree_is_refused(trace) -> None:
    def adapt(self: Hmc, adaptation: Any, *given: Any) -> Any:
        return Hmc.adapt(self, adaptation, *given)._replace(extra=jnp.zeros(3))

    with pytest.raises(ConfigError, match=r"adapt\(\) returns extra as float64 of shape \(3,\), and was given nothing"):
        trace(adapt=adapt)


def with_a_shared_array(parent: type[Kernel]) -> dict[str, Any]:
    """Methods of a kernel whose state has an array without an axis of chains."""

    def step(self: Kernel, key: Any, state: Any, *given: Any) -> Any:
        after, info = parent.step(self, key, state._replace(split=None), *given)
        return after._replace(split=state.split), info

    return {
        "init": lambda self, *given: parent.init(self, *given)._replace(split=jnp.zeros(3)),
        "state_axes": lambda self: parent.state_axes(self)._replace(split=Axes(None)),
        "step": step,
    }


def test_devices_that_step_alone_may_share_an_array_of_the_state(trace) -> None:
    trace(mesh=(2, 1), steps_alone=True, **with_a_shared_array(Hmc))


# -- steps in parts ----------------------------------------------------------------------------------------------------


def returning(method: str, **dtypes: Any) -> dict[str, Any]:
    """A part of a step of which fields have other dtypes."""

    def changed(self: Nuts, *given: Any) -> Any:
        made = getattr(Nuts, method)(self, *given)
        first, rest = (made[0], made[1:]) if method == "end" else (made, ())
        first = first._replace(**{name: getattr(first, name).astype(dtype) for name, dtype in dtypes.items()})
        return (first, *rest) if rest else first

    return {method: changed}


PARTS = {
    "chains interact": ({"interacts": True}, "offers step.* in parts, and its chains interact"),
    "some are not reported": (
        {"num_chains_reported": lambda self, num_chains: num_chains // 2},
        r"offers .* and reports 2 of 4 chains\n  remedy: define step\(\) in place of the parts",
    ),
    "a shared array": (
        {k: v for k, v in with_a_shared_array(Nuts).items() if k != "step"},
        "offers .* and split of its state is an array without the axis 'chain'",
    ),
    "a renewed dtype": (
        returning("renew", count=jnp.float64),
        r"renew\(\) returns count as float64 of shape \(4,\), and was given int32.*\n  remedy: .*`begin` gave it",
    ),
    "an advanced dtype": (returning("advance", kinetic=jnp.float32), r"advance\(\) returns kinetic as float32"),
    "one answer for all chains": (
        {"is_complete": lambda self, work: Nuts.is_complete(self, work).all()},
        r"is_complete\(\) returns bool of shape \(\)\n  remedy: return a bool for each chain, \(4,\)",
    ),
    "an answer in numbers": (
        {"is_complete": lambda self, work: Nuts.is_complete(self, work).astype(jnp.int32)},
        r"is_complete\(\) returns int32 of shape \(4,\)",
    ),
    "a state's dtype": (returning("end", log_prior=jnp.float32), r"end\(\) returns log_prior as float32.*\n.*`init`"),
}


def test_right_parts_are_taken(trace) -> None:
    trace(parent=Nuts)


@pytest.mark.parametrize("wrong", PARTS)
def test_wrong_parts_of_a_step_are_refused(trace, wrong: str) -> None:
    changed, message = PARTS[wrong]
    with pytest.raises(ConfigError, match=rf"test_kernel\.py: kernel Mine: {message}"):
        trace(parent=Nuts, **changed)


def test_chains_of_a_subclass_with_a_step_of_its_own_wait() -> None:
    of_its_own = type("Mine", (Nuts,), {"step": Hmc.step, "advance": Nuts.advance})
    given = Nuts.__new__(Nuts), of_its_own.__new__(of_its_own), Hmc.__new__(Hmc)
    assert [offers_turns(kernel) for kernel in given] == [True, False, False]
