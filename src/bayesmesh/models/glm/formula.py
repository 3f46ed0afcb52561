"""Read a formula as terms: names of columns, products of them, a few transforms, and group effects.

A formula is the user's text and is never evaluated. formulaic parses the operators (Wilkinson and Rogers 1973,
doi:10.2307/2346786); a transform is read by Python's parser and computed here, from a closed list. Idioms of other formula languages, such as those
of R and brms, are met with what to write instead: `idioms.yaml` and a few shapes.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml
from formulaic.errors import FormulaicError
from formulaic.parser import DefaultFormulaParser

from bayesmesh.config.source_code import columns_called
from bayesmesh.errors import ConfigError, suggest

KEY = "key 'model.formula'"
EXAMPLE = "for example\n    model:\n      formula: y ~ x + log(z) + species + (1 + x | site)"

MOST_TERMS = 500
"""Largest number of terms in a formula; a power of a sum may expand to more than anyone intends."""

MOST_PRODUCTS = 20_000
"""Largest number of products to form while operators are expanded, before equal ones are joined."""

MOST_PARTS = 400
"""Largest number of names, numbers and operators in a transform."""

TRANSFORMS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "log": np.log, "log1p": np.log1p, "log2": np.log2, "log10": np.log10, "exp": np.exp, "expm1": np.expm1,
    "sqrt": np.sqrt, "abs": np.abs, "sin": np.sin, "cos": np.cos, "tanh": np.tanh, "I": lambda x: x,
}  # fmt: skip
"""Functions that a formula may apply to numbers."""

_OPERATORS: Mapping[type[ast.operator], Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    ast.Add: np.add, ast.Sub: np.subtract, ast.Mult: np.multiply, ast.Div: np.divide, ast.Pow: np.power,
}  # fmt: skip

_QUOTED = re.compile(r"`([^`]+)`")

_MODULES = ("np", "numpy", "jnp", "math", "special", "base", "stats", "splines", "mgcv")

_SHAPES = (
    (r"^[^~]*(?:==|\[)", "the outcome is compared with a level", "name the column; with `family: bernoulli`, the second of two `levels` in the data counts as 1"),
    (r"\(([^|()]*)\|\s*[^|()\s][^|()]*\|([^|()~]*)\)", "two bars with a name between them correlate the effects of several formulas in brms", "effects of different formulas are not correlated here: write ({0}|{1})"),
    (r"%[\w*/]+%", "operators between percent signs are those of R", "write a:b for the effects of a within the levels of b"),
    (r"^[^~]*\|", "additions to the outcome, behind a bar, are keys of the model", "for example\n    model:\n      weights: w"),
    (r"^[^~=]*=[^~=]*$", "a formula has a tilde", "write ~ in place of =, such as y ~ x"),
    (r"~[^~]*[,;][^~]*~", "there are two formulas", "write that of the outcome alone; formulas of parameters belong in the key 'model.parameters'"),
)  # fmt: skip
"""Regular expression, problem, and what to write, in which ``{0}`` is the first group."""


class Factor(NamedTuple):
    """A column, or a transform of columns.

    Attributes:
        text: as written.
        tree: its syntax tree, which holds only names, numbers, arithmetic and `TRANSFORMS`.
    """

    text: str
    tree: ast.expr

    @property
    def names(self) -> list[str]:
        """The columns that it reads."""
        calls = {id(node.func) for node in ast.walk(self.tree) if isinstance(node, ast.Call)}
        return [n.id for n in ast.walk(self.tree) if isinstance(n, ast.Name) and id(n) not in calls]

    @property
    def is_plain(self) -> bool:
        """Whether it is an untransformed column."""
        return isinstance(self.tree, ast.Name)

    def evaluate(self, rows: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return its numbers, float64, (row, ...) like the columns."""
        with np.errstate(all="ignore"):
            return np.asarray(_evaluate(self.tree, rows), np.float64)


Term = tuple[Factor, ...]
"""A product of factors; the empty one is the intercept."""


class GroupTerm(NamedTuple):
    """Effects that vary over the levels of a column.

    Attributes:
        group: the column.
        terms: terms whose effects vary; the empty term is the intercept.
        is_correlated: whether the effects of a level are correlated.
    """

    group: str
    terms: tuple[Term, ...]
    is_correlated: bool


