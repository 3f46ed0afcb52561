"""How rows and entries lie over devices and tiles; a density of groups is the plain one, however they lie."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

from bayesmesh.kernels.base import POSITION
from bayesmesh.sampling.density.costs import row_tile
from bayesmesh.sampling.density.rows import RowLayout, lay_out_rows
from bayesmesh.sampling.program.values import place
from levels import GROUP_SIZES, groups_case

NUM_CHAINS = 4
COUNTS = {
    "unequal": GROUP_SIZES,
    "one entry": (13,),
    "one row each": (1,) * 11,
    "entries without rows": (0, 3, 0, 0, 5, 1, 0),
    "a large one": (1, 1, 50, 1, 2, 1, 3),
    "many": tuple(1 + (7 * i) % 11 for i in range(60)),
    "seven": (2,) * 7,
}


@pytest.mark.parametrize("num_rows", [1, 2, 7, 37, 100, 1000])
@pytest.mark.parametrize("num_devices", [1, 2, 4, 7])
@pytest.mark.parametrize("row_tile", [1, 5, 64, 10**9])
def test_rows_fit_their_layout_with_little_padding(num_rows: int, num_devices: int, row_tile: int) -> None:
    layout = lay_out_rows(num_rows, num_devices, row_tile)
    assert layout.padded_entries == np.prod(layout.shape) >= num_rows
    assert layout.num_devices == num_devices
    assert 1 <= layout.tile_rows <= row_tile
    assert layout.tile_entries == layout.tile_rows
    assert layout.num_tiles >= 1
    per_device = -(-num_rows // num_devices)
    assert layout.num_tiles == -(-per_device // min(row_tile, per_device)), "more tiles than needed"
    assert layout.num_tiles * layout.tile_rows - per_device < layout.num_tiles, "a smaller tile would do"


def check_slots(layout: RowLayout, entry_of_row: np.ndarray) -> None:
    """Every row lies in one slot, with its entry's number, in the tile of that entry."""
    slots = layout.slots(range(layout.num_devices))
    assert slots.row.shape == slots.is_row.shape == slots.entry_of_row.shape == layout.shape
    np.testing.assert_array_equal(slots.row[slots.is_row], np.arange(layout.num_rows))
    assert ((slots.row >= 0) & (slots.row < layout.num_rows)).all(), "padding repeats a row that is there"
    assert ((slots.entry_of_row >= 0) & (slots.entry_of_row < layout.tile_entries)).all()
    device, tile, _ = np.nonzero(slots.is_row)
    place = (device * layout.num_tiles + tile) * layout.tile_entries + slots.entry_of_row[slots.is_row]
    np.testing.assert_array_equal(place, entry_of_row, err_msg="all rows of an entry lie in its tile")


@pytest.mark.parametrize("counts", COUNTS.values(), ids=COUNTS)
@pytest.mark.parametrize("num_devices", [1, 2, 4, 7])
@pytest.mark.parametrize("row_tile", [1, 5, 64, 10**9])
def test_rows_of_a_group_lie_in_one_tile(counts: tuple[int, ...], num_devices: int, row_tile: int) -> None:
    layout = lay_out_rows(sum(counts), num_devices, row_tile, counts)
    assert layout.is_grouped
    assert layout.num_entries == len(counts)
    assert layout.padded_entries >= len(counts)
    assert 1 <= layout.tile_rows <= max(row_tile, *counts)
    check_slots(layout, np.repeat(np.arange(len(counts)), counts))


@pytest.mark.parametrize("num_devices", [1, 4, 7])
@pytest.mark.parametrize("row_tile", [1, 5, 64])
def test_a_row_that_is_an_entry_lies_with_it(num_devices: int, row_tile: int) -> None:
    check_slots(lay_out_rows(37, num_devices, row_tile), np.arange(37))


@pytest.mark.parametrize("counts", [(), *COUNTS.values()], ids=["no groups", *COUNTS])
def test_devices_have_the_rows_of_their_own_slots(counts: tuple[int, ...]) -> None:
    """What one process lays out for its devices is what one process for all would lay out there."""
    layout = lay_out_rows(sum(counts) or 37, 4, 5, counts)
    whole, stop_before = layout.slots(range(4)), 0
    for devices in (range(1), range(1, 3), range(3, 4)):
        start, stop = layout.rows_of(devices)
        assert start == stop_before
        part, stop_before = layout.slots(devices), stop
        there = slice(devices.start, devices.stop)
        np.testing.assert_array_equal(part.is_row, whole.is_row[there])
        np.testing.assert_array_equal(part.row[part.is_row] + start, whole.row[there][part.is_row])
        np.testing.assert_array_equal(part.entry_of_row[part.is_row], whole.entry_of_row[there][part.is_row])
    assert stop_before == layout.num_rows


# -- the density of a model of groups ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def case(make_case) -> Any:
    return groups_case(make_case)


@pytest.fixture(scope="module")
def z(case, make_target) -> dict[str, jax.Array]:
    """Unconstrained latents of some chains, in the prior's axes."""
    layout = make_target(case).position
    keys = iter(jax.random.split(jax.random.key(4), len(layout.shapes)))
    return {k: 0.5 * jax.random.normal(next(keys), (NUM_CHAINS, *s)) for k, s in layout.shapes.items()}


