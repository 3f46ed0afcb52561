"""Load a user's own code by its name, and explain exceptions that it raises: a model, source, kernel, metric or analysis.

`explaining` is the only place in the package that catches every exception, because a component may raise anything.
Nothing here imports JAX: its exceptions are recognised by their names.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import inspect
import logging
import os
import re
import signal
import sys
import sysconfig
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bayesmesh.config.source_code import INSTALLED, PACKAGE_ROOT
from bayesmesh.errors import ConfigError, DeviceError, InternalError, UserError, explain_os_error, suggest

_VALUE_NEEDED = (
    "Python code needs the value of a traced array, in `if`, `while`, `and`, `int()`, `range()`, a shape or a mask"
)
_GROUPS = (
    "a number of groups is a constant, `data: {constants: {num_groups: 8}}`, which a NumPyro function takes as the argument"
    " `num_groups`, and other models find in `data_spec.constants`"
)
_WITHOUT_VALUE = f"use jnp.where, jax.lax.cond or jax.lax.fori_loop; no shape may depend on values: {_GROUPS}"
_OF_SYMBOLS = re.compile(
    r"TensorVariable cannot be converted|Length of .* cannot be determined|no implementation found for 'numpy"
)
_UNHASHABLE = re.compile(r"unhashable type: '\w*Tracer'")

EXPLAINED = {
    "TracerArrayConversionError": (
        "NumPy was given a traced array",
        f"use jax.numpy (`jnp`) instead of NumPy (`np`) for whatever depends on latents or rows; {_GROUPS}",
    ),
    "UnexpectedTracerError": (
        "a traced array was kept in an attribute or a global variable, and used in a later call",
        "keep no arrays between calls: compute what a method needs inside of it",
    ),
    **dict.fromkeys(
        ("TracerBoolConversionError", "TracerIntegerConversionError", "NonConcreteBooleanIndexError", "ConcretizationTypeError"),
        (_VALUE_NEEDED, _WITHOUT_VALUE),
    ),
}  # fmt: skip
"""Class of a JAX exception -> what happened, and the remedy."""

_WITHOUT_SYMBOLS = (
    "take functions of `pytensor.tensor` instead of NumPy's, and write numbers that are known, such as `shape=8` for eight groups, or in a subclass of `PymcModel` a number of"
    " `self.spec.constants`; or give the function the values of all rows, which are then one row:\n"
    "    model:\n      given: arrays"
)
_OF_DTYPES = re.compile(r"dtype|float32|float64|int32|int64")
_SAME_DTYPE = (
    "give numbers the dtype of the data, for example `zero = jnp.zeros((), y.dtype)` of a field y, or of"
    " `data_spec.dtype`, and `zero + 1.5` instead of jnp.float32(1.5); convert integer fields with .astype(latent.dtype);"
    " or let all be float64, `compute: {dtype: float64}`"
)
_OF_INTEGERS = re.compile(r"integer (?:or boolean )?type|must be integers")
_WHOLE_NUMBERS = "convert counts and indices, `.astype(jnp.int32)`, or declare the column as `integer` (data.types)"
_LATENTS_AS_ARGUMENTS = (
    "the arguments of each function are names of other latents of the same joint distribution, which do not depend on its own:"
    ' {"scale": tfd.HalfNormal(one), "effect": lambda scale: tfd.Normal(zero, scale)}'
)
_JOINT_OF_TFP = "/distributions/joint_distribution"
"""Part of the paths of TFP's joint distribution modules."""

_LOOP_WITHOUT_GRADIENT = (
    "a loop whose number of steps depends on values has no gradient",
    "use jax.lax.scan, or jax.lax.fori_loop with fixed bounds, and jnp.where for the steps that are not to count",
)
_OF_CALLBACK = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
"""A line of the traceback that XLA's error of a host callback holds as text."""

_LONGEST = 300
"""Number of characters of an exception's text to keep."""

_NEARLY = 0.85
"""Threshold for the similarity of names by difflib, also of methods: `is_ajusted` and `is_adjusted` have 0.95, the nearest two traits 0.76."""

