"""Description of a generalised linear model on a page: axes, findings, family, link, priors, units, effects in plain words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bayesmesh.models.base import Axis, DataSpec, Shown
from bayesmesh.models.glm.checks import named
from bayesmesh.models.glm.coefficients import NAME, SIGMA, Original
from bayesmesh.models.glm.design import Columns, latent_name, levels_of
from bayesmesh.models.glm.families.base import DEFAULT_SCALE, Family
from bayesmesh.models.glm.formula import KEY, Factor
from bayesmesh.models.glm.priors import find_conflicts
from bayesmesh.models.glm.rows import Plan

_MEANS = (
    "Look for what the formula lacks: a predictor, a curve such as `I(x^2)`, an interaction such as `x:z`, or effects of a "
    "group such as `(1 | group)`."
)


def shown_of(plan: Plan, family: Family, original: Original | None) -> Sequence[Shown]:
    """Return the findings for the page: coefficients in the units of the table, the family's parameters, groups.

    Args:
        plan: plan of the model.
        family: family of the outcome.
        original: coefficients in the units of the table, where those of the columns differ.
    """
    found: list[Shown] = []
    unit = family.link_words.unit.format(y=plan.formula.outcome.text)
    if original is not None:
        found.append(Shown(NAME, f"Coefficients, {unit}, for one unit of a column in the table", 0.0, ("intercept",)))
    else:
        heading = f"Coefficients, {unit}"
        found += [Shown("intercept_at_zero", heading)] if plan.has_intercept else []
        found += [Shown(f"b_{latent_name(columns.name)}", heading, 0.0) for columns in plan.columns]
    in_unit = "sigma" in plan.parameters and original is not None and original.scale != 1
    names = [SIGMA if name == "sigma" and in_unit else name for name in plan.parameters]
    found += [Shown(name, "Parameters of the outcome's distribution") for name in names]
    for group in plan.groups:
        of = unit
        if original is not None and group.num_effects > group.has_intercept:
            of += ", per standard deviation of standardised columns"
        found.append(Shown(group.sd, f"Standard deviations of effects between levels of {group.name}, {of}"))
        if group.is_correlated:
            found.append(Shown(group.correlations, f"Correlations of effects over {group.name}", 0.0))
        which = ": {entry}" if group.num_effects > 1 else ""
        found.append(Shown(group.effects, f"Effects of {group.name}{which}, {of}", 0.0))
    return found


def describe(plan: Plan, family: Family, options: Any, spec: DataSpec, original: Original | None) -> dict[str, object]:
    """Return the parts of a `bayesmesh.store.posterior.description.ModelDescription`.

    Args:
        plan, family, options, spec: plan, family and options of the model, and description of its data.
        original: coefficients in the units of the table, where those of the columns differ.
    """
    words, scale = family.link_words, 1.0 if original is None else original.scale
    y = plan.formula.outcome.text
    levels = levels_of(spec.variables, plan.formula.outcome) or ("0", "1")
    names = {"y": y, "one": f"{y} = {levels[1]}", "first": levels[0], "level": "{level}"}
    of = words.of.format(**names)
    exposure = options.exposure or spec.roles.get("exposure")
    link = words.link.format(**names) + (f", per unit of {exposure}" if exposure else "")
    effects = {group.effects: scale for group in plan.groups} | {group.sd: scale for group in plan.groups}
    return {
        "facts": {
            "Family": words.family,
            "Link": link,
            "Priors": "; ".join(_priors(plan, family, options, spec, original)),
        }
        | _unused(plan, spec)
        | _collinear(plan, family, spec),
        "meanings": {
            "predictor": f"the linear predictor of single rows, {words.unit.format(y=y)}; the number counts the probe rows, "
            "which are spread evenly over the data",
            "intercept_at_zero": "the predictor where all columns are 0",
        },
        "names": {
            f"b_{latent_name(each.name)}": f"b_{each.name}"
            for each in plan.columns
            if latent_name(each.name) != each.name
        },
        "scales": effects if scale != 1 else {},
        "warnings": [
            *(f"{KEY}: {remark}" for remark in plan.formula.remarks),
            *find_conflicts(plan, family, options, spec),
        ],
        "effects": {"scale": words.scale, "of": of, "changes": [*_changes(plan, spec, original)]},
        "remedies": {"bias": _MEANS, **_remedies(plan, family)},
    }


def _remedies(plan: Plan, family: Family) -> dict[str, str]:
    """Return the remedies of the family, with the outcome's own name."""
    y = plan.formula.outcome.text
    return {each: text.replace("log(y)", f"log({y})") for each, text in family.remedies.items()}


