"""The contract of a model."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, Shaped

from bayesmesh.config.data_spec import Condensed as Condensed
from bayesmesh.config.data_spec import DataSpec as DataSpec
from bayesmesh.config.data_spec import FieldSpec as FieldSpec
from bayesmesh.config.data_spec import HostRows as HostRows
from bayesmesh.config.data_spec import Preparation as Preparation
from bayesmesh.config.data_spec import ReadBlocks as ReadBlocks
from bayesmesh.config.data_spec import Variable as Variable
from bayesmesh.config.settings import Settings

Latents = Mapping[str, Array]
"""Latent -> one draw of it."""

Rows = Mapping[str, Shaped[Array, "rows ..."]]
"""Field -> one entry per row."""


class Axis(NamedTuple):
    """An axis of a latent or of a summary whose entries have names.

    Attributes:
        name: a dimension of the posterior, such as ``county``.
        labels: one for each entry, or None where they are numbered.
    """

    name: str
    labels: tuple[str, ...] | None


class Shown(NamedTuple):
    """A latent or a summary that the page of an experiment shows as a finding.

    Attributes:
        name: name of the latent or the summary; the summary if both have it.
        heading: heading above its table; neighbours with the same heading share a table. With ``{entry}`` in it, each entry
            of the last axis has a table of its own, with its label in that place.
        reference: value with which a sentence compares the intervals, such as 0 for a coefficient; None if there is none.
        apart: labels of entries that have no reference, such as an intercept.
    """

    name: str
    heading: str
    reference: float | None = None
    apart: tuple[str, ...] = ()


@runtime_checkable
class Bijector(Protocol):
    """The methods of a TFP bijector that the density calls; it maps unconstrained space to latents."""

    def forward(self, x: Latents) -> Latents: ...
    def inverse(self, y: Latents) -> Latents: ...
    def forward_log_det_jacobian(self, x: Latents) -> Float[Array, ""]: ...


@runtime_checkable
class Prior(Protocol):
    """The methods of a TFP joint distribution that the density calls."""

    def sample(self, *, seed: PRNGKeyArray) -> Latents: ...
    def log_prob(self, value: Latents) -> Float[Array, ""]: ...
    def experimental_default_event_space_bijector(self) -> Bijector: ...


@runtime_checkable
class Predictive(Protocol):
    """The methods of a TFP distribution over the outcomes of rows that scores and predictions call."""

    @property
    def batch_shape(self) -> tuple[int, ...]: ...
    def sample(self, *, seed: PRNGKeyArray) -> Shaped[Array, "rows ..."]: ...
    def log_prob(self, value: Shaped[Array, "rows ..."]) -> Float[Array, "rows ..."]: ...


class GpuPath(NamedTuple):
    """GPUs for which `Model.log_likelihood_and_gradient_on_gpu` is written: by default, NVIDIA's with bfloat16 tensor cores."""

    least_capability: float = 8.0
    """Lowest compute capability, such as 9.0 for an H100."""
    most_capability: float = math.inf
    num_devices: int | None = None
    """Largest number of devices of a program. The compiler does not partition custom kernels over devices."""


class Regression(NamedTuple):
    """The log likelihood of rows as a function of the latents of a group of units, given all others.

    The log likelihood of a row is  -weight (response - design . latents of its unit)^2 / 2  plus a term without these latents.

    Attributes:
        design: latent of the group -> (row, ...), the coefficients of its unit's latents.
        response: (row,).
        weight: () or (row,), not negative.
        unit: (row,), unit of a block to which each row belongs; None for ``local``, whose units are aligned with rows.
    """

    design: Latents
    response: Float[Array, " rows"]
    weight: Float[Array, "..."]
    unit: Int[Array, " rows"] | None = None