_log = logging.getLogger("bayesmesh")

_NO_NAMES: Mapping[str, Collection[str]] = {}


@contextlib.contextmanager
def explaining(
    files: Collection[Path] = (), method: Callable[..., object] | None = None, names: Mapping[str, Collection[str]] = _NO_NAMES,
    *, log: object = None,
) -> Iterator[None]:  # fmt: skip
    """Convert an exception of a user's code into a sentence with file, line and remedy.

    Args:
        files: source files of the components that run inside. Any file that is not installed counts as well; exceptions
            that pass through none of them propagate.
        method: the component's method that is called inside; then all exceptions count as its own, because a library
            may raise only when it uses what the method has returned. Methods of an installed package do not count.
        names: such as ``latents`` -> the names that the code may ask a mapping for; explains a KeyError.
        log: where the traceback of any other exception is written; these propagate if None.

    Raises:
        ConfigError: the user's code raised an exception.
        InternalError: other code did, and there is a log.
        UserError: an error that is already explained, such as a full disk or a device without memory, unchanged.
    """
    folder = os.getcwd()
    try:
        yield
        if (now := os.getcwd()) != folder:
            os.chdir(folder)
            where = place_of(method) if method else ", ".join(map(str, files)) or "a function"
            raise ConfigError(
                f"{where}: changes the working folder, to {now}", "open files by their full paths instead"
            )
    except (UserError, GeneratorExit):
        raise
    except BaseException as error:
        # Jobs have handlers of their own, so that an interruption can only be the code's.
        if isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            raise
        # The first frame is this one, the second that of our caller.
        place = _users_line(error, files, 2) or (method and _own_place(method)) or _wrapped_line(error, files)
        if explained := _of_circumstances(error, place):
            raise explained from error
        if not place:
            if log is None or isinstance(error, BrokenPipeError):
                raise
            _log.error("%s", "".join(traceback.format_exception(error)).rstrip())
            raise InternalError(
                f"internal error: {type(error).__name__}: {_text(error)}",
                f"no file of yours raised it: report it with the lines above it in {log}",
            ) from error
        problem, remedy = _explain(error, names)
        raise ConfigError(f"{place}: {problem}", remedy) from error


def place_of(method: Callable[..., object]) -> str:
    """Return file, line and name of a method."""
    function = inspect.unwrap(method)
    code = getattr(function, "__code__", None)
    if code is None:
        return f"{inspect.getsourcefile(type(function))}: {getattr(function, '__qualname__', '')}"
    return f"{code.co_filename}, line {code.co_firstlineno}: {function.__qualname__}"


def _own_place(method: Callable[..., object]) -> str:
    """Return file, line and name of a method; empty for one of an installed package, which the user cannot correct."""
    place = place_of(method)
    return "" if _is_installed(Path(place.partition(", line ")[0])) else place


def _users_line(error: BaseException, files: Collection[Path], first: int = 0) -> str:
    """Return file, line and function of the innermost line of the user's code in a traceback; empty without one."""
    frames = [*traceback.walk_tb(error.__traceback__)][first:]
    lines = [(frame.f_code.co_filename, line, frame.f_code.co_qualname) for frame, line in frames]
    if type(error).__name__ == "JaxRuntimeError":
        lines += _OF_CALLBACK.findall(str(error))
    found = [(file, line, name) for file, line, name in lines if _is_users(Path(file), files)]
    if not found:
        return ""
    file, line, name = found[-1]
    return f"{file}, line {line}: {name.replace('.<locals>', '')}"


def _wrapped_line(error: BaseException, files: Collection[Path]) -> str:
    """Return the line of the user's code that raised the exception from which a library has made this one."""
    cause = error.__cause__
    return "" if cause is None else _users_line(cause, files) or _wrapped_line(cause, files)


def _is_users(file: Path, files: Collection[Path]) -> bool:
    """Return whether a file is one of the components', or belongs neither to this package nor to an installed one."""
    if file in files:
        return not _is_installed(file)
    return file.is_file() and not _is_installed(file) and not file.is_relative_to(PACKAGE_ROOT)


