"""Description of a generalised linear model on a page: axes, findings, family, link, priors, units, remedies."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bayesmesh.models.base import Axis, DataSpec, Shown
from bayesmesh.models.glm.checks import named
from bayesmesh.models.glm.coefficients import NAME, SIGMA
from bayesmesh.models.glm.design import latent_name, levels_of
from bayesmesh.models.glm.families.base import DEFAULT_SCALE, Family
from bayesmesh.models.glm.formula import KEY
from bayesmesh.models.glm.partial import in_words, is_partial
from bayesmesh.models.glm.plan import Plan
from bayesmesh.models.glm.predictor import Predictor
from bayesmesh.models.glm.priors import default_of_parameter, find_conflicts, find_shut_off

MANY_LEVELS = 1000
"""Number of levels of several groups from which a page advises to draw their effects exactly, in turn."""

CUTPOINTS = "cutpoints"
"""Summary of an ordered outcome: its cutpoints, or thresholds, where all columns are 0."""

_MEANS = (
    "Look for what the formula lacks: a predictor, a curve such as `I(x^2)`, an interaction such as `x:z`, or effects of a "
    "group such as `(1 | group)`."
)


def shown_of(plan: Plan, family: Family) -> Sequence[Shown]:
    """Return the findings for the page: coefficients in the units of the table, the family's parameters, groups.

    Args:
        plan: plan of the model.
        family: family of the outcome.
    """
    unit = family.link_words.unit.format(y=plan.formula.outcome.text)
    found = [*_coefficients_shown(plan.main, f"Coefficients, {unit}")]
    names = [SIGMA if name == "sigma" and plan.has_sigma_in_table else name for name in plan.parameters]
    found += [Shown(name, "Parameters of the outcome's distribution") for name in names]
    if family.has_cutpoints:
        which = "all columns" if plan.main.original is None else "all columns, as the model reads them,"
        found.append(Shown(CUTPOINTS, f"Cutpoints where {which} are 0, {unit}"))
    found += _groups_shown(plan.main, "effects", unit)
    for name, predictor in plan.others.items():
        of = name if plan.links[name] == "identity" else f"{plan.links[name]} {name}"
        found += _coefficients_shown(predictor, f"Coefficients of {of}")
        found += _groups_shown(predictor, f"effects on {of}", "")
    return found


def _coefficients_shown(predictor: Predictor, heading: str) -> Iterator[Shown]:
    if predictor.original is not None:
        yield Shown(
            f"{predictor.prefix}{NAME}", f"{heading}, for one unit of a column in the table", 0.0, ("intercept",)
        )
        return
    if predictor.has_intercept:
        yield Shown(f"{predictor.intercept}_at_zero", heading)
    yield from (Shown(predictor.b(columns), heading, 0.0) for columns in predictor.columns)


def _groups_shown(predictor: Predictor, effects: str, unit: str) -> Iterator[Shown]:
    for group in predictor.groups:
        of = f", {unit}" if unit else ""
        if predictor.original is not None and group.num_effects > group.has_intercept:
            of += ", per standard deviation of standardised columns"
        yield Shown(group.sd, f"Standard deviations of {effects} between levels of {group.name}{of}")
        if group.is_correlated:
            yield Shown(group.correlations, f"Correlations of {effects} over {group.name}", 0.0)
        which = ": {entry}" if group.num_effects > 1 else ""
        yield Shown(group.effects, f"{effects.capitalize()} of {group.name}{which}{of}", 0.0)


def describe(plan: Plan, family: Family, options: Any, spec: DataSpec) -> dict[str, object]:
    """Return the parts of a `bayesmesh.store.posterior.description.ModelDescription`.

    Args:
        plan, family, options, spec: plan, family and options of the model, and description of its data.
    """
    words, scale, groups = family.link_words, plan.unit[1], plan.main.groups
    y = plan.formula.outcome.text
    levels = levels_of(spec.variables, plan.formula.outcome) or ("0", "1")
    whole = f"{y} before truncation" if options.truncated else y
    names = {"y": whole, "one": f"{y} = {levels[1]}", "first": levels[0], "level": "{level}"}
    of = words.of.format(**names)
    exposure = options.exposure or spec.roles.get("exposure")
    link = words.link.format(**names) + (f", per unit of {exposure}" if exposure else "")
    effects = {group.effects: scale for group in groups} | {group.sd: scale for group in groups}
    return {
        "facts": {
            "Family": words.family,
            "Link": link,
            "Priors": "; ".join(_priors(plan, family, options, spec)),
        }
        | _how_drawn(plan, family, options, spec)
        | in_words(options, spec.constants)
        | _contrasts(options)
        | {f"Predictor of {name}": text for name, text in _other_predictors(plan, options)}
        | _unused(plan.main, spec)
        | _of_one_level(plan)
        | _collinear(plan.main, family, spec),
        "meanings": {
            "predictor": f"the linear predictor of single rows, {words.unit.format(y=y)}; the number counts the probe rows, "
            "which are spread evenly over the data",
            "intercept_at_zero": "the predictor where all columns are 0",
            CUTPOINTS: "where all columns are 0, the link of the probability of at most the level before the bar; of "
            "`sequential`, that of stopping at it once it is reached",
        }
        | {
            f"{each.intercept}_at_zero": f"{plan.links[name]} of {name} where all columns are 0"
            for name, each in plan.others.items()
        },
        "names": {
            predictor.b(each): f"{predictor.prefix}b_{each.name}"
            for predictor in plan.predictors
            for each in predictor.columns
            if latent_name(each.name) != each.name
        },
        "scales": effects if scale != 1 else {},
        "warnings": [
            *(f"{KEY}: {remark}" for each in plan.predictors for remark in each.formula.remarks),
            *find_conflicts(plan.main, family, options, spec),
            *find_shut_off(KEY, plan.main, options.priors, spec),
            *(
                warning
                for name, each in plan.others.items()
                for warning in find_shut_off(
                    f"key 'model.parameters.{name}'", each, options.parameters[name].priors, spec
                )
            ),
        ],
        "effects": {"scale": words.scale, "of": of, "doubled": _doubled(plan.main)},
        "remedies": {"bias": _MEANS, **_remedies(plan, family)},
    }


def _contrasts(options: Any) -> dict[str, str]:
    sums = [name for name, coding in options.contrasts.items() if coding == "sum"]
    return {"Contrasts": f"levels of {named(sums)} against the mean over all levels"} if sums else {}


def _how_drawn(plan: Plan, family: Family, options: Any, spec: DataSpec) -> dict[str, str]:
    """Return the fact that effects are integrated out, or that those of many levels could be drawn exactly."""
    groups = plan.main.groups
    if spec.dataset_counts:
        return {}
    if plan.integrated is not None:
        return {
            f"Effects of {plan.integrated.name}": "integrated out while chains run, and drawn exactly for each draw"
        }
    are_many = len(groups) > 1 and sum(g.num_levels for g in groups) >= MANY_LEVELS
    is_normal = family.is_summed and not (options.parameters or is_partial(options))
    if not (are_many and is_normal) or plan.has_normal_units or any(g.is_correlated for g in groups):
        return {}
    how = (
        "sampled together; model: {centred: true} with kernel: {name: gibbs} draws those of each group exactly, in turn"
    )
    return {f"Effects of {named([g.name for g in groups])}": f"{how}, which suits thousands of levels"}


def _other_predictors(plan: Plan, options: Any) -> Iterator[tuple[str, str]]:
    """Yield the parameters that do not have a prior of their own, with their predictor or their value."""
    for name in plan.others:
        link = plan.links[name]
        yield name, f"{name if link == 'identity' else f'{link}({name})'} {options.parameters[name].formula}"
    for name, number in plan.fixed.items():
        yield name, f"set to {number:g}"


def _remedies(plan: Plan, family: Family) -> dict[str, str]:
    """Return the remedies of the family, with the outcome's own name."""
    y = plan.formula.outcome.text
    return {each: text.replace("log(y)", f"log({y})") for each, text in family.remedies.items()}


