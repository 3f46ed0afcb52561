"""Outcomes that are known in part: censored, truncated, rounded, or with a known standard error.

Every row is known to lie above one number and up to another. Where both are the same, the outcome is known exactly. A
truncated row could be seen only between two bounds, whose probability divides its own. Families know nothing of this: they
give the density and both tails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from bayesmesh.config.data_spec import Variable
from bayesmesh.errors import ConfigError
from bayesmesh.models._predictive import expectation
from bayesmesh.models.base import HostRows, Predictive, Rows
from bayesmesh.models.glm.design import Source
from bayesmesh.models.glm.families._links import log1mexp
from bayesmesh.models.glm.families._zeros import Hurdle
from bayesmesh.models.glm.families.base import Family, Parameters

KINDS = {"none": 0, "left": -1, "right": 1, "interval": 2}
"""Kind of censoring -> its code in a column of numbers."""


ENDS = ("above", "up_to", "lower", "upper")
"""Fields that bound an outcome; they are infinite in rows without such a bound. An end that
no row's kind of censoring moves from the outcome is left out."""


def columns_of(options: Any) -> dict[str, str]:
    """Return key of the model -> the column of numbers that it names."""
    truncated = options.truncated
    found = {
        "interval_end": options.interval_end, "known_error": options.known_error, "rounded": options.rounded,
        "truncated.lower": truncated and truncated.lower, "truncated.upper": truncated and truncated.upper,
    }  # fmt: skip
    return {key: name for key, name in found.items() if isinstance(name, str)}


def needed_for_predictions(options: Any) -> set[str]:
    """Return the columns without which new rows cannot be predicted."""
    return {name for key, name in columns_of(options).items() if key.startswith(("truncated", "known_error"))}


def is_partial(options: Any) -> bool:
    """Return whether outcomes are known in part."""
    return any((options.censored, options.truncated, options.known_error, options.rounded))


def in_words(options: Any, constants: Mapping[str, float | int]) -> dict[str, str]:
    """Return what the page says of outcomes that are known in part; nothing if all are known exactly.

    Args:
        options: options of the model.
        constants: of the prepared data, with the number of rows of each kind of censoring.
    """
    found = []
    if options.censored:
        found_kinds = {kind: int(constants[f"num_{kind}"]) for kind in KINDS}
        numbers = ", ".join(
            f"{kind} in {number:,} row{'s' * (number > 1)}" for kind, number in found_kinds.items() if number
        )
        found.append(f"censored as '{options.censored}' says: {numbers}; predictions are of the uncensored outcome")
    if options.truncated:
        ends = (options.truncated.lower, options.truncated.upper)
        found.append("truncated to between {} and {}".format(*("any number" if end is None else end for end in ends)))
    found += [f"known standard errors '{options.known_error}'"] if options.known_error else []
    found += [f"rounded to {options.rounded}"] if options.rounded else []
    return {"Outcome": "; ".join(found)} if found else {}


def check_options(options: Any, family: Family, variables: Mapping[str, Variable]) -> None:
    """Reject keys that do not fit together or the family.

    Raises:
        ConfigError: names the key.
    """
    for key in ("censored", "truncated", "rounded"):
        if getattr(options, key) and not family.has_cdf:
            raise ConfigError(
                f"key 'model.{key}': the family {family.name} has no cumulative distribution function",
                "use another family, such as normal, weibull or poisson, or leave out the key",
            )
    if options.known_error and family.name not in ("normal", "student_t"):
        raise ConfigError(
            f"key 'model.known_error': the family {family.name} takes no known errors", "use normal or student_t"
        )
    fixed = options.parameters.get("sigma")
    if isinstance(fixed, float) and (fixed < 0 or (fixed == 0 and not options.known_error)):
        raise ConfigError(
            f"key 'model.parameters.sigma': {fixed:g} leaves no spread",
            "write a number above 0, or name a 'known_error'",
        )
    if options.interval_end and not options.censored:
        raise ConfigError(
            "key 'model.interval_end': no column says which rows are intervals",
            "name it with the key 'model.censored'; its value in these rows is interval",
        )
    if isinstance(options.rounded, float) and not options.rounded > 0:
        raise ConfigError(
            f"key 'model.rounded': {options.rounded:g} is not greater than 0",
            "write the distance between two roundings",
        )
    if (name := options.censored) is not None:
        for level in variables[name].levels if name in variables else ():
            if level not in KINDS:
                raise ConfigError(
                    f"key 'model.censored': '{level}', a level of '{name}', is not a kind of censoring",
                    f"write {', '.join(KINDS)} in its rows, or make it a column of the numbers 0, -1, 1 and 2",
                )


