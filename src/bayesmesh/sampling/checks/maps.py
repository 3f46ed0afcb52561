"""Check that the maps of latents to unconstrained space reach their whole support and declare their own Jacobian.

`tests/unit/sampling/checks/test_maps.py` compares the maps of all of TFP's continuous distributions with their
derivatives; those that are wrong are in `REPLACEMENTS`. A distribution or a bijector of the user is tried here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.models._latents import Maps, log_determinant, log_volume
from bayesmesh.models.base import Bijector, Latents, Prior

tfd, tfb = tfp.distributions, tfp.bijectors

NUM_DRAWS = 64
"""Prior draws that have to come back from the map."""

NUM_POINTS = 4
"""Draws at which the Jacobian is compared with derivatives."""

MOST_COORDINATES = 20
"""Number of unconstrained coordinates up to which it is compared."""

_TOLERANCE = 1e-4

_DIRECTION = (
    "its map to unconstrained space reaches directions with positive coordinates only",
    "give the latent, here `z`, a normal prior, in three dimensions `tfd.Sample(tfd.Normal(zero, zero + 1), 3)`; use the"
    " direction `u = z / jnp.linalg.norm(z)`; and, unless the direction is uniform, add to the likelihood its log density"
    " over that of a uniform one, such as tfd.VonMisesFisher(mean_direction, concentration).log_prob(u) -"
    " tfd.SphericalUniform(3, dtype=u.dtype).log_prob(u)",
)
_SIMILAR = (
    "give the latent a prior with the same support that TFP can compute, such as tfd.{} here, and add the logarithm of its own"
    " density over that of this prior to the likelihood"
)
_MATRIX = "give the latent normal priors, `tfd.Sample(tfd.Normal(zero, zero + 1), (3, 2))`, and multiply it by the two factors"
_WISHART = (
    "TFP's map computes in float32 only",
    "give scales, here `s`, a prior such as tfd.HalfNormal, and a Cholesky factor of correlations, `L`, the prior"
    " tfd.CholeskyLKJ; the covariance matrix is `jnp.outer(s, s) * (L @ L.T)`",
)
REPLACEMENTS: Mapping[str, tuple[str, str]] = {
    "VonMisesFisher": _DIRECTION,
    "PowerSpherical": _DIRECTION,
    "SphericalUniform": _DIRECTION,
    "LKJ": (
        "its map to unconstrained space has the Jacobian of another matrix",
        "use tfd.CholeskyLKJ with the same dimension and concentration, whose draws `L` are Cholesky factors; the"
        " correlation matrix is `L @ L.T`",
    ),
    "BetaQuotient": (
        "TFP's density is not a number for some values",
        "give its numerator and its denominator beta priors, and divide them in the likelihood",
    ),
    "Masked": ("masked entries have no density", "leave them out of the latent, and put constants in their places"),
    "Blockwise": (
        "its map takes a list",
        "make each block a latent, and join them with jnp.concatenate where they are used",
    ),
    "BatchConcat": (
        "TFP gives it no map",
        "make each part a latent, and join them with jnp.concatenate where they are used",
    ),
    "MatrixNormalLinearOperator": ("TFP's density cannot be traced", _MATRIX),
    "MatrixTLinearOperator": ("TFP's density cannot be traced", f"{_MATRIX}; draw their scale from tfd.InverseGamma"),
    "WishartLinearOperator": _WISHART,
    "WishartTriL": _WISHART,
    "AbsoluteValue": ("it maps two values to one", "use a distribution of positive numbers, such as tfd.HalfNormal"),
    "Bates": ("TFP's sampler cannot be traced", _SIMILAR.format("Uniform")),
    "InverseGaussian": ("TFP computes it in float32 only", _SIMILAR.format("LogNormal")),
}
"""Distribution or bijector of TFP -> why it cannot be used in a prior, and the text to write instead."""

PARTIAL = {
    "CholeskyOuterProduct", "FrechetCDF", "KumaraswamyCDF", "Power", "PowerTransform", "RayleighCDF", "Square",
    "TruncatedCauchy", "TruncatedNormal", "WeibullCDF",
}  # fmt: skip
"""Bijectors of TFP that are one-to-one on a part of the real space only, and distributions whose bounds have to be finite; both are
tried, like those of the user."""


def parts(value: Any) -> Iterator[Any]:
    """Yield a distribution or a bijector, those of which it is built, at any depth, and functions among them."""
    if isinstance(value, tfd.Distribution | tfb.Bijector):
        yield value
        value = value.parameters
    elif inspect.isroutine(value):
        yield value
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for each in value:
            yield from parts(each)


def known_fault(distribution: Any) -> tuple[str, str] | None:
    """Return why a distribution cannot be a prior, and the remedy; None if TFP's map of it is right, or it is the user's.

    >>> known_fault(tfd.Sample(tfd.LKJ(3, 1.0), 2))[0]
    'tfd.LKJ cannot be used in a prior: its map to unconstrained space has the Jacobian of another matrix'
    >>> known_fault(tfd.CholeskyLKJ(3, 1.0))
    """
    for part in parts(distribution):
        if (name := type(part).__name__.lstrip("_")) in REPLACEMENTS and _is_of_tfp(part):
            fault, remedy = REPLACEMENTS[name]
            return (
                f"{'tfb' if isinstance(part, tfb.Bijector) else 'tfd'}.{name} cannot be used in a prior: {fault}",
                remedy,
            )
    return None


def is_of_tfp(distribution: Any) -> bool:
    """Return whether a distribution is built from TFP's own classes, and neither from functions nor from those of `PARTIAL`.

    >>> is_of_tfp(tfd.TransformedDistribution(tfd.Normal(0.0, 1.0), tfb.Exp()))
    True
    >>> is_of_tfp(tfd.TransformedDistribution(tfd.Normal(0.0, 1.0), tfb.Square()))
    False
    """
    return all(_is_of_tfp(part) and type(part).__name__ not in PARTIAL for part in parts(distribution))


def _is_of_tfp(part: Any) -> bool:
    return part.__module__.startswith("tensorflow_probability.")


def needs_trial(prior: Prior, distributions: Mapping[str, Any]) -> bool:
    """Return whether a map of a prior is neither TFP's nor this package's.

    Args:
        prior: the prior.
        distributions: those of its latents, if it is a joint distribution of TFP.
    """
    if distributions and _is_of_tfp(prior):
        return not all(map(is_of_tfp, distributions.values()))
    return not type(prior).__module__.startswith("bayesmesh.")


def faults(prior: Any) -> Iterator[tuple[str, str]]:
    """Yield latents with a wrong map of the user's own, and what is wrong with it; a prior of the user is tried as a whole."""
    if not (_is_of_tfp(prior) and hasattr(prior, "sample_distributions")):
        bijector = prior.experimental_default_event_space_bijector()
        yield from _try(bijector, lambda key: dict(prior.sample(seed=key)))
        return
    for name, each in prior.sample_distributions(seed=jax.random.key(0))[0].items():
        if not is_of_tfp(each):
            yield from ((name, fault) for fault in _many_to_one(each))
            yield from _try(Maps({name: each.experimental_default_event_space_bijector()}), _sampler(name, each))


