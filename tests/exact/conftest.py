"""Kernels whose source has one defect, to show that the exact tests see it."""

from __future__ import annotations
import __future__

import ast
import inspect
import types
from collections.abc import Callable

import pytest


@pytest.fixture(scope="session")
def seed_defect() -> Callable[..., types.ModuleType]:
    """Return a function of (module, text, replacement, *class names) that compiles the module with one replacement.

    Its functions are compiled anew, and the classes that are named.
    """

    def seed(module: types.ModuleType, text: str, replacement: str, *names: str) -> types.ModuleType:
        source = inspect.getsource(module)
        assert source.count(text) == 1, f"{module.__name__} has no longer exactly one: {text}"
        tree = ast.parse(source.replace(text, replacement))
        # Other classes stay the same, so that mutants and originals can exchange states.
        tree.body = [
            node
            for node in tree.body
            if isinstance(node, ast.FunctionDef) or (isinstance(node, ast.ClassDef) and node.name in names)
        ]
        mutant = types.ModuleType(module.__name__)
        vars(mutant).update(vars(module))
        future = __future__.annotations.compiler_flag
        exec(compile(tree, f"{module.__file__} with a defect", "exec", flags=future), vars(mutant))
        return mutant

    return seed