def is_one_sided(options: Any) -> bool:
    """Return whether no row may be known to lie between two numbers."""
    return options.interval_end is None and options.rounded is None and options.truncated is None


def _ends_of(options: Any, source: Source) -> list[str]:
    """Return the fields that say between what numbers outcomes lie."""
    if not is_one_sided(options):
        return [] if options.censored is None and options.rounded is None else ["above", "up_to"]
    kinds = _possible_kinds(options.censored, source) if options.censored is not None else set()
    return [end for end, kind in (("above", "left"), ("up_to", "right")) if kind in kinds]


def _possible_kinds(name: str, source: Source) -> set[str]:
    """Return the kinds of censoring that a row may have, be it held out."""
    about = source.variables.get(name)
    if about is not None and about.levels:
        return {*about.levels}
    # Known of whole numbers of which none is negative, so that none is -1.
    num_codes = source.fields[name].num_codes
    return {kind for kind, code in KINDS.items() if not num_codes or 0 <= code < num_codes}


def fields_of(
    options: Any, family: Family, source: Source, unit: tuple[float, float], y: np.ndarray,
    rows: HostRows, start: int | None = None,
) -> dict[str, np.ndarray]:  # fmt: skip
    """Return the fields of what is known of the outcomes: ``above`` and ``up_to``, ``lower`` and ``upper``, ``known_error``.

    Args:
        options: options of the model.
        family: family of the outcome.
        source: the table.
        unit: shift and scale from the unit of the outcome to that of the table.
        y: outcomes, (row,).
        rows: the same rows of the table.
        start: number of the first row, from 0, to check the rows; None for rows that may have no outcome.

    Raises:
        ConfigError: a row contradicts itself; names the row.
    """
    shift, scale = unit
    made: dict[str, np.ndarray] = {}
    kinds = np.zeros(len(y), int)
    if options.censored is not None and options.censored in rows:
        kinds = kinds_of(options, source.variables, rows, start)
    above, up_to = y.astype(float), y.astype(float)
    if options.rounded is not None and (not isinstance(options.rounded, str) or options.rounded in rows):
        half = _numbers(options.rounded, rows, len(y)) / scale / 2
        _check(
            half > 0,
            "rounded",
            half * 2 * scale,
            "is not greater than 0",
            "write the distance between two roundings",
            start,
        )
        is_whole = kinds == 0
        above, up_to = np.where(is_whole, y - half, above), np.where(is_whole, y + half, up_to)
        if family.is_discrete:
            above, up_to = np.where(is_whole, np.ceil(above) - 1, above), np.where(is_whole, np.floor(up_to), up_to)
    above, up_to = np.where(kinds == -1, -np.inf, above), np.where(kinds == 1, np.inf, up_to)
    if options.interval_end is not None and options.interval_end in rows:
        end = (_numbers(options.interval_end, rows, len(y)) - shift) / scale
        end = np.floor(end) if family.is_discrete else end
        is_interval = kinds == 2
        remedy = "write a number above the outcome, or another kind of censoring"
        _check(~is_interval | (end > y), "interval_end", end * scale + shift, "is not above the outcome", remedy, start)
        up_to = np.where(is_interval, end, up_to)
    if options.truncated is not None:
        given = (options.truncated.lower, options.truncated.upper)
        if all(not isinstance(each, str) or each in rows for each in given):
            numbers = [each if each is None else (_numbers(each, rows, len(y)) - shift) / scale for each in given]
            lower = np.full(len(y), -np.inf) if numbers[0] is None else numbers[0]
            upper = np.full(len(y), np.inf) if numbers[1] is None else numbers[1]
            words = "excludes the outcome of its row"
            remedy = "correct the bound, or leave the row out: a truncated outcome lies between its bounds"
            _check(lower < upper, "truncated", lower * scale + shift, "is not below the upper bound", "write a lower bound below the upper one", start)  # fmt: skip
            # Truncated outcomes lie above the lower bound, which only matters where an outcome has a probability of its own.
            is_atom = (y == 0) & (isinstance(family, Hurdle) and not family.is_discrete)
            is_above = np.where(is_atom, y > lower, y >= lower)
            _check(is_above, "truncated.lower", lower * scale + shift, words, remedy, start)
            _check(y <= upper, "truncated.upper", upper * scale + shift, words, remedy, start)
            lower = np.ceil(lower) - 1 if family.is_discrete else lower
            made |= {"lower": lower, "upper": np.floor(upper) if family.is_discrete else upper}
            is_exact = above == up_to
            above = np.where(is_exact, above, np.maximum(above, lower))
            up_to = np.where(is_exact, up_to, np.minimum(up_to, made["upper"]))
    bounds = {"above": above, "up_to": up_to}
    made |= {end: bounds[end] for end in _ends_of(options, source)}
    if options.known_error is not None and options.known_error in rows:
        error = _numbers(options.known_error, rows, len(y)) / scale
        least = 0 if options.parameters.get("sigma") == 0 else -1e-300
        _check(error > least, "known_error", error * scale, "is not a standard error", "write numbers above 0", start)
        made["known_error"] = error
    return made | {name: _within_support(family, made[name]) for name in ("above", "lower") if name in made}