def _unused_columns(predictor: Predictor, spec: DataSpec) -> list[str]:
    return [label for i, label in enumerate(predictor.labels) if spec.constants.get(f"is_unused_{i}")]


def _unused(predictor: Predictor, spec: DataSpec) -> dict[str, str]:
    """Return a remark on columns of levels without training rows; empty if there are none."""
    if not (unused := _unused_columns(predictor, spec)):
        return {}
    which = f"the prior alone determines the coefficient{'s' if len(unused) > 1 else ''} of {named(unused)}"
    return {"Levels without rows": which}


def _of_one_level(plan: Plan) -> dict[str, str]:
    """Return a remark on groups of a single level; empty if there are none."""
    names = list(dict.fromkeys(g.name for each in plan.predictors for g in each.groups if g.num_levels < 2))
    remark = "one level does not say how far levels differ, so that the prior alone determines the standard deviation"
    return {"Groups of one level": f"{named(names)}: {remark}"} if names else {}


_BY_THE_PRIOR = 1e-4
"""Information about a direction of coefficients, as a share of that of the default prior, below which it is taken as none."""


def _collinear(predictor: Predictor, family: Family, spec: DataSpec) -> dict[str, str]:
    """Return a remark on columns that are combinations of others; empty if the data distinguish all of them."""
    if not predictor.columns or "root" not in spec.arrays:
        return {}
    root = np.asarray(spec.arrays["root"])
    unit = float(spec.constants["outcome_scale"]) if family.is_in_unit else 1.0
    variances, directions = np.linalg.eigh(root @ root.T)
    free = directions[:, (DEFAULT_SCALE * unit) ** 2 / variances - 1 < _BY_THE_PRIOR]
    labels = [*(["intercept"] if predictor.has_intercept else []), *predictor.labels]
    unused = _unused_columns(predictor, spec)
    shares = zip(labels, np.square(free).sum(axis=1), strict=True)
    found = [name for name, share in shares if share > 1e-4 and name not in unused]
    if not found:
        return {}
    number = free.shape[1] - len(unused)
    several = f"{number:,} combinations" if number > 1 else "one combination"
    return {
        "Collinear columns": f"{named(found)}: the data "
        f"say nothing about {several} of their coefficients, so that the prior alone decides on it; leave columns out, or give them priors of their own"
    }


