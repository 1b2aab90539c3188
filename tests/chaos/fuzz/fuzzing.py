"""Tests that call one function with damaged input many times and count the results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=8,
)
# Values that have broken programs before.
EDGE_VALUES: list[Any] = [None, "", 0, -1, 2**63, 10**4000, 1e308, float("nan"), True, [], {}, [None], [[]], {"": None}]
EDGE_TEXTS = [
    "\0",
    "\ud800",
    "²",
    "1" * 5000,
    "a" * 70_000,
    "../..",
    "--help",
    "$(id)",
    "`id`",
    "; id",
    "'",
    '"',
    "\n",
    "${x}",
]
edge_cases = st.sampled_from([*EDGE_VALUES, *EDGE_TEXTS])


def fuzz(target: str, examples: int, **strategies: Any) -> Callable[[Callable[..., str]], Callable[[], None]]:
    """Return a decorator that makes a fuzz test of a check.

    The check takes the drawn values and returns a word for the result; it raises an exception if the result is wrong.
    The input is the same every time, so the whole suite never fails by chance. The profile `quick` draws less input,
    and `long` more. The profile `soak`, which is run by hand, draws other input each time.
    """
    profile = settings.default or settings()
    share = profile.max_examples / 100  # hypothesis has 100 unless a profile sets another number

    def decorate(check: Callable[..., str]) -> Callable[[], None]:
        results: Counter[str] = Counter()

        @settings(
            max_examples=max(1, round(examples * share)),
            derandomize=profile.derandomize,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(**strategies)
        def test(**values: Any) -> None:
            results[check(**values)] += 1

        test.__name__, test.__doc__, test.__module__ = check.__name__, check.__doc__, check.__module__
        test.fuzzed = (target, results)  # type: ignore[attr-defined]
        return test

    return decorate


def damaged_json(value: Any) -> st.SearchStrategy[Any]:
    """Return a strategy that replaces or removes one to three places of a JSON value."""
    places = list(paths_of(value))

    @st.composite
    def strategy(draw: st.DrawFn) -> Any:
        result = value
        for place in draw(st.lists(st.sampled_from(places), min_size=1, max_size=3)):
            replacement = draw(st.just(_REMOVED) | edge_cases | JSON)
            result = replace_at(result, place, replacement)
        return result

    return strategy()


_REMOVED = object()


def paths_of(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each place in a JSON value."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in inner:
        yield from paths_of(child, (*path, key))


def replace_at(value: Any, path: tuple[Any, ...], replacement: Any, *, removed: Any = _REMOVED) -> Any:
    """Return a copy of a JSON value with another value at a path; `removed` removes the place."""
    if not path:
        return value if replacement is removed else replacement
    key, rest = path[0], path[1:]
    if isinstance(value, dict) and key in value:
        if replacement is removed and not rest:
            return {name: child for name, child in value.items() if name != key}
        return {**value, key: replace_at(value[key], rest, replacement, removed=removed)}
    if isinstance(value, list) and isinstance(key, int) and key < len(value):
        return [
            replace_at(child, rest, replacement, removed=removed) if number == key else child
            for number, child in enumerate(value)
        ]
    return value  # an earlier replacement removed this place