class Formula(NamedTuple):
    """A formula.

    Attributes:
        outcome: the left side of the tilde.
        terms: population-level terms, in the order of the formula, without the intercept.
        has_intercept: whether there is an intercept.
        groups: group effects.
        remarks: sentences on parts that have no effect.
    """

    outcome: Factor
    terms: tuple[Term, ...]
    has_intercept: bool
    groups: tuple[GroupTerm, ...]
    remarks: tuple[str, ...] = ()

    @property
    def predictors(self) -> set[str]:
        """The columns on the right of the tilde."""
        terms = (*self.terms, *(term for group in self.groups for term in group.terms))
        return {n for term in terms for factor in term for n in factor.names} | {group.group for group in self.groups}


def parse_formula(text: str, columns: Collection[str]) -> Formula:
    """Return the terms of a formula.

    Args:
        text: such as ``y ~ x + species + (1 + x | site)``.
        columns: names that it may use.

    Raises:
        ConfigError: it cannot be parsed, uses an unknown name or function, or has too many terms.

    >>> found = parse_formula("y ~ x * log(z) + (1 + x || g)", ["y", "x", "z", "g"])
    >>> [":".join(f.text for f in term) for term in found.terms], found.has_intercept
    (['x', 'log(z)', 'x:log(z)'], True)
    >>> found.groups[0].group, len(found.groups[0].terms), found.groups[0].is_correlated
    ('g', 2, False)
    """
    if found := instead_of(text, columns):
        problem, remedy = found
        raise ConfigError(f"{KEY}: '{text:.80}': {problem}", remedy)
    left, tilde, right = text.partition("~")
    if not tilde or not left.strip() or "~" in right:
        raise ConfigError(f"{KEY}: '{text:.80}' is not of the form outcome ~ terms", EXAMPLE)
    if not right.strip():
        raise ConfigError(f"{KEY}: '{text:.80}' has no terms", f"for an intercept alone, write {left.strip()} ~ 1")
    if right.rstrip()[-1] in "+-*/:~|^":
        raise ConfigError(
            f"{KEY}: '{text:.80}' ends with '{right.rstrip()[-1]}'", "remove it, or write what comes after it"
        )
    remarks: list[str] = []
    plain, grouped = [], []
    for sign, part in _parts(right):
        if "|" not in _QUOTED.sub("", part):
            plain.append(f"{sign} {part}")
        elif sign == "-" or not (part.startswith("(") and part.endswith(")")):
            raise ConfigError(
                f"{KEY}: '{part:.60}': effects of groups are written in parentheses", f"write ({part:.60}), {EXAMPLE}"
            )
        else:
            grouped.append(_group_term(part[1:-1], columns, remarks))
    outcome = _factor(left.strip().strip("`"), columns)
    others = [name for name in columns if name not in outcome.names]
    has_intercept, terms = _terms(" ".join(plain) or "1", columns, others, remarks)
    remarks += _without_effect(plain, terms, columns, others)
    doubled = [g.group for i, g in enumerate(grouped) for h in grouped[:i] if h.group == g.group]
    if doubled:
        raise ConfigError(
            f"{KEY}: the groups '{doubled[0]}' appear twice",
            f"put all effects into one pair of parentheses, such as (1 + x | {doubled[0]}), or (1 + x || {doubled[0]}) "
            "for effects without correlations",
        )
    formula = Formula(outcome, terms, has_intercept, tuple(grouped), tuple(dict.fromkeys(remarks)))
    if both := [name for name in outcome.names if name in formula.predictors]:
        problem = f"{KEY}: the outcome '{both[0]}' is also on the right of the tilde, where it would explain itself"
        raise ConfigError(problem, "leave it out on the right")
    return formula


def _without_effect(
    parts: Sequence[str], terms: Sequence[Term], columns: Collection[str], others: Collection[str]
) -> Iterator[str]:
    """Yield remarks on subtracted terms that the formula does not have, after checking that their columns exist."""
    for part in (each for each in parts if each[0] == "-" and each[2:] not in ("0", "1")):
        _terms(part[2:], columns, others, [])
        rest = _terms(" ".join(each for each in parts if each is not part) or "1", columns, others, [])[1]
        if [[factor.text for factor in term] for term in rest] == [[factor.text for factor in term] for term in terms]:
            yield f"'{part}' has no effect: the formula has no such term"