def _numbers(value: float | str, rows: HostRows, num_rows: int) -> np.ndarray:
    return np.asarray(rows[value], float) if isinstance(value, str) else np.full(num_rows, float(value))


def _within_support(family: Family, low: np.ndarray) -> np.ndarray:
    """Return lower ends, minus infinity where no outcome lies below them: their logarithms need not exist."""
    if family.is_discrete:
        return np.where(low < 0, -np.inf, low)
    is_finite = np.isfinite(low)
    return np.where(is_finite & family.fits(np.where(is_finite, low, 1.0), None), low, -np.inf)


def kinds_of(options: Any, variables: Mapping[str, Variable], rows: HostRows, start: int | None) -> np.ndarray:
    """Return the code of each row's kind of censoring, after checking them; arguments as for `fields_of`."""
    name = options.censored
    codes = np.asarray(rows[name], float)
    about = variables.get(name)
    if about is not None and about.levels:
        codes = np.array([KINDS[level] for level in about.levels])[codes.astype(int)]
    _check(np.isin(codes, [*KINDS.values()]), "censored", codes, "is not a kind of censoring", "use 0 for no censoring, -1 for left, 1 for right and 2 for interval", start)  # fmt: skip
    if options.interval_end is None:
        _check(codes != 2, "censored", codes, "is an interval without an end", "name the column of the ends with the key 'model.interval_end'", start)  # fmt: skip
    return codes.astype(int)


def without_zero(options: Any, variables: Mapping[str, Variable], rows: HostRows, row: int) -> str:
    """Return how to write a row that is known to lie between 0 and another number as censored; empty if it is not known."""
    kind = 0 if options.censored is None else kinds_of(options, variables, rows, None)[row]
    if kind == KINDS["interval"] and options.interval_end is not None:
        end = np.asarray(rows[options.interval_end], float)[row]
        return (
            f"write left instead of interval in the column '{options.censored}', and the end, {end:g}, as the outcome"
        )
    if kind == KINDS["none"] and options.rounded is not None:
        half = _numbers(options.rounded, rows, row + 1)[row] / 2
        return f"write left in the column of the key 'model.censored', and half the rounding, {half:g}, as the outcome"
    return ""


def _check(fits: np.ndarray, key: str, values: np.ndarray, problem: str, remedy: str, start: int | None) -> None:
    if start is not None and not fits.all():
        row = int(np.argmin(fits))
        raise ConfigError(f"key 'model.{key}': training row {start + row + 1}: {values[row]:g} {problem}", remedy)


