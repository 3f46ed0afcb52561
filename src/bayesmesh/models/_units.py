"""The part of a model's contract that is about units that are independent of each other given all other latents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, NamedTuple

from jaxtyping import Array, Bool, Float, Int, Key

Arrays = Mapping[str, Array]
"""Latent -> one draw of it; or field -> one entry per row."""


class Regression(NamedTuple):
    """The log likelihood of rows as a function of the latents of a group of units, given all others.

    The log likelihood of a row is  -weight (response - design . latents of its unit)^2 / 2  plus a term without these latents.

    Attributes:
        design: latent of the group -> (row, ...), the coefficients of its unit's latents.
        response: (row,).
        weight: () or (row,), not negative.
        unit: (row,), unit of a block to which each row belongs; None for ``local``, whose units are aligned with rows.
    """

    design: Arrays
    response: Float[Array, " rows"]
    weight: Float[Array, "..."]
    unit: Int[Array, " rows"] | None = None


class ByUnit:
    """Methods by which a model may describe its units; all are optional.

    Class attributes:
        unit_groups: groups of units that are independent of each other given all other latents: ``local``, whose units
            are the entries of `local_latents`, and names of `blocks`. Together the groups hold all latents, which are
            real and have independent priors. Kernels that update unit by unit then call the methods `unit_...`.
    """

    unit_groups: ClassVar[tuple[str, ...]] = ()

    @property
    def normal_groups(self) -> tuple[str, ...]:
        """Groups of units, as `unit_groups` names them, whose latents are normal given all others: a kernel can draw them exactly.

        Their priors are independent normals, and the likelihood is a linear regression. A property, because it may depend
        on options. Such a model defines `unit_regression` and `unit_prior`, and for its other latents `rest_sums` and
        `redraw_rest`.
        """
        return ()

    def unit_regression(self, group: str, latents: Arrays, rows: Arrays) -> Regression:
        """Return the likelihood of rows as a regression on the latents of a group.

        Args:
            group: one of `normal_groups`.
            latents: one draw, local ones aligned with `rows`.
            rows: data of a tile of rows.
        """
        raise NotImplementedError(f"{type(self).__name__} has no normal groups of units")

    def rest_sums(self, latents: Arrays, rows: Arrays, is_row: Bool[Array, " rows"]) -> Arrays:
        """Return the sums over rows, float64, that `redraw_rest` needs; none by default.

        Args:
            latents: one draw, local ones aligned with `rows`.
            rows: data of a tile of rows.
            is_row: False for padding, which does not contribute.
        """
        return {}

    def redraw_rest(self, key: Key[Array, ""], latents: Arrays, sums: Arrays) -> Arrays:
        """Update the latents outside `normal_groups` by a transition that leaves their conditional distribution invariant.

        Args:
            key: a typed key.
            latents: one draw, float64, with the prior's shapes.
            sums: `rest_sums` over all rows.
        """
        return latents

    def unit_likelihood(
        self, group: str, latents: Arrays, rows: Arrays, is_row: Bool[Array, " rows"], *, with_value: bool
    ) -> tuple[Float[Array, " unit"] | None, Arrays]:
        """Return the log likelihood of each unit of a group, in nats, and its gradient with respect to the group's latents.

        The part that `unit_linear` returns is left out. Summed over units, both parts give the log likelihood of the
        rows. Units of ``local`` are rows.

        Args:
            group: one of `unit_groups`.
            latents: one draw, local ones aligned with `rows`.
            rows: data of a tile of rows.
            is_row: False for padding, which does not contribute.
            with_value: whether to compute the values; if not, None is returned in their place.
        """
        raise NotImplementedError(f"{type(self).__name__} has no groups of units")

    def unit_linear(
        self, group: str, latents: Arrays, rows: Arrays, is_row: Bool[Array, " rows"]
    ) -> tuple[Float[Array, " unit"], Arrays] | None:
        """Return a part of the log likelihood of each unit that is linear in the group's latents: constants and coefficients.

        Outcomes times linear predictors are such a part; it is computed once per trajectory. None, the default, if there
        is no such part. The arguments are those of `unit_likelihood`.
        """
        return None

    def unit_prior(self, group: str, latents: Arrays) -> Float[Array, " unit"]:
        """Return the log prior of each unit of a group, in nats, up to a constant.

        Args:
            group: one of `unit_groups` or `normal_groups`.
            latents: latents of the group, with the axis of units first.
        """
        raise NotImplementedError(f"{type(self).__name__} has no groups of units")

    def unit_information(self, latents: Arrays, rows: Arrays, is_row: Bool[Array, " rows"]) -> Mapping[str, Array]:
        """Return group -> (unit,), the information in these rows on each unit: sums of the curvature of their log likelihood.

        It scales trajectories and need not be exact. For two groups that meet in a linear predictor, the sums over all
        units agree.
        """
        raise NotImplementedError(f"{type(self).__name__} has no groups of units")

    def unit_design(self, group: str, latents: Arrays) -> tuple[str, Arrays]:
        """Return the other group that a group meets in a linear predictor, and the coefficients of the group's latents there.

        The precision of a unit is then about that of its prior plus its information times the mean outer product of these
        coefficients, weighted by the information about the other units.

        Args:
            group: one of `unit_groups`.
            latents: one draw; local ones have their entries first.

        Returns:
            The name of the other group; latent of the group -> (unit of the other group, ...).
        """
        raise NotImplementedError(f"{type(self).__name__} has no groups of units")

    def redraw(self, key: Key[Array, ""], latents: Arrays) -> Arrays:
        """Make a transition that changes no likelihood and leaves the prior invariant; none by default.

        For directions that the data do not identify, along which the posterior is the prior.
        """
        return latents