@pytest.fixture(scope="module")
def expected(case, z) -> tuple[Any, Any, Any]:
    """Log prior, log likelihood and gradient by textbook formulae: rows take the entries of their group by index."""
    group = np.repeat(np.arange(len(GROUP_SIZES)), GROUP_SIZES)
    joint = case.model.prior(case.spec).experimental_default_event_space_bijector()

    def to_scales(coordinates: jax.Array) -> jax.Array:
        rest = {k: jnp.zeros(v.shape[1:]) for k, v in z.items()}
        return joint.forward({**rest, "scales": coordinates})["scales"]

    def parts(z: Any) -> tuple[jax.Array, jax.Array]:
        # The logarithm of a LogNormal variate is normal, whatever maps to unconstrained space; the Jacobian by slope.
        scales, slope = jax.jvp(to_scales, (z["scales"],), (jnp.ones_like(z["scales"]),))
        log_prior = norm.logpdf(z["centre"]).sum() + norm.logpdf(z["levels"]).sum()
        log_prior += (norm.logpdf(jnp.log(scales), 0, 0.25) - jnp.log(scales) + jnp.log(slope)).sum()
        mean = z["centre"] + z["levels"][group]
        return log_prior, norm.logpdf(case.arrays["x"], mean, scales[:, group].T).sum()

    def of_chain(z: Any) -> Any:
        return *parts(z), jax.grad(lambda z: sum(parts(z)))(z)

    return jax.device_get(jax.jit(jax.vmap(of_chain))(z))


LAYOUTS = [("named", (1, 1), 37), ("named", (1, 1), 6), ("named", (2, 4), 6), ("shard_map", (1, 7), 5), ("shard_map", (2, 2), 9)]  # fmt: skip


@pytest.mark.parametrize(("sharding", "mesh", "tile"), LAYOUTS)
def test_the_density_of_groups_is_the_plain_one(case, make_program, z, expected, sharding, mesh, tile) -> None:
    program = make_program(case, "hmc", num_chains=NUM_CHAINS, mesh=mesh, row_tile=tile, sharding=sharding)
    target, layout = program.target, program.target.position
    assert target.layout.num_tiles > 1 or mesh[1] > 3 or tile == 37
    position = jax.jit(jax.vmap(layout.pack))(z)
    placed = place(program.mesh, jax.eval_shape(lambda: position), POSITION)
    data = program.put_data(case.rows)
    bound = jax.jit(lambda q, d: target.bind(d).log_density(q))
    found = bound(jax.device_put(position, placed), data)
    log_prior, log_likelihood, gradient = expected
    np.testing.assert_allclose(found.log_prior, log_prior, rtol=1e-12)
    np.testing.assert_allclose(found.log_likelihood, log_likelihood, rtol=1e-12)
    assert not np.asarray(found.gradient.local)[:, len(GROUP_SIZES) :].any(), "padding has a gradient"
    by_latent = jax.jit(jax.vmap(lambda g: layout.unpack(g, jnp.dtype("float64"))))(found.gradient)
    for name, want in gradient.items():
        atol = 1e-12 * max(1.0, np.abs(want).max())
        np.testing.assert_allclose(by_latent[name], want, rtol=0, atol=atol, err_msg=name)


@pytest.mark.parametrize("counts", [(), GROUP_SIZES], ids=["rows", "groups"])
def test_padding_never_spoils_the_gradient_of_a_shared_latent(case, make_target, counts) -> None:
    """Behind the entries lie zeros, and a scale of 0 has no density; some devices have padding alone."""
    case = dataclasses.replace(case, spec=dataclasses.replace(case.spec, entry_counts=counts))
    found = []
    for layout in ((1, 37), (7, 4)):
        target = make_target(case, *layout)
        position = jax.jit(jax.vmap(target.sample_prior))(jax.random.split(jax.random.key(6), 2))
        density = jax.jit(target.bind(target.lay_out(case.rows)).log_density)(position)
        found.append(jax.tree.map(np.asarray, density))
    assert target.layout.is_padded
    plain, padded = found
    np.testing.assert_allclose(padded.log_likelihood, plain.log_likelihood, rtol=1e-12)
    np.testing.assert_allclose(padded.gradient.shared, plain.gradient.shared, rtol=1e-10)
    entries = target.layout.num_entries
    np.testing.assert_allclose(padded.gradient.local[:, :entries], plain.gradient.local[:, :entries], rtol=1e-10)
    assert not padded.gradient.local[:, entries:].any()


def test_a_row_in_the_wrong_group_is_noticed(case, make_program, z, expected, monkeypatch) -> None:
    """The comparison above can fail."""
    slots = RowLayout.slots

    def wrong(self: RowLayout, devices: range) -> Any:
        made = slots(self, devices)
        return made._replace(entry_of_row=np.roll(made.entry_of_row, 1, axis=-1))

    monkeypatch.setattr(RowLayout, "slots", wrong)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        test_the_density_of_groups_is_the_plain_one(case, make_program, z, expected, "named", (1, 1), 37)


def test_a_tile_is_chosen_for_groups_too(case) -> None:
    assert row_tile(case.model, case.spec, 1, "cpu") > 1