def with_known_error(parameters: dict[str, Array], rows: Rows) -> dict[str, Array]:
    """Return the parameters with a standard deviation that includes the known error of each row."""
    if "known_error" not in rows:
        return parameters
    return {**parameters, "sigma": jnp.hypot(parameters["sigma"], rows["known_error"])}


def log_likelihood(
    family: Family, exact: Float[Array, " rows"], eta: Array, rows: Rows, parameters: Parameters, *, is_one_sided: bool
) -> Float[Array, " rows"]:
    """Return the log likelihood of each row, in nats.

    Args:
        family: family of the outcome.
        exact: log density of the outcomes, used where they are known exactly.
        eta, rows, parameters: as for `Family.log_density`.
        is_one_sided: from the function of that name. A row that does not lie between two numbers needs one tail at its outcome.
    """
    value, y = exact, rows["outcome"].astype(eta.dtype)
    if is_one_sided:
        for end, tail in (("up_to", family.log_survival), ("above", family.log_cdf)):
            if end in rows:
                value = jnp.where(jnp.isinf(rows[end]), tail(y, eta, rows, parameters), value)
    elif "above" in rows:
        is_exact = rows["above"] == rows["up_to"]
        # Both branches have gradients, so that of an exact row is one tail at its outcome.
        above = jnp.where(is_exact, -jnp.inf, rows["above"])
        value = jnp.where(is_exact, exact, log_between(family, above, rows["up_to"], eta, rows, parameters))
    if "lower" in rows:
        value = value - log_between(family, rows["lower"], rows["upper"], eta, rows, parameters)
    return value


def log_between(
    family: Family, low: Array, high: Array, eta: Array, rows: Rows, parameters: Parameters
) -> Float[Array, " rows"]:
    """Return the log probability of outcomes above `low` and up to `high`, either of which may be infinite.

    The difference is that of the tails on the side where both are smaller.
    """
    has_low, has_high = jnp.isfinite(low), jnp.isfinite(high)
    a = jnp.where(has_low, low, jnp.where(has_high, high, rows["outcome"]))
    b = jnp.where(has_high, high, a)
    below = [family.log_cdf(x, eta, rows, parameters) for x in (a, b)]
    beyond = [family.log_survival(x, eta, rows, parameters) for x in (a, b)]
    is_left = below[1] < beyond[0]
    larger, smaller = jnp.where(is_left, below[1], beyond[0]), jnp.where(is_left, below[0], beyond[1])
    has_both = has_low & has_high
    inside = larger + log1mexp(jnp.where(has_both, larger - smaller, 1.0))
    return jnp.where(has_both, inside, jnp.where(has_high, below[1], jnp.where(has_low, beyond[0], 0.0)))


_STEPS = 64
"""Most doublings and halvings of the interval in which a truncated outcome is sought, to the last digit."""

_TRIES = 16
"""Number of draws without truncation, of which the first between the bounds is taken, before one is sought."""


_NODES = np.linspace(-3.5, 4.6, 109)
"""Nodes of the integrals of a mean, between the scales of 1e-11 and 1e34 times that of the outcome."""


type _Sought = tuple[Array, Array, Array, Array]
"""Number of steps, both ends, and which rows are still sought."""