def _sampler(name: str, distribution: Any) -> Callable[[jax.Array], Latents]:
    return lambda key: {name: distribution.sample(seed=key)}


def _many_to_one(distribution: Any) -> Iterator[str]:
    """Yield the bijectors that do not map the distributions to which they are applied one to one."""
    for part in parts(distribution):
        if isinstance(part, tfd.TransformedDistribution):
            values = part.distribution.sample(NUM_DRAWS, seed=jax.random.key(0))
            # Two programs, because a bijector of TFP remembers the value of which it has returned the image.
            back = jax.jit(part.bijector.inverse)(jax.jit(part.bijector.forward)(values))
            if (changed := _changed(values, back)) is not None:
                yield (
                    f"{type(part.bijector).__name__} does not map {type(part.distribution).__name__} one to one, as"
                    f" tfd.TransformedDistribution requires: after the bijector and its inverse, {changed}"
                )


def _try(bijector: Bijector, sample: Callable[[jax.Array], Latents]) -> Iterator[tuple[str, str]]:
    """Yield latents whose draws do not return from `inverse` and `forward`; else those with another Jacobian than declared."""
    drawn = jax.jit(jax.vmap(sample))(jax.random.split(jax.random.key(0), NUM_DRAWS))
    free = jax.jit(jax.vmap(lambda latents: dict(bijector.inverse(latents))))(drawn)
    back = jax.jit(jax.vmap(lambda free: dict(bijector.forward(free))))(free)
    changes = {name: _changed(values, back[name]) for name, values in drawn.items()}
    for name, changed in changes.items():
        if changed is not None:
            yield (
                name,
                f"draws do not return from the map to unconstrained space: after its inverse and itself, {changed}",
            )
    if any(changes.values()) or sum(value[0].size for value in free.values()) > MOST_COORDINATES:
        return
    constant = log_volume(bijector, {k: jax.ShapeDtypeStruct(v.shape[1:], v.dtype) for k, v in free.items()})
    for at in ({k: v[number] for k, v in free.items()} for number in range(NUM_POINTS)):
        declared = float(bijector.forward_log_det_jacobian(at)) + constant
        exact = sum(log_determinant(bijector, at, name) for name in at)
        if not np.isclose(declared, exact, _TOLERANCE, _TOLERANCE):
            yield (
                "' and '".join(at),
                f"the log Jacobian of its map is {declared:.6g} where derivatives give {exact:.6g}",
            )
            return


def _changed(values: jax.Array, back: jax.Array) -> str | None:
    """Return how many of the values (draw, ...) differ from the originals, with an example; None if all are equal."""
    is_same = np.isclose(values, back, _TOLERANCE, _TOLERANCE).reshape(len(values), -1).all(axis=1)
    if is_same.all():
        return None
    before, after = (" ".join(f"{x:.4g}" for x in np.ravel(v[np.argmin(is_same)])[:5]) for v in (values, back))
    return f"{len(values) - is_same.sum()} of {len(values)} differ, for example {before} becomes {after}"