def _is_installed(file: Path) -> bool:
    return bool(INSTALLED & set(file.parts)) or file.is_relative_to(sysconfig.get_path("stdlib"))


def _of_circumstances(error: BaseException, place: str) -> UserError | None:
    """Return the error of a full disk or of a device without memory; None if the code itself is at fault."""
    if isinstance(error, MemoryError):
        return explain_os_error(error, place)
    if isinstance(error, OSError):
        return explain_os_error(error)
    if "RESOURCE_EXHAUSTED" in str(error):
        return DeviceError(f"the device has not enough memory: {_text(error)}", "use a smaller compute.row_tile, fewer chains or more devices")  # fmt: skip
    return None


def _explain(error: BaseException, names: Mapping[str, Collection[str]]) -> tuple[str, str]:
    """Return what happened, and the remedy."""
    if explained := _of_joint_distribution(error):
        return explained
    valid = {name for some in names.values() for name in some}
    if isinstance(error, KeyError) and valid and isinstance(key := error.args[0], str) and key not in valid:
        there = "; ".join(f"{what} {', '.join(sorted(some)) or 'none'}" for what, some in names.items())
        return f"asks for '{key}'; there are {there}", f"{suggest(key, valid)}; or use other data (key 'data.source')"
    if isinstance(error, SystemExit):
        return f"ends the process: exit({error.code})", "let it raise an error instead"
    if type(error).__name__ == "JaxRuntimeError" and _OF_CALLBACK.search(str(error)):
        return f"the host callback raises {str(error).splitlines()[-1].strip()[:_LONGEST]}", "correct the line"
    for cls in type(error).__mro__:
        if cls.__name__ in EXPLAINED:
            return EXPLAINED[cls.__name__]
    if isinstance(error, AttributeError) and error.name and error.obj is not None:
        near = difflib.get_close_matches(error.name, dir(error.obj), n=1)
        return _text(error), f"did you mean '{near[0]}'?" if near else "correct the line"
    if "Reverse-mode differentiation does not work" in str(error):
        return _LOOP_WITHOUT_GRADIENT
    if isinstance(error, TypeError) and _UNHASHABLE.search(str(error)):
        return _VALUE_NEEDED, _WITHOUT_VALUE
    if isinstance(error, TypeError | ValueError) and _OF_SYMBOLS.search(str(error)):
        return f"Python or NumPy needs the value of a symbol of PyTensor ({_text(error)})", _WITHOUT_SYMBOLS
    if isinstance(error, TypeError) and _OF_INTEGERS.search(str(error)):
        return _text(error), _WHOLE_NUMBERS
    if isinstance(error, TypeError | ValueError) and _OF_DTYPES.search(str(error)):
        return _text(error), _SAME_DTYPE
    return f"{type(error).__name__}: {_text(error)}", "correct the line; docs/contracts says what each method gets and returns"  # fmt: skip


def _of_joint_distribution(error: BaseException) -> tuple[str, str] | None:
    """Return what is wrong with the functions that a joint distribution is made of; None if its own code did not raise."""
    files = [frame.f_code.co_filename.replace("\\", "/") for frame, _ in traceback.walk_tb(error.__traceback__)]
    is_own = _JOINT_OF_TFP in files[-1]
    if isinstance(error, RecursionError) and any(_JOINT_OF_TFP in file for file in files):
        return "latents of the joint distribution depend on each other in a circle", _LATENTS_AS_ARGUMENTS
    if isinstance(error, KeyError) and is_own:
        return (
            f"the joint distribution asks for '{error.args[0]}', and has no such latent",
            _LATENTS_AS_ARGUMENTS,
        )
    if isinstance(error, AttributeError) and error.obj is None and is_own:
        return (
            "a function in the joint distribution returns None",
            "return a distribution: `lambda scale: tfd.Normal(zero, scale)`",
        )
    return None