def _parts(text: str) -> Iterator[tuple[str, str]]:
    """Yield the sign and the text of the parts that plus and minus separate outside parentheses and backticks."""
    depth, is_quoted, sign, part = 0, False, "+", ""
    for character in text:
        is_quoted ^= character == "`"
        if not is_quoted:
            depth += (character in "([{") - (character in ")]}")
        if character in "+-" and not depth and not is_quoted:
            if part.strip():
                yield sign, part.strip()
            sign, part = character, ""
        else:
            part += character
    if depth:
        what = "is not closed" if depth > 0 else "closes nothing"
        raise ConfigError(f"{KEY}: '{text.strip():.80}': a parenthesis {what}", EXAMPLE)
    if part.strip():
        yield sign, part.strip()


def _group_term(text: str, columns: Collection[str], remarks: list[str]) -> GroupTerm:
    effects, _, group = text.partition("|")
    is_correlated = not group.startswith("|")
    group = group.lstrip("|").strip().strip("`")
    if group not in columns:
        problem = f"{KEY}: '({text:.60})': the groups are not the name of a column"
        if len(levels := re.split(r"\s*[/:]\s*", group)) < 2:
            raise ConfigError(problem, suggest(group, columns, alike=0.7))
        both, outer = "_and_".join(levels), f"(1 | {levels[0]}) + " if "/" in group else ""
        raise ConfigError(problem, f"make a column '{both}' of both names in the table, and write {outer}(1 | {both})")
    has_intercept, terms = _terms(effects, columns, [name for name in columns if name != group], remarks)
    found = (*(((),) if has_intercept else ()), *terms)
    if not found:
        raise ConfigError(f"{KEY}: '({text:.60})' has no effect", "write (1 | group) for an intercept of each level")
    return GroupTerm(group, found, is_correlated and len(found) > 1)


def _terms(
    text: str, columns: Collection[str], others: Collection[str], remarks: list[str]
) -> tuple[bool, tuple[Term, ...]]:
    """Return whether the right side of a formula has an intercept, and its other terms.

    Args:
        text: right side of a formula, without effects of groups.
        columns: names that it may use.
        others: columns for which a dot stands.
        remarks: extended by sentences on parts that have no effect.
    """
    parser, context = DefaultFormulaParser(), {"__formulaic_variables_available__": list(others)}
    try:
        remarks += _remarks(parser.get_ast(f"~ {text}", context=context), len(others))
        found = parser.get_terms(f"~ {text}", context=context)
        parsed = [[(str(f.expr), f.eval_method.value) for f in term.factors] for term in found.root]
    except (FormulaicError, SyntaxError, AttributeError, IndexError, RecursionError, MemoryError) as error:
        raise ConfigError(f"{KEY}: '{text.strip('+ '):.80}' cannot be read as terms", _remedy(text, columns)) from error
    if len(parsed) > MOST_TERMS:
        raise ConfigError(f"{KEY}: {len(parsed):,} terms", f"use at most {MOST_TERMS}")
    terms = [tuple(_factor(t, columns) for t, method in term if method != "literal") for term in parsed]
    if any(method == "literal" and text != "1" for term in parsed for text, method in term):
        raise ConfigError(f"{KEY}: '{text:.80}' has a number as a factor", "write I(2 * x) for a multiple of a column")
    # Products follow their factors, as in R.
    return () in terms, tuple(sorted((term for term in terms if term), key=len))


def _remedy(text: str, columns: Collection[str]) -> str:
    """Return what to write instead of terms that cannot be read."""
    if quoted := [name for name in columns if not name.isidentifier() and name in _QUOTED.sub("", text)]:
        return f"put the name of the column in backticks: `{max(quoted, key=len)}`"
    if re.search(r"[<>=!]", text):
        return "make a column of the comparison in the table, with the numbers 0 and 1"
    if re.search(r"(\^|\*\*)\s*[^\w\s]", text):
        return "write other powers than interactions as arithmetic, such as I(x^-1)"
    if re.search(r"(?<![\w.])[\d.]+\s*\*|\*\s*[\d.]+(?![\w.])", text):
        return "write I(2 * x) for a multiple of a column"
    return EXAMPLE


