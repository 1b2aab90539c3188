"""A Python function as a container's command."""

from __future__ import annotations
import __future__

import ast
import base64
import builtins
import inspect
import json
import symtable
import textwrap
from collections.abc import Iterator
from typing import Any

from trainjob.errors import InvalidSpec, Problem
from trainjob.manifest.environment import literal
from trainjob.spec import CustomTrainer
from trainjob.spec.trainers import checked_words

# Runs in the training image: writes the function's file and hands over to pip and torchrun. The source travels as
# base64, so that no shell and no $(NAME) expansion of Kubernetes can touch it.
_LAUNCHER = (
    "import base64,os,subprocess,sys,tempfile;"
    "path=os.path.join(tempfile.mkdtemp(),'trainjob_function.py');"
    "open(path,'wb').write(base64.b64decode(sys.argv[1]));"
    "pip=sys.argv[2:];"
    "pip and subprocess.run([sys.executable,'-m','pip','install','--quiet',*pip],check=True);"
    "os.execvp(sys.executable,[sys.executable,'-m','torch.distributed.run',path])"
)
_PROGRAM = """{source}

if __name__ == "__main__":
    import json
    {name}(**json.loads({arguments!r}))
"""


def function_command(trainer: CustomTrainer) -> list[str]:
    """The command that runs a trainer's function under torchrun on each node.

    Raises:
        InvalidSpec: the function can't be sent: a lambda, a method, a closure, one that uses names of its module, one
            without source, or one that does not take its arguments.
    """
    definition = _definition(trainer.func)
    # How annotations inside the function are read is its module's choice.
    future = "from __future__ import annotations\n" if _has_future_annotations(trainer.func) else ""
    source = f"{future}{ast.unparse(definition)}"
    _check_names(trainer.func, source)
    _check_call(trainer)
    arguments = json.dumps(dict(trainer.func_args or {}))
    program = _PROGRAM.format(source=source, name=definition.name, arguments=arguments)
    packed = base64.b64encode(program.encode()).decode()
    return list(checked_words(("python", "-c", _LAUNCHER, packed, *_pip_arguments(trainer)), "trainer.func"))


def source_text(function: Any) -> str:
    """A function's source as it stands in its file.

    Raises:
        InvalidSpec: there is none.
    """
    try:
        return inspect.getsource(function)
    except (OSError, TypeError) as error:
        raise _refused("func", function, f"its source can't be read: {error}; define it with `def` in a file") from None


def _pip_arguments(trainer: CustomTrainer) -> list[str]:
    if not trainer.packages_to_install:
        return []
    first, *others = trainer.pip_index_urls or ("",)
    index = ["--index-url", first] if first else []
    extra = [word for url in others for word in ("--extra-index-url", url)]
    return [literal(word) for word in (*index, *extra, *trainer.packages_to_install)]


def _check_call(trainer: CustomTrainer) -> None:
    """A wrong argument would be found only after the pods have started."""
    try:
        inspect.signature(trainer.func).bind(**(trainer.func_args or {}))
    except TypeError as error:
        raise _refused("func_args", trainer.func, f"they must be what it takes: {error}") from None


def _definition(function: Any) -> ast.FunctionDef:
    """The function's own text, without decorators and its own annotations, whose names stay behind."""
    if inspect.ismethod(function):
        raise _refused("func", function, "it must be a plain function, not a method")
    source = textwrap.dedent(source_text(function))
    try:
        [definition] = ast.parse(source).body
    except (ValueError, SyntaxError):
        raise _refused("func", function, "it must be a plain function, defined with `def`") from None
    if not isinstance(definition, ast.FunctionDef):
        raise _refused("func", function, "it must be a plain function, defined with `def`")
    definition.decorator_list, definition.returns = [], None
    for argument in ast.walk(definition.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    return definition


def _check_names(function: Any, source: str) -> None:
    """Refuse names that the function finds around it here, and would not find where it runs."""
    module = symtable.symtable(source, "function", "exec")
    found = [(table, symbol) for table in _tables(module) for symbol in table.get_symbols()]
    wanted = {s.get_name() for table, s in found if s.is_referenced() and (s.is_global() or table is module)}
    written = {s.get_name() for table, s in found if s.is_assigned() and (s.is_declared_global() or table is module)}
    missing = [name for name in sorted(wanted - written - {*dir(builtins)}) if not name.startswith("__")]
    if missing:
        names = ", ".join(missing)
        raise _refused("func", function, f"it uses {names} from around it: import it inside, or pass it in func_args")


def _tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from _tables(child)


def _has_future_annotations(function: Any) -> bool:
    return bool(function.__code__.co_flags & __future__.annotations.compiler_flag)


def _refused(field: str, value: object, allowed: str) -> InvalidSpec:
    name = getattr(value, "__qualname__", None) or type(value).__name__
    return InvalidSpec(Problem(f"trainer.{field}", name, allowed))
