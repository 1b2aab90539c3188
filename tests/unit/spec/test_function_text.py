"""Functions that are sent as source text, and run in a process that has only the text."""
# mypy: disable-error-code="attr-defined, return-value, truthy-bool"

from __future__ import annotations

import base64
import functools
import inspect
import json
import math
import subprocess
import sys
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainjob import CustomTrainer
from trainjob.errors import InvalidSpec
from trainjob.function_source import function_from_source, function_source
from trainjob.manifest import spec_hash
from trainjob.manifest.function import function_command
from trainjob.spec import TrainJob


def sum_scaled(rows: list[int], scale: float = 2.0, *, offset: int = 0, more: CustomTrainer | None = None) -> float:
    return scale * sum(rows) + offset


def uses_module_name():
    return pytest


def traced(function):
    @functools.wraps(function)
    def call(*given, **named):
        print("called")
        return function(*given, **named)

    return call


@traced
def decorated():
    return 1


@functools.lru_cache(maxsize=1)
def cached():
    return 1


class task:  # noqa: N801 - as Airflow names it
    """Decorators of a workflow engine, which act where the workflow is parsed."""

    @staticmethod
    def trainjob(**_):
        return lambda function: function

    skip_if = trainjob


@task.trainjob(retries=2)
@task.skip_if()
def task_function():
    return 1


def test_the_text_of_a_function_runs_like_the_function():
    arguments = {"rows": [1, 2], "offset": 1}
    received = CustomTrainer(func=function_from_source(function_source(sum_scaled)), func_args=arguments)
    program = base64.b64decode(function_command(received)[3]).decode()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "trainjob result: 7.0\n"
    assert function_command(received) == function_command(CustomTrainer(func=sum_scaled, func_args=arguments))


@pytest.mark.parametrize(("function", "name"), [(decorated, "traced"), (cached, "functools.lru_cache")])
def test_a_decorator_that_would_be_lost_is_refused(function, name):
    with pytest.raises(InvalidSpec, match=rf"its decorator @{name} is not sent: call it inside the function"):
        function_source(function)


def test_decorators_of_the_workflow_engine_are_left_out():
    assert function_source(task_function).splitlines()[-2:] == ["def task_function():", "    return 1"]


def test_only_annotations_with_builtin_types_are_sent():
    parameters = inspect.signature(function_from_source(function_source(sum_scaled))).parameters
    kept = {name: item.annotation for name, item in parameters.items() if item.annotation is not item.empty}
    assert kept == {"scale": "float", "offset": "int"}


def test_the_hash_depends_on_the_text_of_the_function():
    def hash_of(source):
        return spec_hash(TrainJob(trainer=CustomTrainer(func=function_from_source(source))))

    source = function_source(sum_scaled)
    assert hash_of(source) == hash_of(source)
    assert hash_of(source) != hash_of(source.replace("2.0", "3.0"))


def test_no_part_of_the_text_is_executed_by_the_receiver(tmp_path):
    mark = tmp_path / "mark"
    written = f"open({str(mark)!r}, 'w')"
    text = f"@{written}\ndef train(a: {written}, b={written}, *, c={written}) -> {written}:\n    {written}\n"
    function = function_from_source(text)
    assert function(1) is None
    assert not mark.exists()
    assert inspect.signature(function).bind(a=1)


def test_the_receiver_checks_the_arguments():
    function = function_from_source(function_source(sum_scaled))
    for arguments in ({}, {"rows": [], "unknown": 1}):
        with pytest.raises(InvalidSpec, match="func_args"):
            TrainJob(trainer=CustomTrainer(func=function, func_args=arguments))


@pytest.mark.parametrize("text", ["", "x = 1", "def f(:", "def f(): pass\ndef g(): pass", "class F: pass", "\0"])
def test_a_text_that_is_not_one_function_is_refused(text):
    with pytest.raises(InvalidSpec, match=r"trainer\.func"):
        function_from_source(text)


def test_the_sender_refuses_a_function_that_uses_module_names():
    with pytest.raises(InvalidSpec, match="uses pytest from its module"):
        function_source(uses_module_name)