class Model(ABC):
    """A prior over named latents and a likelihood that is a sum over rows.

    Write a model for one draw, and as if all rows were in one place; batching over chains, tiles of rows and devices is
    done for it. A model does not deal with files.

    Class attributes:
        pretty_name: name in tables.
        local_latents: latents with one entry per row, or per group of rows -> the axis that runs over the entries.
            Wherever a method receives `rows` or `inputs`, these latents are aligned with the rows along that axis.
        blocks: name of an axis, such as ``films`` -> shared latents that have it -> its position among their axes. A
            block metric may treat the coordinates of one film together.
        offers: needs of analyses that the model satisfies (their `needs_of_model`; docs/contracts/model.md lists them).
            Read from the source text before any job starts; a class without it is checked when its programs are compiled.
        folds_in: whether the logit of a cell of a watch matrix is user_embeddings . film_embeddings + user_biases +
            film_biases, all with priors normal(0, option `prior_scale`); new users can then be sampled
            given the films. Read from the source text.
        folds_in_ratings: the same for ratings: whether the model has the latents, priors, likelihoods and options of
            `rating_factorization`.
        packages: distributions whose versions are recorded with the chains, in addition to those of JAX and NumPy.
        may_be_infinite: prepared fields that may hold infinite numbers, such as bounds that a row does not have.
        reads_roles: roles of fields that the model takes into account, such as ``weights``; data with other roles are refused.
        takes_all_rows: whether the whole dataset is one row: each field is (1, num_rows, ...), with an axis of rows of
            length 1. Rows of the source may then depend on each other; they are never tiled or spread over devices.
        gpu_path: the GPUs for which `log_likelihood_and_gradient_on_gpu` is written.
        unit_groups: groups of units that are independent of each other given all other latents: ``local``, whose units
            are the entries of `local_latents`, and names of `blocks`. Together the groups hold all latents, which are
            real and have independent priors. Kernels that update unit by unit then call the methods `unit_...`.
    """

    pretty_name: ClassVar[str]
    local_latents: ClassVar[Mapping[str, int]] = {}
    blocks: ClassVar[Mapping[str, Mapping[str, int]]] = {}
    offers: ClassVar[tuple[str, ...]]
    folds_in: ClassVar[bool] = False
    folds_in_ratings: ClassVar[bool] = False
    packages: ClassVar[tuple[str, ...]] = ()
    may_be_infinite: ClassVar[tuple[str, ...]] = ()
    reads_roles: ClassVar[tuple[str, ...]] = ()
    takes_all_rows: ClassVar[bool] = False
    gpu_path: ClassVar[GpuPath] = GpuPath()
    unit_groups: ClassVar[tuple[str, ...]] = ()
    options: Settings
    """A subclass declares its own class of options."""

    def __init__(self, options: Settings, spec: DataSpec) -> None:
        self.options = options
        self.spec = spec

    @classmethod
    def reads_whole(cls, options: Settings) -> bool:
        """Return whether the whole dataset is one row: `takes_all_rows`, or the option ``whole`` if the model has one."""
        return cls.takes_all_rows or getattr(options, "whole", False) is True

    @classmethod
    def prepare(cls, options: Settings, spec: DataSpec, read_blocks: ReadBlocks) -> Preparation | None:
        """Return how to turn the rows of a source into the fields that the model reads; None to use them unchanged.

        Override it for computations that the host makes once instead of in every gradient, and for numbers of the whole
        dataset, such as means, which become constants. `spec.source_fields` then holds the fields of the source.

        Args:
            options: options of the model.
            spec: description of the data as the source provides them.
            read_blocks: returns an iterator over all training rows in blocks.
        """
        return None

    @classmethod
    def check_all_rows(cls, options: Settings, spec: DataSpec, read_blocks: ReadBlocks) -> None:
        """Reject data that the model cannot use; called once, before anything is compiled. By default, all data are accepted.

        Args:
            options: options of the model.
            spec: description of the data as the source provides them.
            read_blocks: returns an iterator over all rows of the source: training, held-out and test rows.

        Raises:
            ConfigError: names the key.
        """
        del options, spec, read_blocks

    def starting_point(self, read_blocks: ReadBlocks) -> Mapping[str, np.ndarray] | None:
        """Return latents at which chains may start, computed from the data, for ``sampling.initial.method: model``.

        Each has the prior's shape, optionally with a leading axis of points. None, the default, if the model has no such point.

        Args:
            read_blocks: returns an iterator over all training rows in blocks.
        """
        return None

    @property
    def has_predictions(self) -> bool:
        """Whether `predict` and `outcome` work with these options; the pointwise groups are left out otherwise."""
        return True

    @property
    def row_problem(self) -> str:
        """Why an observed row is not one observation to leave out and score, such as weights; empty, the default, if it is."""
        return ""

    @property
    def has_proper_prior(self) -> bool:
        """Whether draws of the prior follow its density, as kernels that start from the prior require."""
        return True

    def axes(self) -> Mapping[str, tuple[Axis | None, ...]]:
        """Return latent or summary -> its axes; an axis that is left out, or None, is numbered.

        Axes become dimensions and coordinates of the posterior, and names in tables and messages.
        """
        return {}

    def shown(self) -> Sequence[Shown | tuple[object, ...]]:
        """Return the findings that the page shows, in order; all else is folded away. By default, all summaries are shown.

        Plain tuples of the same items work too: a new import in the model's file would make it another model.
        """
        return ()

    def described(self) -> Mapping[str, object]:
        """Return the page's description of the model: see `bayesmesh.store.posterior.description.ModelDescription`.

        For example ``{"facts": {"Family": "Poisson", "Link": "log"}, "meanings": {"rate": "events in an hour"}}``.
        """
        return {}

    @property
    def has_unit_scale(self) -> bool:
        """Whether unconstrained coordinates are nearly independent given the data, with means of about 0 and variances of about 1.

        `metric: auto` then learns no directions where there are too many correlations to learn them all, and `integrator: auto`
        takes split steps where there are many coordinates.
        """
        return False

    @abstractmethod
    def prior(self, data_spec: DataSpec) -> Prior:
        """Return the joint prior, a TFP joint distribution whose samples are dicts of named latents.

        Its dtype is ``data_spec.dtype``; local latents span ``data_spec.num_entries``. The map to unconstrained space is the
        distribution's own ``experimental_default_event_space_bijector``.
        """

    @abstractmethod
    def log_likelihood(self, latents: Latents, rows: Rows) -> Float[Array, " rows"]:
        """Return the log likelihood of each row, in nats."""

    @property
    def integrated(self) -> Mapping[str, tuple[int, ...]]:
        """Latents that prior and likelihood leave out, because they are integrated out -> shape of the entry of a row.

        For condensed rows alone: in the posterior, such a latent has an entry for each of them, along its first axis.
        """
        return {}

    def draw_integrated(self, latents: Latents, rows: Rows, normals: Latents) -> Latents:
        """Return the latents `integrated`, drawn given all others, (row, ...).

        Args:
            latents: one draw of the others.
            rows: condensed rows.
            normals: latent -> independent standard normal numbers, (row, ...).
        """
        raise NotImplementedError(f"{type(self).__name__} has no latents that are integrated out")

    @classmethod
    def has_fast_path(cls) -> bool:
        """Return whether the model overrides `log_likelihood_and_gradient`."""
        return cls.log_likelihood_and_gradient is not Model.log_likelihood_and_gradient

    def log_likelihood_and_gradient(
        self, latents: Latents, rows: Rows, is_row: Bool[Array, " rows"]
    ) -> tuple[Float[Array, ""], Latents]:
        """Return the log likelihood summed over rows, in nats and float64, and its gradient with respect to every latent.

        A model may override this with a faster path; a contract test compares it with this one.

        Args:
            latents: one draw, local ones aligned with `rows`.
            rows: data of a tile of rows.
            is_row: False for padding, which does not contribute.
        """

        def total(latents: Latents) -> Float[Array, ""]:
            return jnp.sum(jnp.where(is_row, self.log_likelihood(latents, rows), 0), dtype=jnp.float64)

        return jax.value_and_grad(total)(latents)

    def log_likelihood_and_gradient_on_gpu(
        self, latents: Latents, rows: Rows, is_row: Bool[Array, " rows"]
    ) -> tuple[Float[Array, ""], Latents]:
        """Return the same as `log_likelihood_and_gradient`, by a path for the NVIDIA GPUs that `gpu_path` names.

        A model may override it where their tensor cores are faster. A test compares it with the plain path: values must
        agree to float32 precision, and gradients to a relative error of at most 5e-4. Second derivatives are those of the
        plain path.
        """
        return self.log_likelihood_and_gradient(latents, rows, is_row)

    def rows_on_gpu(self, rows: Rows) -> Rows:
        """Return further fields of the rows, with distinct names, for `log_likelihood_and_gradient_on_gpu`.

        They are computed once per call of a program, not once per gradient.
        """
        return {}

    def observed_information(
        self, latents: Latents, rows: Rows, is_row: Bool[Array, " rows"]
    ) -> Mapping[str, Latents] | None:
        """Return minus the Hessian of the log likelihood summed over rows, or None if the model has no fast way to compute it.

        The normal approximation at a mode then needs no derivative per coordinate. Only for models without local latents;
        a contract test compares it with those derivatives.

        Args:
            latents: one draw.
            rows: all rows of a device.
            is_row: False for padding, which does not contribute.

        Returns:
            Latent -> latent -> (*shape of the first, *shape of the second), as `jax.hessian` returns it.
        """
        return None

    @abstractmethod
    def predict(self, latents: Latents, inputs: Rows) -> Predictive:
        """Return the predictive distribution of each row's outcome, a TFP distribution with batch shape (rows, ...)."""

    def linear_predictor(self, latents: Latents, inputs: Rows) -> Float[Array, "rows ..."]:
        """Return the linear predictor of each row, on whose scale effects can be computed."""
        raise NotImplementedError(f"{type(self).__name__} has no linear predictor")

    def completed_outcome(self, latents: Latents, rows: Rows, key: PRNGKeyArray) -> Array | None:
        """Return the outcome of each row, drawn given what is known of it where it is censored; None if no row is."""
        return None

    def interactions(self) -> Collection[tuple[str, ...]]:
        """Return columns whose effects depend on each other, as the terms of a formula say; none by default."""
        return ()

    def grouping_columns(self) -> Mapping[str, str]:
        """Return column -> latent with an entry for each of its levels, where a new level has a distribution given the others."""
        return {}

    def group_effects(self) -> Collection[str]:
        """Return the latents with effects of groups, which are 0 for a group like the average one."""
        return self.grouping_columns().values()

    def with_new_levels(self, latents: Latents, added: Mapping[str, int], key: PRNGKeyArray) -> Latents:
        """Return latents with entries for new levels after those of the data, drawn from the population of levels.

        Args:
            latents: one draw.
            added: column of `grouping_columns` -> number of its new levels.
            key: a PRNG key.
        """
        raise NotImplementedError(f"{type(self).__name__} has no groups")

    def outcome(self, rows: Rows) -> Shaped[Array, "rows ..."]:
        """Return the observed outcome that `predict` predicts."""
        raise NotImplementedError(f"{type(self).__name__} has no outcome to score")

    def outcome_field(self) -> str | None:
        """Return the field of the source that is the outcome; None, the default, for the one that `outcome` returns unchanged."""
        return None

    def prediction_fields(self) -> Collection[str] | None:
        """Return the fields of the source without which new rows cannot be predicted.

        None, the default, for those that the traced `predict` uses; for a model with a `prepare`, for all but the outcome.
        """
        return None

    @abstractmethod
    def summaries(self, latents: Latents, rows: Rows) -> Latents:
        """Return identified quantities on which convergence is assessed, evaluated at a few probe rows.

        Log prior, log likelihood and their sum are added for every model.
        """

    def deterministics(self, latents: Latents, rows: Rows) -> Latents:
        """Return further quantities to store with each draw, evaluated at all rows; convergence is not assessed on them.

        By default, there are none.
        """
        return {}

    # -- units that are independent of each other given all other latents; all methods are optional --------------------

    @property
    def normal_groups(self) -> tuple[str, ...]:
        """Groups of units, as `unit_groups` names them, whose latents are normal given all others: a kernel can draw them exactly.

        Their priors are independent normals, and the likelihood is a linear regression. A property, because it may depend
        on options. Such a model defines `unit_regression` and `unit_prior`, and for its other latents `rest_sums` and
        `redraw_rest`.
        """
        return ()

    def unit_regression(self, group: str, latents: Latents, rows: Rows) -> Regression:
        """Return the likelihood of rows as a regression on the latents of a group.

        Args:
            group: one of `normal_groups`.
            latents: one draw, local ones aligned with `rows`.
            rows: data of a tile of rows.
        """
        raise NotImplementedError(f"{type(self).__name__} has no normal groups of units")

    def rest_sums(self, latents: Latents, rows: Rows, is_row: Bool[Array, " rows"]) -> Latents:
        """Return the sums over rows, float64, that `redraw_rest` needs; none by default.

        Args:
            latents: one draw, local ones aligned with `rows`.
            rows: data of a tile of rows.
            is_row: False for padding, which does not contribute.
        """
        return {}

    def redraw_rest(self, key: Key[Array, ""], latents: Latents, sums: Latents) -> Latents:
        """Update the latents outside `normal_groups` by a transition that leaves their conditional distribution invariant.

        Args:
            key: a typed key.
            latents: one draw, float64, with the prior's shapes.
            sums: `rest_sums` over all rows.
        """
        return latents

    def unit_likelihood(
        self, group: str, latents: Latents, rows: Rows, is_row: Bool[Array, " rows"], *, with_value: bool
    ) -> tuple[Float[Array, " unit"] | None, Latents]:
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
        self, group: str, latents: Latents, rows: Rows, is_row: Bool[Array, " rows"]
    ) -> tuple[Float[Array, " unit"], Latents] | None:
        """Return a part of the log likelihood of each unit that is linear in the group's latents: constants and coefficients.

        Outcomes times linear predictors are such a part; it is computed once per trajectory. None, the default,
        if the model has none. The arguments are those of `unit_likelihood`.
        """
        return None

    def unit_prior(self, group: str, latents: Latents) -> Float[Array, " unit"]:
        """Return the log prior of each unit of a group, in nats, up to a constant.

        Args:
            group: one of `unit_groups` or `normal_groups`.
            latents: latents of the group, with the axis of units first; for one of `normal_groups`, those of all else too.
        """
        raise NotImplementedError(f"{type(self).__name__} has no groups of units")

    def unit_information(self, latents: Latents, rows: Rows, is_row: Bool[Array, " rows"]) -> Mapping[str, Array]:
        """Return group -> (unit,), the information in these rows on each unit: sums of the curvature of their log likelihood.

        It scales trajectories and need not be exact. For two groups that meet in a linear predictor, the sums over all
        units agree.
        """
        raise NotImplementedError(f"{type(self).__name__} has no groups of units")

    def unit_design(self, group: str, latents: Latents) -> tuple[str, Latents]:
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

    def redraw(self, key: Key[Array, ""], latents: Latents) -> Latents:
        """Make a transition that changes no likelihood and leaves the prior invariant; none by default.

        For directions that the data do not identify, along which the posterior is the prior.
        """
        return latents
