"""Check of a function's arguments against its parameters."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Collection, Iterator
from typing import Any

from trainjob.errors import Problem, ProblemKind


def list_argument_problems(function: Callable[..., Any], names: Collection[str]) -> Iterator[Problem]:
    """Yield the problems of a call with these keyword arguments.

    Without this check, a wrong argument would fail only after the pods have started.

    Args:
        function: the function; a callable of another kind is refused elsewhere, and has no problems here.
        names: names of the arguments.
    """
    if not inspect.isfunction(function):
        return
    parameters = inspect.signature(function).parameters
    kinds = {name: parameter.kind for name, parameter in parameters.items()}
    by_name = [
        name
        for name, kind in kinds.items()
        if kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    ]
    takes_all = inspect.Parameter.VAR_KEYWORD in kinds.values()
    called = function.__name__
    for name in names:
        if name not in by_name and not takes_all:
            similar = difflib.get_close_matches(name, by_name, n=1)
            advice = f"; did you mean {similar[0]}?" if similar else f"; it has {', '.join(by_name) or 'none'}"
            sentence = f"there is no parameter {name!r} in {called}{advice}"
            yield Problem(name, "given", sentence, ProblemKind.UNKNOWN)
    for name, parameter in parameters.items():
        if parameter.default is not inspect.Parameter.empty:
            continue
        if kinds[name] is inspect.Parameter.POSITIONAL_ONLY:
            rule = f"arguments are given by name: remove the `/` from the parameters of {called}"
            yield Problem(name, "positional-only", rule)
        elif name in by_name and name not in names:
            yield Problem(name, "nothing", f"the parameter of {called} has no default", ProblemKind.MISSING)
