"""Check a model by shapes alone, for a few rows, before any program is compiled; each common mistake is reported in one sentence.

The model is called as the programs and the later stages call it: with traced options, a prior in float64, and a
likelihood in the experiment's dtype.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
import pydantic

from bayesmesh.config.settings import Settings, numeric_options, replace_options
from bayesmesh.config.source_code import PACKAGE_ROOT
from bayesmesh.config.user_code import EXPLAINED, explaining, load_function, place_of
from bayesmesh.data.base import DataSpec
from bayesmesh.errors import ConfigError, suggest
from bayesmesh.models.base import Model, Predictive, Prior
from bayesmesh.sampling.checks.maps import faults, known_fault, needs_trial
from bayesmesh.sampling.density.log_density import row_shapes
from bayesmesh.sampling.density.position import resize_local
from bayesmesh.store.layout import CHAIN, DATASET, DRAW
from bayesmesh.store.posterior.description import ModelDescription

Shapes = dict[str, jax.ShapeDtypeStruct]
"""Name -> shape and dtype."""

FEW_ROWS = 16
"""Most rows in the description of the data, so that the check is fast for a model that loops over rows in Python."""

RESERVED = ("log_density", "log_likelihood")
"""Summaries that are added for every model."""

_JOINT = (
    'return one TFP joint distribution over named latents, for example\n    tfd.JointDistributionNamed({"mean": tfd.Normal'
    "(zero, zero + 1)})"
)
_TAKEN = (CHAIN, DRAW, DATASET, "zarr.json")
"""Names of dimensions of the posterior, and of the files of its groups."""

_LONGEST_NAME = 200
"""Most bytes of a name; it is that of a folder."""

_NAME = re.compile(r"[^\W\d][\w .:()-]*")


def check_model(model_class: type[Model], options: Settings, spec: DataSpec) -> Shapes:
    """Check prior, log likelihood and its gradient, and summaries, without computing anything.

    Args:
        model_class: class of the model.
        options: its options.
        spec: its data, in the experiment's dtype.

    Returns:
        Latent -> shape and dtype of one draw.

    Raises:
        ConfigError: a mistake in the model; the message names file, line, method and latent, and the remedy.
    """
    if missing := sorted(getattr(model_class, "__abstractmethods__", ())):
        methods = ", ".join(
            f"{name}({', '.join(inspect.signature(getattr(model_class, name)).parameters)})" for name in missing
        )
        raise ConfigError(f"{_place_of_class(model_class)}: lacks the method {', '.join(missing)}", f"define {methods}; docs/contracts/model.md says what each returns")  # fmt: skip
    few = dataclasses.replace(spec, num_rows=min(spec.num_rows, FEW_ROWS))
    check = _Check(model_class, options, few)
    numbers = {k: np.asarray(v) for k, v in numeric_options(options).items()}
    jax.eval_shape(check.prior, numbers)
    if check.needs_trial:
        check.maps()
    jax.eval_shape(check.likelihood, numbers)
    check.is_repeatable(numbers)
    with explaining(method=model_class.__init__):
        model = model_class(options, few)
    check_summaries(model, check.latents, few)
    return check.latents


def check_summaries(model: Model, latents: Shapes, spec: DataSpec) -> Shapes:
    """Return the shapes of a model's summaries at a few rows.

    Raises:
        ConfigError: they are not named arrays of floating-point numbers, or the method raises.
    """
    found = _named_arrays(model.summaries, "summary", model, latents, spec, 'return {"mean": latents["mean"]}')
    for name, value in found.items():
        if name in RESERVED:
            _refuse(model.summaries, f"summary '{name}' is added for every model", "leave it out, or give it another name")  # fmt: skip
        if value.dtype.kind != "f":
            _refuse(model.summaries, f"summary '{name}' has dtype {value.dtype}; convergence is assessed on real numbers", "convert it with .astype(...) to the dtype of a latent")  # fmt: skip
        if 0 in value.shape:
            _refuse(model.summaries, f"summary '{name}' has shape {value.shape}: it holds nothing", "leave it out")
    return found


def check_deterministics(model: Model, latents: Shapes, spec: DataSpec) -> None:
    """Check that the quantities that are stored with each draw are named arrays.

    Raises:
        ConfigError: one is not.
    """
    example = 'return {"rate": 60 * latents["mean"]}'
    _named_arrays(model.deterministics, "deterministic", model, latents, spec, example)


def _named_arrays(
    method: Callable[..., Any], what: str, model: Model, latents: Shapes, spec: DataSpec, example: str
) -> Shapes:
    """Return the shapes of what a method returns for a few rows, after checking that these are named arrays."""
    found = _shapes_of(method, model, latents, spec, min(spec.num_rows, 3))
    if not isinstance(found, Mapping):
        _refuse(method, f"returns {type(found).__name__} instead of a dict of named arrays", f"for example `{example}`")
    for name, value in found.items():
        _check_name(method, what, name)
        if not hasattr(value, "dtype"):
            _refuse(method, f"{what} '{name}' is not an array but {value!r}", "return arrays, or leave it out")
    return dict(found)


def check_axes(model: Model, latents: Shapes, summaries: Shapes) -> None:
    """Check that the model names no more axes than its latents and summaries have, with one label for each entry.

    Raises:
        ConfigError: it does not.
    """
    for name, axes in model.axes().items():
        for about in (shapes[name] for shapes in (latents, summaries) if name in shapes):
            labels = [axis.labels if axis is not None else None for axis in axes]
            if len(labels) > len(about.shape):
                _refuse(model.axes, f"names {len(labels)} axes of '{name}', which has shape {about.shape}", "name one for each")  # fmt: skip
            for axis in axes:
                # An axis with the name of an array, or of a dimension, gets another; it names a folder, in any characters but these.
                if axis is not None and (
                    "/" in axis.name or axis.name == "zarr.json" or len(axis.name.encode()) > _LONGEST_NAME
                ):
                    _refuse(model.axes, f"names an axis of '{name}' '{axis.name[:40]}', which cannot be the name of a folder", f"rename the column or the axis, to at most {_LONGEST_NAME} bytes without '/'")  # fmt: skip
            for given, length in zip(labels, about.shape, strict=False):
                if given is not None and len(given) != length:
                    _refuse(model.axes, f"names {len(given)} entries of an axis of '{name}', which has shape {about.shape}", "give one label for each entry")  # fmt: skip


def check_shown(model: Model, latents: Shapes, summaries: Shapes) -> None:
    """Check that the model's main findings are latents or summaries, each with a heading.

    Raises:
        ConfigError: they are not.
    """
    valid = {*latents, *summaries}
    for each in model.shown():
        if not 2 <= len(each) <= 4 or not all(isinstance(text, str) and text for text in each[:2]):
            _refuse(model.shown, f"returns {each!r} instead of a name and a heading", 'for example `return [("slope", "Slope", 0.0)]`')  # fmt: skip
        if each[0] not in valid:
            _refuse(model.shown, f"'{each[0]}' is neither a latent nor a summary", suggest(str(each[0]), valid))


def check_described(model: Model) -> ModelDescription:
    """Return what the model says of itself, after checking it.

    Raises:
        ConfigError: it contains anything that the page does not know.
    """
    try:
        return ModelDescription.model_validate(model.described())
    except pydantic.ValidationError as error:
        found = error.errors()[0]
        where = ".".join(map(str, found["loc"]))
        _refuse(model.described, f"returns '{where}': {found['msg']}", f"return a mapping with any of {', '.join(ModelDescription.model_fields)}")  # fmt: skip


def check_predictions(model: Model, latents: Shapes, spec: DataSpec) -> None:
    """Check `predict` and `outcome`, from which the pointwise groups of a posterior are computed.

    Raises:
        ConfigError: a method is missing or raises, or predictions and outcomes differ in shape.
    """
    rows = min(spec.num_rows, 3)
    try:
        outcome = _shapes_of(lambda _, data: model.outcome(data), model, latents, spec, rows, of=model.outcome)
    except ConfigError as error:
        if not isinstance(error.__cause__, NotImplementedError):
            raise
        _refuse(type(model), "defines no `outcome`, which predictive draws are compared with", "define `outcome(self, rows)`, or set\n    posterior:\n      pointwise_mebibytes: 0")  # fmt: skip

    def sample(draw: Any, data: Any) -> Any:
        predictive = model.predict(draw, data)
        if not isinstance(predictive, Predictive):
            _refuse(model.predict, f"returns {type(predictive).__name__} instead of a distribution", "return a TFP distribution with batch shape (rows, ...)")  # fmt: skip
        return predictive.sample(seed=jax.random.key(0))

    drawn = _shapes_of(sample, model, latents, spec, rows, of=model.predict)
    if drawn.shape != outcome.shape:
        _refuse(model.predict, f"its draws have shape {drawn.shape} for {rows} rows, outcomes {outcome.shape}", "return one prediction for each row's outcome")  # fmt: skip


class _Check:
    """Checks of one model.

    Args:
        model_class: class of the model.
        options: its options.
        spec: its data, of a few rows.

    Attributes:
        latents: latent -> shape and dtype of one draw, from `prior` on.
        needs_trial: whether the prior has maps that `maps` has to try, from `prior` on.
    """

    def __init__(self, model_class: type[Model], options: Settings, spec: DataSpec) -> None:
        self._class, self._options, self._spec = model_class, options, spec
        self.latents: Shapes = {}
        self.needs_trial = False

    def _model(self, numbers: Mapping[str, Any], dtype: str) -> Model:
        with explaining(method=self._class.__init__):
            return self._class(replace_options(self._options, numbers, np.dtype(dtype)), self._spec)

    def prior(self, numbers: Mapping[str, Any]) -> None:
        """Check the prior: named float64 latents, a scalar log density, and a map to unconstrained space."""
        model, spec = self._model(numbers, "float64"), self._spec.with_dtype("float64")
        method = model.prior
        with explaining(method=method, names={"fields": spec.fields, "constants": spec.constants}):
            prior = method(spec)
        if not isinstance(prior, Prior):
            _refuse(method, f"returns {type(prior).__name__} instead of a joint distribution", _JOINT)
        declared = getattr(prior, "model", None)
        _check_distributions(method, declared if isinstance(declared, Mapping) else {})
        with explaining(method=method):
            drawn = prior.sample(seed=jax.random.key(0))
        if not isinstance(drawn, Mapping) or not drawn:
            _refuse(method, f"returns {type(prior).__name__}, whose draws are not a dict of named latents", _JOINT)
        with explaining(method=method):
            separately = getattr(prior, "sample_distributions", None)
            distributions = dict(separately(seed=jax.random.key(0))[0]) if separately else {}
            _check_distributions(method, distributions)
            maps = {name: each.experimental_default_event_space_bijector() for name, each in distributions.items()}
        for name, value in drawn.items():
            _check_latent(method, name, value, is_discrete=maps.get(name, value) is None)
        self.needs_trial = needs_trial(prior, distributions)
        with explaining(method=method):
            log_prob = prior.log_prob(drawn)
            bijector = prior.experimental_default_event_space_bijector()
            there = bijector.inverse(drawn)
            bijector.forward(there)
            jacobian = bijector.forward_log_det_jacobian(there)
        for of, value in (("log density", log_prob), ("log Jacobian", jacobian)):
            if jnp.shape(value) != ():
                _refuse(method, f"its {of} has shape {jnp.shape(value)} instead of ()", "make the axes of a latent part of its event: `tfd.Sample(distribution, shape)` or `tfd.Independent(distribution, number_of_axes)`")  # fmt: skip
        dtype = self._spec.dtype
        self.latents = {k: jax.ShapeDtypeStruct(v.shape, np.dtype(dtype)) for k, v in drawn.items()}
        self._check_axes(model)

    def maps(self) -> None:
        """Refuse a map to unconstrained space, of a distribution or a bijector of the user, that is wrong at draws of the prior."""
        with explaining(method=self._class.prior):
            prior = self._class(self._options, self._spec).prior(self._spec.with_dtype("float64"))
            found = next(faults(prior), None)
        if found is not None:
            _refuse(self._class.prior, f"latent '{found[0]}': {found[1]}", "correct the bijector, or an infinite bound; or give the latent another distribution of TFP, and use a function of it in the likelihood")  # fmt: skip

    def _check_axes(self, model: Model) -> None:
        """Check that declared axes over entries exist and, for local latents, have one place per entry."""
        groups = {"local_latents": model.local_latents, **{f"blocks['{k}']": v for k, v in model.blocks.items()}}
        for where, axes in groups.items():
            for name, axis in axes.items():
                if name not in self.latents:
                    _refuse(self._class, f"{where} names '{name}', which the prior has not", suggest(name, self.latents))  # fmt: skip
                shape = self.latents[name].shape
                if not 0 <= axis < len(shape):
                    _refuse(self._class, f"{where}: latent '{name}' of shape {shape} has no axis {axis}", f"use one of 0 to {len(shape) - 1}")  # fmt: skip
                if where == "local_latents" and shape[axis] != self._spec.num_entries:
                    _refuse(self._class, f"local latent '{name}' of shape {shape} has {shape[axis]} entries on axis {axis} for {self._spec.num_entries} in the data", "let that axis span data_spec.num_entries")  # fmt: skip

    def likelihood(self, numbers: Mapping[str, Any]) -> None:
        """Check the log likelihood at two numbers of rows, since a fixed length may equal one of them, and its gradient."""
        model = self._model(numbers, self._spec.dtype)
        for rows in (2, 3):
            found = _shapes_of(model.log_likelihood, model, self.latents, self._spec, rows)
            self._check_values(model, found, rows)
        method, is_row = model.log_likelihood_and_gradient, jax.ShapeDtypeStruct((rows,), jnp.bool_)
        draw, _ = _arguments(model, self.latents, self._spec, rows)
        of = method if model.has_fast_path() else model.log_likelihood
        match _shapes_of(method, model, self.latents, self._spec, rows, is_row, of=of):
            case (jax.ShapeDtypeStruct(shape=(), dtype=jnp.float64), Mapping() as gradient) if _kinds(
                gradient
            ) == _kinds(draw):
                return
        kinds = ", ".join(f"{name} {dtype}{list(shape)}" for name, (shape, dtype) in sorted(_kinds(draw).items()))
        _refuse(method, f"does not return one number in float64, and a gradient with the name, shape and dtype of each latent: {kinds}", "compare it with Model.log_likelihood_and_gradient")  # fmt: skip

    def _check_values(self, model: Model, found: object, rows: int) -> None:
        """Refuse a likelihood that would be broadcast against the rows, and thus counted once per row."""
        shape, dtype = getattr(found, "shape", None), np.dtype(getattr(found, "dtype", object))
        if shape != (rows,):
            _refuse(model.log_likelihood, f"has shape {shape} for {rows} rows", f"return one value for each row, here of shape ({rows},); its sum over rows is taken by the pipeline")  # fmt: skip
        if dtype.kind != "f" or dtype.itemsize < np.dtype(self._spec.dtype).itemsize:
            _refuse(model.log_likelihood, f"returns {dtype} in an experiment of {self._spec.dtype}", "compute with the dtype of the latents: no jnp.float32(...), and `rows[...].astype(latent.dtype)`")  # fmt: skip

    def is_repeatable(self, numbers: Mapping[str, Any]) -> None:
        """Refuse a likelihood whose program differs each time it is traced, because of random numbers, a clock or a global."""
        texts = set()
        for _ in range(2):
            model = self._model(numbers, self._spec.dtype)
            with explaining(method=model.log_likelihood):
                jaxpr = jax.make_jaxpr(model.log_likelihood)(*_arguments(model, self.latents, self._spec, 2))
            if any(isinstance(constant, jax.core.Tracer) for constant in jaxpr.consts):
                _refuse(model.log_likelihood, *EXPLAINED["UnexpectedTracerError"])
            constants = tuple(np.asarray(constant).tobytes() for constant in jaxpr.consts)
            # Functions are printed with their addresses.
            texts.add((re.sub(r"0x[0-9a-f]+", "", str(jaxpr)), constants))
        if len(texts) > 1:
            _refuse(model.log_likelihood, "gives other numbers each time it is called", "use no random numbers, clock or global variables in it: its result must depend on latents and rows alone")  # fmt: skip


def _arguments(model: Model, latents: Shapes, spec: DataSpec, num_rows: int) -> tuple[Shapes, Shapes]:
    """Return the shapes of one draw, with local latents aligned with the rows, and of the rows."""
    return resize_local(latents, model.local_latents, num_rows), row_shapes(spec, num_rows)


def _shapes_of(
    function: Callable[..., Any], model: Model, latents: Shapes, spec: DataSpec, num_rows: int, *more: Any,
    of: Callable[..., Any] | None = None,
) -> Any:  # fmt: skip
    """Return the shapes and dtypes that a method, or a function that calls the method `of`, returns for a few rows."""
    names = {"latents": latents, "fields": spec.fields, "constants": spec.constants}
    with explaining(method=of or function, names=names):
        return jax.eval_shape(function, *_arguments(model, latents, spec, num_rows), *more)


def _kinds(latents: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {name: (getattr(each, "shape", None), getattr(each, "dtype", None)) for name, each in latents.items()}


def _check_distributions(method: Callable[..., Any], distributions: Mapping[str, Any]) -> None:
    """Refuse latents with a distribution of TFP whose map to unconstrained space is wrong."""
    for name, each in distributions.items():
        if (fault := known_fault(each)) is not None:
            _refuse(method, f"latent '{name}': {fault[0]}", fault[1])


def _check_latent(method: Callable[..., Any], name: object, value: Any, *, is_discrete: bool) -> None:
    """Refuse a latent that has no coordinates in unconstrained space, or a dtype other than the prior was asked for."""
    _check_name(method, "latent", name)
    dtype = getattr(value, "dtype", None)
    if dtype is None:
        _refuse(method, f"latent '{name}' is not an array but {type(value).__name__}", _JOINT)
    if is_discrete and dtype.kind == "f":
        _refuse(method, f"latent '{name}' is discrete, or has a distribution without a map to unconstrained space, such as a mixture", "sum a discrete one out of the likelihood (marginalise); give a continuous one a normal prior here, and add the logarithm of its own density over that of this prior to the likelihood")  # fmt: skip
    if dtype.kind != "f":
        _refuse(method, f"latent '{name}' is discrete ({dtype}), and all kernels move in continuous space", "sum it out of the likelihood (marginalise), for example with jax.scipy.special.logsumexp over its values")  # fmt: skip
    if dtype != np.float64:
        _refuse(method, f"latent '{name}' has dtype {dtype}, and the data spec asks for float64 here", "give its parameters the dtype of the data: `zero = jnp.zeros((), data_spec.dtype)`, then tfd.Normal(zero, zero + 1)")  # fmt: skip
    if 0 in value.shape:
        _refuse(method, f"latent '{name}' has shape {value.shape}: it holds nothing", "leave it out, or correct the option or the field that its shape comes from")  # fmt: skip


def _check_name(method: Callable[..., Any], what: str, name: object) -> None:
    """Refuse a name that cannot be that of a stored array."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        _refuse(method, f"{name!r} is not a valid name for a {what}", "begin it with a letter, of any script, and go on with letters, digits, spaces and . : ( ) - _")  # fmt: skip
    if name in _TAKEN:
        _refuse(method, f"a {what} cannot be called '{name}', which is the name of a dimension or a file of the posterior", f"rename it, for example to '{name.partition('.')[0]}_1'")  # fmt: skip
    try:
        length = len(name.encode(encoding := sys.getfilesystemencoding()))
    except UnicodeEncodeError:
        _refuse(method, f"{name!r} names a folder, and names of files have the encoding {encoding} here", "set the environment variable PYTHONUTF8=1, or spell it in ASCII, such as 'alpha'")  # fmt: skip
    if length > _LONGEST_NAME:
        _refuse(method, f"the {what} '{name[:40]}...' has a name of {length} bytes, and it names a folder", f"shorten it to at most {_LONGEST_NAME} bytes")  # fmt: skip


def _refuse(of: Callable[..., Any], problem: str, remedy: str) -> NoReturn:
    """Raise the error of a class, or of one of its methods: of the function from which a model of this package is made."""
    model = getattr(of, "__self__", None)
    function = getattr(getattr(model, "options", None), "function", None)
    if isinstance(function, str) and PACKAGE_ROOT in Path(inspect.getfile(type(model))).parents:
        of = load_function(function)
    raise ConfigError(f"{_place_of_class(of) if isinstance(of, type) else place_of(of)}: {problem}", remedy)


def _place_of_class(cls: type) -> str:
    return f"{inspect.getsourcefile(cls)}, line {inspect.getsourcelines(cls)[1]}: {cls.__name__}"