def _remarks(tree: Any, num_columns: int) -> list[str]:
    """Return sentences on parts of terms that have no effect, after checking how far the operators expand.

    Args:
        tree: formulaic's syntax tree.
        num_columns: number of columns for which a dot stands.

    Raises:
        ConfigError: there would be too many products, or a power is not a whole number.
    """
    nodes = [tree]
    for node in nodes:
        nodes += getattr(node, "args", ())
    # Node -> a bound on its number of terms, and its factors if it is one term.
    known: dict[int, tuple[int, tuple[str, ...]]] = {}
    remarks, total = [], 0
    for node in reversed(nodes):
        parts = [known[id(each)] for each in getattr(node, "args", ())]
        symbol, size, factors = "", 1, tuple[str, ...]()
        if not hasattr(node, "args"):
            factors = () if node.kind.value == "value" else (node.token,)
        elif (symbol := node.operator.symbol) == ".":
            size = max(1, num_columns)
        elif symbol in ("^", "**"):
            power, (size, factors) = str(getattr(node.args[1], "token", "")), parts[0]
            if not power.isdigit() or not int(power):
                raise ConfigError(f"{KEY}: the power of a term is not a whole number from 1", "write other powers as arithmetic, such as I(x^0.5)")  # fmt: skip
            size = max(int(power), size ** min(int(power), 64))
            if factors and int(power) > 1:
                written = factors[0] if len(factors) == 1 else f"({':'.join(factors)})"
                remarks.append(_remark(f"{written}{symbol}{power}", factors, int(power)))
        else:
            size = sum(number for number, _ in parts)
            if symbol in ("*", "/", ":") and len(parts) == 2:
                (left, one), (right, two) = parts
                size, factors = left * right + (symbol != ":") * size, tuple(dict.fromkeys((*one, *two)))
                if common := [each for each in one if each in two and (symbol == ":" or one == two)]:
                    remarks.append(_remark(f"{common[0]}{symbol}{common[0]}", common, 2))
                factors = factors if one and two and (symbol == ":" or common) else ()
        total += 0 if symbol in ("", "+", "-") else size
        if max(total, size) > MOST_PRODUCTS:
            raise ConfigError(f"{KEY}: the operators expand to more than {MOST_PRODUCTS:,} terms", f"use at most {MOST_TERMS}: write out the interactions that matter, such as x:z")  # fmt: skip
        known[id(node)] = size, factors
    return remarks


def _remark(written: str, factors: Sequence[str], power: int) -> str:
    quoted = [each if each.isidentifier() or "(" in each else f"`{each}`" for each in factors]
    product = quoted[0] if len(quoted) == 1 else f"({' * '.join(quoted)})"
    return f"'{written}' is '{':'.join(factors)}' itself: powers and products of terms are interactions, as in R. Write I({product}^{power}) for numbers to this power"


def _factor(text: str, columns: Collection[str]) -> Factor:
    """Return a factor after checking that it holds only arithmetic and known functions of columns."""
    if text in columns:
        return Factor(text, ast.Name(text, ast.Load()))
    # Placeholders for names in backticks; longer than any name in the text.
    quoted = {f"{'_' * len(text)}{i}": name for i, name in enumerate(_QUOTED.findall(text))}
    unused = iter(quoted)
    try:
        # As in R: in Python, ^ would bind less tightly than the product around it.
        plain = _QUOTED.sub(lambda _: next(unused), text).replace("^", "**")
        found = ast.parse(plain).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ConfigError(f"{KEY}: '{text:.60}' cannot be read", _remedy(text, columns)) from error
    if len(found) != 1 or not isinstance(found[0], ast.Expr):
        raise ConfigError(f"{KEY}: '{text:.60}' cannot be read", _remedy(text, columns))
    tree = found[0].value
    # Bounds the depth of the functions below, which call themselves.
    if sum(1 for _ in ast.walk(tree)) > MOST_PARTS:
        raise ConfigError(f"{KEY}: '{text:.60}...' is too long for a transform", "make it a column of the table")
    _name_columns(tree, text, columns, quoted)
    _check(tree, text, columns)
    factor = Factor(text, tree)
    if not factor.names:
        raise ConfigError(f"{KEY}: '{text:.60}' has no column in it", EXAMPLE)
    return factor


def _name_columns(tree: ast.expr, text: str, columns: Collection[str], quoted: Mapping[str, str]) -> None:
    """Write the names of columns as the table does: Python's parser has normalised them.

    Args:
        tree: changed in place.
        text: of the factor, for messages.
        columns: of the table.
        quoted: placeholder -> name in backticks.
    """
    functions = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in quoted:
            node.id = quoted[node.id]
        elif isinstance(node, ast.Name) and id(node) not in functions:
            called = columns_called(node.id, columns)
            if len(called) > 1:
                problem = f"{KEY}: '{text:.60}': '{node.id}' may be any of the columns {', '.join(called)}"
                raise ConfigError(problem, "rename all but one of them in the table")
            node.id = called[0] if called else node.id