def _doubled(predictor: Predictor) -> list[str]:
    """Return the columns that terms read as logs."""
    factors = (factor for columns in predictor.columns for factor in columns.term)
    texts = {factor.text.replace("`", ""): factor.names[0] for factor in factors if factor.names}
    return sorted({name for text, name in texts.items() if re.fullmatch(rf"log(2|10)?\({re.escape(name)}\)", text)})


def _priors(plan: Plan, family: Family, options: Any, spec: DataSpec) -> Iterator[str]:
    """Yield the priors in words; default priors are in the unit of the outcome."""
    given, constants = options.priors, spec.constants
    outcome_scale, (shift, scale) = float(constants["outcome_scale"]), plan.unit
    unit = outcome_scale * scale if family.is_in_unit else 1.0
    as_given = f" in standard deviations of {plan.formula.outcome.text}" if scale != 1 else ""
    centre = family.to_predictor(constants["outcome_mean"] / constants["trials_mean"]) - constants["offset_mean"]
    yield from _priors_of_columns(plan.main, given, shift + scale * centre, unit, as_given)
    for name in plan.parameters:
        if name not in given and "{rate}" in family.parameters[name].prior:
            yield f"{name} exponential with mean {outcome_scale * scale:.3g}"
        else:
            yield f"{name} {given.get(name, family.parameters[name].prior)}" + (as_given if name == "sigma" else "")
    yield from _priors_of_groups(plan.main, given, unit, as_given)
    for name, predictor in plan.others.items():
        own = options.parameters[name].priors
        centre, unit = default_of_parameter(family.parameters[name], plan.links[name], outcome_scale)
        yield from _priors_of_columns(predictor, own, centre, unit, "")
        yield from _priors_of_groups(predictor, own, unit, "")