class Truncated:
    """The distribution of truncated outcomes: draws that miss the bounds are replaced by quantiles, found by bisection, and the mean is an integral of tails.

    Args:
        base: the distribution without truncation.
        family, eta, rows, parameters: as for `log_likelihood`; the rows have bounds.
    """

    def __init__(self, base: Predictive, family: Family, eta: Array, rows: Rows, parameters: Parameters) -> None:
        self._base, self._family = base, family
        self._eta, self._rows, self._parameters = eta, rows, parameters
        self._low, self._high = (jnp.asarray(rows[name], eta.dtype) for name in ("lower", "upper"))
        # Distribution functions need not exist outside of the outcomes that the family has.
        fits_negative, fits_large = family.fits(np.array([-1.0, 2.0]), np.array([4, 4]))
        self._least = self._low if fits_negative else jnp.maximum(self._low, -1 if family.is_discrete else 0)
        self._most = self._high if fits_large else jnp.minimum(self._high, 1)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The shape of the rows."""
        return tuple(self._base.batch_shape)

    def _log_mass(self, low: Array, high: Array) -> Array:
        high = jnp.floor(high) if self._family.is_discrete else high
        return log_between(self._family, low, high, self._eta, self._rows, self._parameters)

    def sample(self, *, seed: PRNGKeyArray) -> Array:
        """Return a draw for each row."""
        key_tries, key_share = jax.random.split(seed)

        def draw(number: Array) -> Array:
            return self._base.sample(seed=jax.random.fold_in(key_tries, number)).astype(self._eta.dtype)

        def misses(x: Array) -> Array:
            return ~((x > self._low) & (x <= self._high))

        def again(state: tuple[Array, Array]) -> tuple[Array, Array]:
            number, x = state
            return number + 1, jnp.where(misses(x), draw(number), x)

        first = jnp.ones((), jnp.int32), draw(jnp.zeros((), jnp.int32))
        _, found = jax.lax.while_loop(lambda state: misses(state[1]).any() & (state[0] < _TRIES), again, first)
        is_left, least = misses(found), jnp.finfo(self._eta.dtype).tiny
        log_share = jnp.log(jax.random.uniform(key_share, found.shape, found.dtype, minval=least))
        start = jnp.clip(found, self._low, self._high)
        # Tails of large counts take thousands of terms, also in rows where none is sought.
        eta = jnp.where(is_left, self._eta, 0)
        rest = Truncated(self._base, self._family, eta, self._rows, self._parameters)
        return jnp.where(is_left, rest._quantile(log_share, start, is_left), found)

    def _quantile(self, log_share: Array, start: Array, is_sought: Array | bool = True) -> Array:
        """Return the outcomes up to which a share of the probability lies, sought from some between the bounds."""
        low, target = self._low, log_share + self._log_mass(self._low, self._high)
        discrete, none = self._family.is_discrete, jnp.zeros((), jnp.int32)

        def is_wide(left: Array, right: Array) -> Array:
            if discrete:
                return jnp.floor(right) - jnp.floor(left) > 1
            return right - left > 4 * jnp.finfo(left.dtype).eps * jnp.maximum(jnp.abs(left), jnp.abs(right))

        def widen(state: _Sought) -> _Sought:
            i, left, right, _ = state
            is_above, is_below = self._log_mass(low, left) > target, self._log_mass(low, right) < target
            step = (1 + jnp.abs(start)) * jnp.exp2(i.astype(start.dtype))
            left = jnp.where(is_above, jnp.maximum(left - step, self._least), left)
            right = jnp.where(is_below, jnp.minimum(right + step, self._most), right)
            return i + 1, left, right, is_sought & (is_above | is_below)

        def halve(state: _Sought) -> _Sought:
            i, left, right, _ = state
            middle = 0.5 * (left + right)
            is_below = self._log_mass(low, middle) < target
            left, right = jnp.where(is_below, middle, left), jnp.where(is_below, right, middle)
            return i + 1, left, right, is_sought & is_wide(left, right)

        def goes_on(state: _Sought) -> Array:
            return state[-1].any() & (state[0] < _STEPS)

        begin = jnp.broadcast_to(jnp.asarray(is_sought), start.shape)
        _, left, right, _ = jax.lax.while_loop(goes_on, widen, (none, start, start, begin))
        begin = begin & is_wide(left, right)
        _, _, right, _ = jax.lax.while_loop(goes_on, halve, (none, left, right, begin))
        return jnp.floor(right) if discrete else right

    def mean(self) -> Array:
        """Return the expectation of each row: the median, and the integrals or sums of both tails from there."""
        low, high, least, most = self._low, self._high, self._least, self._most
        total = self._log_mass(low, high)
        inside = jnp.where(jnp.isfinite(most), jnp.where(jnp.isfinite(least), 0.5 * (least + most), most - 1), 1)
        start = jnp.where(jnp.isfinite(least) & ~jnp.isfinite(most), least + 1, inside)
        median = self._quantile(jnp.log(jnp.full_like(start, 0.5)), start)

        def beyond(x: Array) -> Array:
            return jnp.where(x < most, jnp.exp(self._log_mass(x, high) - total), 0)

        def up_to(x: Array) -> Array:
            return jnp.where(x > least, jnp.exp(self._log_mass(low, x) - total), 0)

        if self._family.is_discrete:
            above = _sum_tail(lambda k: beyond(median + k), median)
            mean = median + above - _sum_tail(lambda k: up_to(median - 1 - k), median)
        else:
            scale = 0.5 * jnp.exp(total - self._base.log_prob(median))
            above = _integrate_tail(lambda x: beyond(median + x), scale, most - median)
            mean = median + above - _integrate_tail(lambda x: up_to(median - x), scale, median - least)
        whole = expectation(self._base)
        is_bounded = jnp.isfinite(least) & jnp.isfinite(most)
        # Heavy tails, of which one is left, have none.
        return mean if whole is None else jnp.where(is_bounded, mean, jnp.where(jnp.isfinite(whole), mean, jnp.nan))

    def log_prob(self, value: Array) -> Array:
        """Return the log density of outcomes between the bounds."""
        inside = (value >= self._rows["lower"]) & (value <= self._rows["upper"])
        own = self._base.log_prob(value) - self._log_mass(self._rows["lower"], self._rows["upper"])
        return jnp.where(inside, own, -jnp.inf)


def completed(family: Family, eta: Array, rows: Rows, parameters: Parameters, key: PRNGKeyArray) -> Array:
    """Return outcomes, drawn from their distribution given what is known of them where they are not known exactly."""
    above, up_to = (rows.get(end, rows["outcome"]) for end in ("above", "up_to"))
    is_exact = above == up_to
    lower, upper = jnp.where(is_exact, -jnp.inf, above), jnp.where(is_exact, jnp.inf, up_to)
    own = {**rows, "lower": lower, "upper": upper}
    drawn = Truncated(family.predict(eta, rows, parameters), family, eta, own, parameters).sample(seed=key)
    return jnp.where(is_exact, rows["outcome"], drawn.astype(rows["outcome"].dtype))


def _integrate_tail(tail: Callable[[Array], Array], scale: Array, length: Array) -> Array:
    """Return the integral of a tail from 0 to a length, which may be infinite (Takahasi and Mori 1974).

    Args:
        tail: probability at each distance, (row,).
        scale: distance at which it begins to fall.
        length: beyond it, the probability is 0.
    """
    nodes = jnp.asarray(_NODES, scale.dtype)
    step = float(_NODES[1] - _NODES[0])

    def add(i: Array, total: Array) -> Array:
        distance = jnp.minimum(scale * jnp.exp(0.5 * np.pi * jnp.sinh(nodes[i])), 1e37)
        shrunk = distance / (1 + distance / length)
        weight = 0.5 * np.pi * step * jnp.cosh(nodes[i]) * shrunk / (1 + distance / length)
        return total + weight * tail(shrunk)

    return jax.lax.fori_loop(0, len(_NODES), add, jnp.zeros_like(scale))


def _sum_tail(tail: Callable[[Array], Array], like: Array) -> Array:
    """Return the sum of a tail over the distances 0, 1, ...: one by one at first, then in blocks by Simpson's rule.

    Args:
        tail: probability at each distance, (row,).
        like: array with the shape of the sums.
    """
    dtype = like.dtype

    def goes_on(state: tuple[Array, Array, Array]) -> Array:
        distance, total, last = state
        return jnp.any(last * (distance + 1) > jnp.finfo(dtype).eps * total) & (distance < 1e12)

    def add(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        distance, total, _ = state
        half = jnp.floor(distance / 32)
        width = 2 * half + 1
        first, middle, last = (tail(distance + k * half) for k in range(3))
        curvature = (first - 2 * middle + last) / jnp.maximum(half, 1) ** 2
        block = width * middle + curvature * width * (width**2 - 1) / 24
        return distance + width, total + block, last

    zero = jnp.zeros((), dtype)
    return jax.lax.while_loop(goes_on, add, (zero, jnp.zeros_like(like), jnp.ones_like(like)))[1]