def _unused_columns(plan: Plan, spec: DataSpec) -> list[str]:
    labels = [label for columns in plan.columns for label in columns.labels]
    return [label for i, label in enumerate(labels) if spec.constants.get(f"is_unused_{i}")]


def _unused(plan: Plan, spec: DataSpec) -> dict[str, str]:
    """Return a remark on columns of levels without training rows; empty if there are none."""
    if not (unused := _unused_columns(plan, spec)):
        return {}
    which = f"the prior alone determines the coefficient{'s' if len(unused) > 1 else ''} of {named(unused)}"
    return {"Levels without rows": which}


_BY_THE_PRIOR = 1e-4
"""Information about a direction of coefficients, as a share of that of the default prior, below which it is taken as none."""


def _collinear(plan: Plan, family: Family, spec: DataSpec) -> dict[str, str]:
    """Return a remark on columns that are combinations of others; empty if the data distinguish all of them."""
    if not plan.columns or "root" not in spec.arrays:
        return {}
    root = np.asarray(spec.arrays["root"])
    unit = float(spec.constants["outcome_scale"]) if family.is_in_unit else 1.0
    variances, directions = np.linalg.eigh(root @ root.T)
    free = directions[:, (DEFAULT_SCALE * unit) ** 2 / variances - 1 < _BY_THE_PRIOR]
    labels = [*(["intercept"] if plan.has_intercept else []), *(each for c in plan.columns for each in c.labels)]
    unused = _unused_columns(plan, spec)
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


def _changes(plan: Plan, spec: DataSpec, original: Original | None) -> Iterator[dict[str, object]]:
    """Yield the changes of predictors that one coefficient describes: those of columns in no other term."""
    for columns, part in zip(plan.columns, plan.parts.values(), strict=True):
        own = {name for factor in columns.term for name in factor.names}
        others = {name for each in plan.columns if each is not columns for factor in each.term for name in factor.names}
        if len(columns.term) != 1 or own & others:
            continue
        for label, name, sd in zip(columns.labels, columns.names, plan.sd[part], strict=True):
            place = (NAME, label) if original is not None else (f"b_{latent_name(columns.name)}", name)
            for words, factor in _changes_of(columns, name, float(sd), spec):
                yield {"summary": place[0], "entry": place[1], "words": words, "factor": factor}


def _changes_of(columns: Columns, entry: str, sd: float, spec: DataSpec) -> Iterator[tuple[str, float]]:
    """Yield changes of a column in words, with the factor by which its coefficient in the unit of the table is multiplied."""
    (factor,) = columns.term
    about = spec.variables.get(factor.text) if factor.is_plain else None
    if about is not None and about.kind == "category":
        if any(0 in (levels or ()) for (levels,) in columns.codings):
            # Every level has a column, so a coefficient is the predictor of its level and not a difference.
            return
        yield f"{entry} instead of {about.levels[0]} ({factor.text})", 1.0
    elif factor.is_plain:
        name = f"{factor.text}[{entry}]" if entry else factor.text
        yield f"one more unit of {name}", 1.0
        about = about or spec.variables.get(entry)
        in_table = sd * (about.scale if about is not None else 1.0)
        if not 0.8 < in_table < 1.25:
            yield f"one more standard deviation of {name} ({in_table:.3g})", in_table
    elif (doubled := _doubling(factor)) and not entry:
        yield f"doubling {factor.names[0]}", doubled


def _doubling(factor: Factor) -> float:
    """Return by how much the log of a column grows when the column doubles; 0 for other transforms."""
    logs = {"log": math.log(2), "log2": 1.0, "log10": math.log10(2)}
    name = factor.text.partition("(")[0]
    return logs.get(name, 0.0) if factor.text.replace("`", "") == f"{name}({factor.names[0]})" else 0.0