def _priors_of_columns(
    predictor: Predictor, given: Mapping[str, str], centre: float, unit: float, as_given: str
) -> Iterator[str]:
    of = f" of {predictor.prefix[:-1]}" if predictor.prefix else ""
    if predictor.has_intercept:
        default = f"normal({centre:.3g}, {DEFAULT_SCALE * unit:.3g})"
        written = f"{given['intercept']}{as_given}" if "intercept" in given else default
        yield f"{predictor.intercept} {written} at the means of the columns"
    for name in predictor.parts:
        if (key := name if name in given else "coefficients") in given:
            is_changed = predictor.original is not None
            yield f"{name}{of} {given[key]}{as_given}" + (", of the column as the model reads it" if is_changed else "")
    if any(name not in given for name in predictor.parts) and "coefficients" not in given:
        others = "other coefficients" if any(name in given for name in predictor.parts) else "coefficients"
        yield f"{others}{of} normal(0, {DEFAULT_SCALE * unit:.3g}) for one standard deviation of their column"


def _priors_of_groups(predictor: Predictor, given: Mapping[str, str], unit: float, as_given: str) -> Iterator[str]:
    for group in predictor.groups:
        key = f"sd_{group.name}" if f"sd_{group.name}" in given else "sd"
        sizes = ", ".join(f"{unit / size:.3g}" for size in group.sizes)
        yield f"{group.sd} {given[key]}{as_given}" if key in given else f"{group.sd} exponential with mean {sizes}"
        if group.is_correlated:
            text = given.get(f"correlation_{group.name}", given.get("correlation", "lkj(1)"))
            yield f"correlations over {group.name} {text}"


def axes_of(plan: Plan, spec: DataSpec) -> Mapping[str, tuple[Axis | None, ...]]:
    """Return latent or summary -> its axes.

    Args:
        plan: plan of the model.
        spec: description of the prepared data.
    """
    # Codes without names are their own names; without labels, level 1 would bear the index 0.
    levels = levels_of(spec.variables, plan.formula.outcome) or tuple(map(str, range(plan.num_levels)))
    outcome = latent_name(plan.formula.outcome.text)
    outputs = (Axis(outcome, levels[1:]),) if plan.main.output_shape else ()
    axes: dict[str, tuple[Axis | None, ...]] = {"intercept": outputs, "intercept_at_zero": outputs}
    axes["predictor"] = (None, *outputs)
    axes["baseline"] = (Axis(outcome, levels or None),)
    if "baseline" in plan.parameters:
        axes[CUTPOINTS] = (Axis("cutpoint", tuple(f"{low}|{high}" for low, high in itertools.pairwise(levels))),)
    for predictor in plan.predictors:
        axes |= _axes_of_predictor(predictor, spec, outputs if predictor is plan.main else ())
    return axes


def _axes_of_predictor(
    predictor: Predictor, spec: DataSpec, outputs: tuple[Axis, ...]
) -> Mapping[str, tuple[Axis | None, ...]]:
    axes: dict[str, tuple[Axis | None, ...]] = {}
    prefix, labels = predictor.prefix, predictor.labels
    for latent, indices in predictor.blocks.items():
        name = latent.replace("coefficients", "coefficient", 1)
        axes[latent] = (Axis(name, tuple(labels[i] for i in indices)), *outputs)
    for columns in predictor.columns:
        name = f"{prefix}{latent_name(columns.name)}"
        axes[predictor.b(columns)] = outputs if columns.is_single else (Axis(name, columns.names), *outputs)
    if predictor.original is not None:
        axes[f"{prefix}{NAME}"] = (Axis(f"{prefix}original", predictor.original.labels), *outputs)
    for group, term in zip(predictor.groups, predictor.formula.groups, strict=True):
        about = spec.variables.get(term.group)
        levels = about.levels if about is not None and about.levels else None
        effect = Axis(f"{prefix}effect_{group.name}", group.labels)
        axes[group.sd] = (effect,)
        axes[group.effects] = (Axis(f"{prefix}{group.name}", levels), effect)
        pairs = tuple(f"{below}~{name}" for i, name in enumerate(group.labels) for below in group.labels[:i])
        axes[group.correlation] = (effect, effect)
        axes[group.correlations] = (Axis(f"{prefix}pair_{group.name}", pairs),)
    return axes