@dataclass
class Scaled:
    factor: float
    reason: pytest.Mark | None = None

    @property
    def doubled(self) -> CustomTrainer:
        return 2 * self.factor


class Rescaled(Scaled):
    def apply(self, value: float) -> CustomTrainer:
        return scale_value(value, self.doubled)


def scale_value(value: CustomTrainer, factor: float) -> float:
    return math.prod([value, factor]) if factor else Scaled(1.0).doubled


def use_helpers(value: float) -> float:
    """Use functions and classes of the module."""
    import math  # noqa: F401 - the helpers use it
    from dataclasses import dataclass  # noqa: F401

    return Rescaled(1.5).apply(value)


def test_helpers_are_defined_inside_the_function():
    # The annotation of a field stays, because a dataclass reads it.
    text = function_source(use_helpers, Scaled, Rescaled, scale_value)
    received = CustomTrainer(func=function_from_source(text), func_args={"value": 4.0})
    program = base64.b64decode(function_command(received)[3]).decode()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "trainjob result: 12.0\n"


@pytest.mark.parametrize(
    ("helpers", "words"),
    [
        ((), "it uses Rescaled from its module"),
        ((Rescaled,), "it uses Scaled, scale_value from its module"),
        ((len,), "source can't be read"),
        ((lambda: 1,), "a helper must be a function or class, defined in a file"),
    ],
)
def test_a_helper_that_cannot_be_sent_is_refused(helpers, words):
    with pytest.raises(InvalidSpec, match=words):
        function_source(use_helpers, *helpers)


def test_a_function_that_only_defines_others_is_refused_with_helpers_too():
    def train():
        def inner():
            return sum_scaled([1])

    with pytest.raises(InvalidSpec, match="it only defines inner, and calls nothing"):
        function_source(train, sum_scaled)


def generate_one():
    yield 1


def use_generator():
    def numbers():
        yield 1

    return list(numbers())


def define_only():
    import json

    def train():
        print(json.dumps([1]))


def make_closure(scale):
    def closure(x=1):
        return x * scale

    return closure


def import_relative():
    from . import nothing  # noqa: TID252 - which is refused

    return nothing


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (generate_one, "cannot be generate_one: it is a generator, whose code does not run"),
        (
            make_closure(2),
            "closure: it uses scale from its module: import such names inside it",
        ),
        (import_relative, "it has a relative import: import by the full name"),
        (define_only, "it only defines train, and calls nothing"),
    ],
)
def test_a_function_that_would_fail_or_do_nothing_in_the_pod_is_refused(function, words):
    """Without this check, the TrainJob of a generator function would complete without running its code."""
    with pytest.raises(InvalidSpec, match=words):
        function_command(CustomTrainer(func=function))


def test_a_generator_inside_the_function_works():
    program = base64.b64decode(function_command(CustomTrainer(func=use_generator))[3]).decode()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "trainjob result: [1]\n"


def return_arguments(**arguments):
    return arguments


TEXT = st.text(st.characters(), max_size=20) | st.text("$(){}'\"`\\\n\0%!#& ", max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=15)
@given(st.lists(st.dictionaries(TEXT, VALUES, max_size=3), min_size=5, max_size=20))
def test_arguments_arrive_unchanged(several):
    """Arguments with any characters arrive unchanged."""
    # Several arguments are tested in one process, because a process takes a moment to start.
    arguments = {f"a{number}": given for number, given in enumerate(several)}
    command = function_command(CustomTrainer(func=return_arguments, func_args=arguments))
    program = base64.b64decode(command[3]).decode()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.removeprefix("trainjob result: ")) == arguments


def test_the_text_may_be_indented():
    assert inspect.signature(function_from_source("\n    def train(a, *rest):\n        return a\n")).bind(1, 2)


def leave_reference_cycle():
    import sys

    class Group:
        def __del__(self):
            print("freed at exit" if sys.is_finalizing() else "freed before exit")

    group = Group()
    group.itself = group


def test_garbage_of_a_function_is_freed_before_the_interpreter_exits():
    """A process group that was freed only at exit aborted 4 of 40 trainings (PyTorch 2.13)."""
    program = base64.b64decode(function_command(CustomTrainer(func=leave_reference_cycle))[3]).decode()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "freed before exit\n"
