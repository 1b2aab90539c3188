"""A function that travels as text: read where it is written, run where only the text arrives."""

from __future__ import annotations

import base64
import inspect
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainjob import CustomTrainer
from trainjob.errors import InvalidSpec
from trainjob.manifest import build_trainjob, spec_hash
from trainjob.manifest.function import function_command, function_from_source, function_source
from trainjob.spec import TrainJob
from trainjob.status import parse_step_result


def sum_scaled(rows: list[int], scale: float = 2.0, *, offset: int = 0, more: CustomTrainer | None = None) -> float:
    return scale * sum(rows) + offset


def uses_module_name():
    return pytest


def test_the_text_runs_as_the_function_does():
    arguments = {"rows": [1, 2], "offset": 1}
    there = CustomTrainer(func=function_from_source(function_source(sum_scaled)), func_args=arguments)
    program = base64.b64decode(function_command(there)[3]).decode()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "trainjob result: 7.0\n"
    assert function_command(there) == function_command(CustomTrainer(func=sum_scaled, func_args=arguments))


def test_only_annotations_that_every_python_knows_travel_along():
    parameters = inspect.signature(function_from_source(function_source(sum_scaled))).parameters
    kept = {name: one.annotation for name, one in parameters.items() if one.annotation is not one.empty}
    assert kept == {"scale": "float", "offset": "int"}


def test_the_same_text_is_the_same_request_and_another_is_not():
    def hash_of(source):
        return spec_hash(TrainJob(trainer=CustomTrainer(func=function_from_source(source))))

    source = function_source(sum_scaled)
    assert hash_of(source) == hash_of(source)
    assert hash_of(source) != hash_of(source.replace("2.0", "3.0"))


def test_nothing_of_a_text_is_executed_here(tmp_path):
    mark = tmp_path / "mark"
    written = f"open({str(mark)!r}, 'w')"
    text = f"@{written}\ndef train(a: {written}, b={written}, *, c={written}) -> {written}:\n    {written}\n"
    function = function_from_source(text)
    assert function(1) is None
    assert not mark.exists()
    assert inspect.signature(function).bind(a=1)


def test_arguments_are_checked_where_the_text_arrives():
    function = function_from_source(function_source(sum_scaled))
    for arguments in ({}, {"rows": [], "unknown": 1}):
        job = TrainJob(trainer=CustomTrainer(func=function, func_args=arguments))
        with pytest.raises(InvalidSpec, match="func_args"):
            build_trainjob(job, name="train", namespace="ml")


@pytest.mark.parametrize("text", ["", "x = 1", "def f(:", "def f(): pass\ndef g(): pass", "class F: pass", "\0"])
def test_what_is_no_function_is_refused(text):
    with pytest.raises(InvalidSpec, match=r"trainer\.func"):
        function_from_source(text)


def test_a_function_that_could_not_run_there_is_refused_where_it_is_written():
    with pytest.raises(InvalidSpec, match="uses pytest from around it"):
        function_source(uses_module_name)


def generate_one():
    yield 1


def use_generator():
    def numbers():
        yield 1

    return list(numbers())


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
        (generate_one, "counts is not allowed; it yields: nothing of a generator runs when it is called"),
        (
            make_closure(2),
            "closure is not allowed; it uses scale from around it: import it inside, or pass it in func_args",
        ),
        (import_relative, "it imports from the package around it, by dots: name that in full"),
    ],
)
def test_what_would_do_nothing_there_or_fail_is_refused(function, words):
    """A generator's TrainJob was complete and had done nothing."""
    with pytest.raises(InvalidSpec, match=words):
        function_command(CustomTrainer(func=function))


def test_a_generator_inside_is_called_there():
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
def test_arguments_arrive_as_they_were_given(several):
    """Whatever characters are in them; several in one process, as each takes a moment to start."""
    arguments = {f"a{number}": given for number, given in enumerate(several)}
    command = function_command(CustomTrainer(func=return_arguments, func_args=arguments))
    program = base64.b64decode(command[3]).decode()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert parse_step_result(done.stdout) == {"result": arguments}


def test_a_text_that_was_written_by_hand_may_be_indented():
    assert inspect.signature(function_from_source("\n    def train(a, *rest):\n        return a\n")).bind(1, 2)


def leave_reference_cycle():
    import sys

    class Group:
        def __del__(self):
            print("ended with the interpreter" if sys.is_finalizing() else "ended before")

    group = Group()
    group.itself = group


def test_what_a_function_leaves_behind_ends_before_the_interpreter():
    """A process group that is left to the interpreter's end aborted 4 of 40 trainings (PyTorch 2.13)."""
    program = base64.b64decode(function_command(CustomTrainer(func=leave_reference_cycle))[3]).decode()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "ended before\n"
