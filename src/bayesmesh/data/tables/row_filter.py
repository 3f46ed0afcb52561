"""A small language that chooses rows: comparisons of columns with constants, joined by and, or and not.

An expression is parsed as Python syntax, every node is checked against a list, and the tree is evaluated with NumPy:
nothing of it is executed as code. As in SQL, a comparison with a missing value is neither true nor false, and a row is kept
only if the whole expression is true.
"""

from __future__ import annotations

import ast
import datetime
import operator
import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from bayesmesh.config.source_code import columns_called
from bayesmesh.data.tables.columns import level_of
from bayesmesh.errors import DataError, suggest

LONGEST = 4000
"""Largest number of characters of an expression."""

_EXAMPLE = "for example\n    data:\n      rows: price > 0 and town in ['Bonn', 'Aachen']"
_QUOTED = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|`([^`]*)`""")
"""Matches texts, which may contain backticks, and names in backticks."""

_ARITHMETIC: dict[type[ast.operator], Callable[..., np.ndarray]] = {
    ast.Add: np.add, ast.Sub: np.subtract, ast.Mult: np.multiply, ast.Div: np.divide, ast.Mod: np.mod, ast.Pow: np.power,
}  # fmt: skip
_ORDER: dict[type[ast.cmpop], Callable[..., np.ndarray]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}  # fmt: skip


class Texts(NamedTuple):
    """A categorical column: codes (rows,), negative where missing, and the level of each code."""

    codes: np.ndarray
    levels: tuple[str, ...]


class _Truth(NamedTuple):
    """For each row, whether a condition is known to be true, and whether it is known to be false."""

    is_true: np.ndarray
    is_false: np.ndarray


class Times(NamedTuple):
    """Days since the start of 1970, (rows,), NaN where missing; they can be compared with texts such as '2026-11-23'."""

    days: np.ndarray


type Cells = np.ndarray | Texts | Times
"""Contents of a column: numbers, (rows,) float64 with NaN where missing, or one of the two types above."""

type _Value = np.ndarray | Texts | Times | _Truth | float | str | tuple[object, ...]


class RowFilter:
    """A parsed expression.

    Args:
        text: the expression; names of columns that are not Python names are in backticks.
        columns: columns of the table.

    Attributes:
        names: columns that it reads, sorted.

    Raises:
        DataError: the text is not an expression of this language, or names an unknown column.
    """

    def __init__(self, text: str, columns: list[str]) -> None:
        self._text = text
        if len(text) > LONGEST:
            raise self._error(f"{len(text):,} characters are too many", f"use at most {LONGEST:,}")
        self._quoted: dict[str, str] = {}
        try:
            tree = ast.parse(_QUOTED.sub(self._take_quoted, text).strip(), mode="eval")
            self._body = tree.body
            self._check(self._body)
        except SyntaxError as error:
            raise self._error(f"not an expression: {error.msg}", _EXAMPLE) from error
        except (RecursionError, MemoryError, ValueError) as error:
            raise self._error("nested too deeply, or not a text", _EXAMPLE) from error
        functions = {id(node.func) for node in ast.walk(self._body) if isinstance(node, ast.Call)}
        used = {node.id for node in ast.walk(self._body) if isinstance(node, ast.Name) and id(node) not in functions}
        self._columns = {name: self._column(name, columns) for name in used}
        self.names = sorted({*self._columns.values()})

    def _column(self, name: str, columns: list[str]) -> str:
        """Return the column that a name in the syntax tree stands for."""
        if name in self._quoted:
            name = self._quoted[name]
            found = [name] if name in columns else []
        else:
            found = columns_called(name, columns)
        if not found:
            raise self._error(f"no column '{name}' in the table", suggest(name, columns))
        if len(found) > 1:
            raise self._error(f"'{name}' may be any of the columns {', '.join(found)}", "put the name in backticks")
        return found[0]

    def _take_quoted(self, found: re.Match[str]) -> str:
        if found[1] is None:
            return found[0]
        name = f"_column_{len(self._quoted)}_"
        self._quoted[name] = found[1]
        return name

    def _error(self, problem: str, remedy: str) -> DataError:
        shown = self._text if len(self._text) <= 200 else f"{self._text[:200]} ..."
        return DataError(f"key 'data.rows': {shown}: {problem}", remedy)

    def _check(self, node: ast.AST) -> None:
        """Refuse every node that is not part of the language."""
        match node:
            case ast.BoolOp(values=parts):
                inner: list[ast.expr] = parts
            case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.UAdd(), operand=part):
                inner = [part]
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
                inner = [left, right]
            case ast.Compare(left=left, ops=ops, comparators=others) if all(
                type(op) in _ORDER or isinstance(op, ast.In | ast.NotIn) for op in ops
            ):
                inner = [left, *others]
            case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts) if all(map(_is_constant, parts)):
                inner = []
            case ast.Call(func=ast.Name(id="missing"), args=[ast.Name() as part], keywords=[]):
                inner = [part]
            case ast.Name():
                inner = []
            case _ if _is_constant(node):
                inner = []
            case _:
                said = ast.unparse(node) if isinstance(node, ast.expr) else type(node).__name__
                raise self._error(
                    f"'{said[:60]}' is not part of the language",
                    f"use columns, numbers, texts, + - * / % **, comparisons, in, and, or, not, missing(column); {_EXAMPLE}",
                )
        for each in inner:
            self._check(each)

    def __call__(self, columns: Mapping[str, Cells], num_rows: int) -> np.ndarray:
        """Return which rows to keep, (rows,) bool.

        Args:
            columns: each of `names` -> its contents.
            num_rows: number of rows.

        Raises:
            DataError: an operation does not fit the contents of a column.
        """
        with np.errstate(all="ignore"):
            found = self._evaluate(self._body, columns)
        if not isinstance(found, _Truth):
            raise self._error("neither true nor false for a row", f"compare it with something; {_EXAMPLE}")
        return np.broadcast_to(found.is_true, (num_rows,))

    def _evaluate(self, node: ast.expr, columns: Mapping[str, Cells]) -> _Value:
        match node:
            case ast.Constant(value=str(text)):
                # Normalised as levels are, see `columns`.
                return unicodedata.normalize("NFC", text)
            case ast.Constant(value=int() | float() as number):
                return float(number)
            case ast.Name(id=name):
                return columns[self._columns[name]]
            case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
                return tuple(self._evaluate(part, columns) for part in parts)
            case ast.Call(args=[part]):
                return _known(_is_missing(self._evaluate(part, columns)))
            case ast.BoolOp(op=op, values=parts):
                truths = [self._truth(part, columns) for part in parts]
                combine, other = (
                    (np.logical_and, np.logical_or) if isinstance(op, ast.And) else (np.logical_or, np.logical_and)
                )
                return _Truth(
                    combine.reduce(np.broadcast_arrays(*(t.is_true for t in truths))),
                    other.reduce(np.broadcast_arrays(*(t.is_false for t in truths))),
                )
            case ast.UnaryOp(op=ast.Not(), operand=part):
                truth = self._truth(part, columns)
                return _Truth(truth.is_false, truth.is_true)
            case ast.UnaryOp(op=op, operand=part):
                values = self._number(part, columns)
                return -values if isinstance(op, ast.USub) else values
            case ast.BinOp(left=left, op=op, right=right):
                return _ARITHMETIC[type(op)](self._number(left, columns), self._number(right, columns))
            case ast.Compare(left=left, ops=ops, comparators=others):
                sides = [self._evaluate(each, columns) for each in (left, *others)]
                links = [self._compare(op, a, b) for op, a, b in zip(ops, sides, sides[1:], strict=False)]
                return _Truth(
                    np.logical_and.reduce(np.broadcast_arrays(*(t.is_true for t in links))),
                    np.logical_or.reduce(np.broadcast_arrays(*(t.is_false for t in links))),
                )
        raise AssertionError(f"an unchecked node: {node!r}")

    def _truth(self, node: ast.expr, columns: Mapping[str, Cells]) -> _Truth:
        value = self._evaluate(node, columns)
        if not isinstance(value, _Truth):
            raise self._error(f"'{ast.unparse(node)[:60]}' is neither true nor false", _EXAMPLE)
        return value

    def _number(self, node: ast.expr, columns: Mapping[str, Cells]) -> np.ndarray:
        value = self._evaluate(node, columns)
        if not isinstance(value, np.ndarray | float):
            raise self._error(f"'{ast.unparse(node)[:60]}' is not a number", "compare texts with ==, != or in")
        return np.asarray(value, np.float64)

    def _days(self, value: _Value) -> _Value:
        """Convert a text that is compared with times to days."""
        if not isinstance(value, str):
            return value
        try:
            moment = datetime.datetime.fromisoformat(value)
        except ValueError as error:
            raise self._error(
                f"'{value}' is not a time", "write a text such as '2026-11-23' or '2026-11-23 12:30'"
            ) from error
        moment = moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)
        return (moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)) / datetime.timedelta(days=1)

    def _compare(self, op: ast.cmpop, left: _Value, right: _Value) -> _Truth:
        if isinstance(op, ast.In | ast.NotIn):
            if not isinstance(right, tuple):
                raise self._error("after `in` stands no list", "write a list, such as town in ['Bonn', 'Aachen']")
            found = [
                self._compare(ast.Eq(), left, each) for each in right if isinstance(each, str | float | np.ndarray)
            ]
            none = _known(np.zeros((), bool))
            is_true = np.logical_or.reduce(np.broadcast_arrays(none.is_true, *(t.is_true for t in found)))
            is_missing = _is_missing(left)
            truth = _Truth(is_true & ~is_missing, ~is_true & ~is_missing)
            return _Truth(truth.is_false, truth.is_true) if isinstance(op, ast.NotIn) else truth
        left, right = (self._days(left), right) if isinstance(right, Times) else (left, right)
        left, right = (left, self._days(right)) if isinstance(left, Times) else (left, right)
        left, right = (each.days if isinstance(each, Times) else each for each in (left, right))
        if isinstance(left, str) and isinstance(right, Texts) and isinstance(op, ast.Eq | ast.NotEq):
            left, right = right, left
        if isinstance(left, Texts) and isinstance(right, str) and isinstance(op, ast.Eq | ast.NotEq):
            right = level_of(right)
            code = left.levels.index(right) if right in left.levels else None
            is_equal = left.codes == code if code is not None else np.zeros(left.codes.shape, bool)
            return _known(is_equal == isinstance(op, ast.Eq), _is_missing(left))
        if isinstance(left, np.ndarray | float) and isinstance(right, np.ndarray | float):
            compared = _ORDER[type(op)](np.asarray(left), np.asarray(right))
            return _known(compared, _is_missing(left) | _is_missing(right))
        if isinstance(left, Texts) or isinstance(right, Texts):
            raise self._error(
                "a category is compared with something else than a text, or by size",
                "write the level between quotes, after ==, != or in; or declare a number in `types`",
            )
        raise self._error("the two sides of a comparison do not go together", _EXAMPLE)


def _is_constant(node: ast.AST) -> bool:
    match node:
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float())):
            return True
        case ast.Constant(value=bool()):
            return False
        case ast.Constant(value=int() | float() | str() as value):
            # An integer beyond float64 raises here, not for every row.
            return isinstance(value, str) or bool(abs(value) < 1e308)
    return False


def _is_missing(value: object) -> np.ndarray:
    if isinstance(value, Texts):
        return value.codes < 0
    value = value.days if isinstance(value, Times) else value
    return np.isnan(value) if isinstance(value, np.ndarray | float) else np.zeros((), bool)


def _known(is_true: np.ndarray, is_missing: np.ndarray | None = None) -> _Truth:
    """Return the truth of a condition: unknown where a value is missing."""
    is_known = ~is_missing if is_missing is not None else np.ones((), bool)
    return _Truth(is_true & is_known, ~np.asarray(is_true) & is_known)