def _check(tree: ast.expr, text: str, columns: Collection[str]) -> None:
    match tree:
        case ast.Name(id=name):
            if name not in columns:
                found = f"{suggest(name, columns)}; columns that lack values are read only if the formula names them"
                remedy = "write 1 for the intercept" if name == "Intercept" else found
                raise ConfigError(f"{KEY}: no column '{name}' in the data", remedy)
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            if value > sys.float_info.max:
                raise ConfigError(f"{KEY}: '{text:.60}' has a number that is too large", "write numbers below 1e308")
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
            _check(left, text, columns)
            _check(right, text, columns)
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            _check(operand, text, columns)
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]):
            if name not in TRANSFORMS:
                remedy = f"{suggest(name, TRANSFORMS, alike=0.75)}; make a column of any other in the table"
                raise ConfigError(f"{KEY}: '{text:.60}': no function '{name}'", remedy)
            _check(argument, text, columns)
        case ast.Compare():
            raise ConfigError(f"{KEY}: '{text:.60}' is a comparison", _remedy("=", ()))
        case ast.Call(func=ast.Name(id=name)) if name in TRANSFORMS:
            raise ConfigError(f"{KEY}: '{text:.60}': '{name}' takes one argument", f"write {name}(x)")
        case _:
            remedy = f"use columns, numbers, + - * / ** and {', '.join(TRANSFORMS)} of one argument"
            raise ConfigError(f"{KEY}: '{text:.60}' is more than arithmetic on columns", remedy)


def _evaluate(tree: ast.expr, rows: Mapping[str, np.ndarray]) -> np.ndarray:
    match tree:
        case ast.Name(id=name):
            return np.asarray(rows[name], np.float64)
        case ast.Constant(value=value):
            return np.asarray(value, np.float64)
        case ast.BinOp(left=left, op=operator, right=right):
            return np.asarray(_OPERATORS[type(operator)](_evaluate(left, rows), _evaluate(right, rows)))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return np.asarray(-_evaluate(operand, rows))
        case ast.UnaryOp(operand=operand):
            return _evaluate(operand, rows)
        case ast.Call(func=ast.Name(id=name), args=[argument]):
            return np.asarray(TRANSFORMS[name](_evaluate(argument, rows)))
    raise AssertionError("checked when it was parsed")


@functools.cache
def _sentences() -> Mapping[str, str]:
    """Return the name of a function, or a regular expression of the beginning of a call -> what to write."""
    found = yaml.safe_load(Path(__file__).with_name("idioms.yaml").read_text(encoding="utf-8"))
    return {name: text for key, text in found.items() for name in ([key] if "\\" in key else key.split())}


def instead_of(text: str, columns: Collection[str]) -> tuple[str, str] | None:
    """Return what a formula has of another language, and what to write instead; None if it has nothing of the kind.

    >>> instead_of("y ~ s(x, k = 3) + log(z)", ["y", "x", "z"])[0]
    "'s(...)' is a function of other formula languages"
    >>> instead_of("y ~ np.log(x)", ["y", "x"])
    ("'np.log(...)' names a module", 'write log(x)')
    """
    # Of equal length, so that places in one are those in the other.
    plain = re.sub(r"`[^`]*`", lambda found: f"`{'_' * (len(found[0]) - 2)}`", text)
    for call in re.finditer(r"(?<![\w.])([A-Za-z_][\w.]*)\([^)]*", plain):
        if any(column.startswith(f"{call[1]}(") for column in columns):
            continue
        names = re.finditer(r"`_*`|(?<=['\"])[^'\"]+(?=['\"])|(?<![\w.])[A-Za-z_][\w.]*(?![\w.]*\()", call[0])
        found = [text[call.start() + each.start() : call.start() + each.end()] for each in names]
        of = dict(zip(("x", "second"), [*found, *("x", "n")[len(found) :]], strict=False))
        module, _, function = call[1].rpartition(".")
        own = (call[1], function) if module in _MODULES else (call[1],)
        for key, sentence in _sentences().items():
            if key in own or ("\\" in key and re.match(key, call[0])):
                return f"'{call[1]}(...)' is a function of other formula languages", sentence.format(**of)
        if module in _MODULES:
            return f"'{call[1]}(...)' names a module", f"write {function}({of['x']})"
    for pattern, problem, remedy in _SHAPES:
        if shape := re.search(pattern, plain):
            return problem, remedy.format(*(text[slice(*shape.span(i + 1))] for i in range(len(shape.groups()))))
    return None