def _priors(plan: Plan, family: Family, options: Any, spec: DataSpec, original: Original | None) -> Iterator[str]:
    """Yield the priors in words; default priors are in the unit of the outcome."""
    given = options.priors
    outcome_scale, constants = float(spec.constants["outcome_scale"]), spec.constants
    shift, scale = (0.0, 1.0) if original is None else (original.shift, original.scale)
    unit = outcome_scale * scale if family.is_in_unit else 1.0
    as_given = f" in standard deviations of {plan.formula.outcome.text}" if scale != 1 else ""
    if plan.has_intercept:
        centre = family.to_predictor(constants["outcome_mean"] / constants["trials_mean"]) - constants["offset_mean"]
        default = f"normal({shift + scale * centre:.3g}, {DEFAULT_SCALE * unit:.3g})"
        written = f"{given['intercept']}{as_given}" if "intercept" in given else default
        yield f"intercept {written} at the means of the columns"
    for name in plan.parts:
        if (key := name if name in given else "coefficients") in given:
            is_changed = original is not None
            yield f"{name} {given[key]}{as_given}" + (", of the column as the model reads it" if is_changed else "")
    if any(name not in given for name in plan.parts) and "coefficients" not in given:
        others = "other coefficients" if any(name in given for name in plan.parts) else "coefficients"
        yield f"{others} normal(0, {DEFAULT_SCALE * unit:.3g}) for one standard deviation of their column"
    for name in plan.parameters:
        if name not in given and "{rate}" in family.parameters[name].prior:
            yield f"{name} exponential with mean {outcome_scale * scale:.3g}"
        else:
            yield f"{name} {given.get(name, family.parameters[name].prior)}" + (as_given if name == "sigma" else "")
    for group in plan.groups:
        key = group.sd if group.sd in given else "sd"
        sizes = ", ".join(f"{unit / size:.3g}" for size in group.sizes)
        yield f"{group.sd} {given[key]}{as_given}" if key in given else f"{group.sd} exponential with mean {sizes}"
        if group.is_correlated:
            text = given.get(group.correlation, given.get("correlation", "lkj(1)"))
            yield f"correlations over {group.name} {text}"


def axes_of(plan: Plan, spec: DataSpec, original: Original | None) -> Mapping[str, tuple[Axis | None, ...]]:
    """Return latent or summary -> its axes.

    Args:
        plan: plan of the model.
        spec: description of the prepared data.
        original: coefficients in the units of the table, where those of the columns differ.
    """
    labels = [label for columns in plan.columns for label in columns.labels]
    # Codes without names are their own names; without labels, level 1 would bear the index 0.
    levels = levels_of(spec.variables, plan.formula.outcome) or tuple(map(str, range(plan.num_levels)))
    outcome = latent_name(plan.formula.outcome.text)
    outputs = (Axis(outcome, levels[1:]),) if plan.output_shape else ()
    axes: dict[str, tuple[Axis | None, ...]] = {"intercept": outputs, "intercept_at_zero": outputs}
    axes["predictor"] = (None, *outputs)
    axes["baseline"] = (Axis(outcome, levels or None),)
    for latent, indices in plan.blocks.items():
        name = latent.replace("coefficients", "coefficient", 1)
        axes[latent] = (Axis(name, tuple(labels[i] for i in indices)), *outputs)
    for columns in plan.columns:
        name = latent_name(columns.name)
        axes[f"b_{name}"] = outputs if columns.is_single else (Axis(name, columns.names), *outputs)
    if original is not None:
        axes[NAME] = (Axis("original", original.labels), *outputs)
    for group, term in zip(plan.groups, plan.formula.groups, strict=True):
        about = spec.variables.get(term.group)
        effect = Axis(f"effect_{group.name}", group.labels)
        axes[group.sd] = (effect,)
        axes[group.effects] = (Axis(group.name, about.levels if about is not None and about.levels else None), effect)
        pairs = tuple(f"{below}~{name}" for i, name in enumerate(group.labels) for below in group.labels[:i])
        axes[group.correlation] = (effect, effect)
        axes[group.correlations] = (Axis(f"pair_{group.name}", pairs),)
    return axes