def _text(error: BaseException) -> str:
    """Return the text of an exception on one line, shortened."""
    text = " ".join(str(error).split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."


# -- code that ``module:attribute`` names ----------------------------------------------------------------------------------


def load_named(name: str) -> Any:
    """Return an attribute of a module in the current folder or on the Python path.

    Args:
        name: ``module:attribute``.

    Raises:
        ConfigError: the module has no such attribute, and the message names the nearest; or the module ends the process.
        ImportError: no such module, or it raises when it is imported.
    """
    module_name, _, attribute = name.partition(":")
    folder = str(Path.cwd())
    # Last and for good: a function may import a module of the project when it is called, and no file of the project
    # shadows an installed module.
    if folder not in sys.path:
        sys.path.append(folder)
    sys.path.insert(0, folder)
    try:
        module = importlib.import_module(module_name)
    except SystemExit as error:
        raise ConfigError(
            f"'{name}': importing {module_name} ends the process: exit({error.code})",
            "put what runs only as a program under `if __name__ == '__main__':`",
        ) from error
    finally:
        sys.path.pop(0)
    if not hasattr(module, attribute):
        raise ConfigError(
            f"'{name}': {module_name} has no {attribute}",
            suggest(attribute, [each for each in vars(module) if each[0] != "_"]),
        )
    return getattr(module, attribute)


def load_function(name: str) -> Callable[..., Any]:
    """Return a function of the user's own package.

    Raises:
        ConfigError: nothing has that name, or it cannot be called.
        ImportError: no such module, or it raises when it is imported.
    """
    found = load_named(name)
    if not callable(found):
        raise ConfigError(f"'{name}' is not a function but {type(found).__name__}", "name a function")
    function: Callable[..., Any] = found
    return function


def check_arguments(key: str, name: str, arguments: Sequence[str]) -> None:
    """Refuse a function of the user's own package that does not take the arguments with which it will be called.

    Args:
        key: the key that names the function.
        name: the function, as ``module:attribute``.
        arguments: names of the arguments, in order.

    Raises:
        ConfigError: it does not; the message shows its signature.
    """
    function = load_function(name)
    try:
        signature = inspect.signature(function)
    except ValueError:
        # Written in C, without a signature.
        return
    try:
        signature.bind(*arguments)
    except TypeError as error:
        wanted = f"{name.partition(':')[2]}({', '.join(arguments)})"
        raise ConfigError(f"key '{key}': '{name}' takes {signature}: {error}", f"define {wanted}") from error


def refuse_misspelt_names[Made: type](path: Path, component: Made, contract: type) -> Made:
    """Return a component; refuse one with a misspelt name of the contract, because the default would apply unnoticed.

    Args:
        path: its file, for the message.
        component: its class.
        contract: the class of its kind.

    Raises:
        ConfigError: a trait, or a method that has a default, is misspelt.
    """
    # Classes of this package in between, such as the common warmup of Hamiltonian kernels, are part of the contract.
    ours = [each for each in component.__mro__[1:] if each is contract or each.__module__.startswith("bayesmesh.")]
    traits = {name for made in ours for name in inspect.get_annotations(made)}
    traits |= {k for made in ours for k, v in vars(made).items() if _is_plain(k, v)}
    methods = {k for made in ours for k, v in vars(made).items() if _is_method(k, v)}
    methods -= {k for k, v in vars(contract).items() if getattr(v, "__isabstractmethod__", False)}
    inherited = {name for parent in component.__mro__[1:] for name in vars(parent)}
    given = {name for each in component.__mro__ if each not in ours for name in vars(each)}
    for word, known, belongs in (("trait", traits, _is_plain), ("method", methods, _is_method)):
        for name in [k for k, v in vars(component).items() if belongs(k, v) and k not in known | inherited]:
            if near := difflib.get_close_matches(name, known - given, n=1, cutoff=_NEARLY):
                raise ConfigError(f"{path}: {component.__name__}: '{name}' is not a {word} of {contract.__name__}", f"write {near[0]}, or choose a name that differs more")  # fmt: skip
    return component


def _is_method(name: str, value: object) -> bool:
    is_called = isinstance(value, (property, classmethod, staticmethod)) or inspect.isfunction(value)
    return not name.startswith("_") and is_called


def _is_plain(name: str, value: object) -> bool:
    return not name.startswith("_") and not callable(value) and not hasattr(value, "__get__")
