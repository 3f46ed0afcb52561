"""Kernels whose source has one defect, to show that the exact tests see it."""

from __future__ import annotations
import __future__

import ast
import inspect
import types
from collections.abc import Callable

import pytest


@pytest.fixture(scope="session")
def seed_defect() -> Callable[[types.ModuleType, str, str], types.ModuleType]:
    """Return a function of (module, text, replacement): the module, its functions compiled anew with one replacement."""

    def seed(module: types.ModuleType, text: str, replacement: str) -> types.ModuleType:
        source = inspect.getsource(module)
        assert source.count(text) == 1, f"{module.__name__} has no longer exactly one: {text}"
        tree = ast.parse(source.replace(text, replacement))
        # Functions alone: the classes stay the same, so that mutants and originals can exchange states.
        tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        mutant = types.ModuleType(module.__name__)
        vars(mutant).update(vars(module))
        future = __future__.annotations.compiler_flag
        exec(compile(tree, f"{module.__file__} with a defect", "exec", flags=future), vars(mutant))
        return mutant

    return seed
