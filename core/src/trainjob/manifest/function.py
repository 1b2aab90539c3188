"""Conversion of a Python function to a container's command."""

from __future__ import annotations
import __future__

import ast
import base64
import builtins
import hashlib
import inspect
import json
import linecache
import symtable
import textwrap
from collections.abc import Callable, Collection, Iterator
from types import CodeType
from typing import Any, cast

from trainjob.errors import InvalidSpec, Problem
from trainjob.spec import CustomTrainer
from trainjob.spec.trainers import escape_expansion, validate_command

# This program runs in the training image. It writes the function's file, runs pip, and replaces itself with the starter
# of the runtime's framework: torchrun, mpirun or plain Python. mpirun runs this program again on every node. The choice
# depends on variables that the plugin of Trainer 2.3 sets (pkg/runtime/framework/plugins); the Kubeflow SDK 0.5 chooses
# in the same way. The source is base64, so that no shell and no $(NAME) expansion of Kubernetes changes it.
_BOOTSTRAP = (
    "import base64,os,subprocess,sys,tempfile;"
    "hosts=os.environ.get('OMPI_MCA_orte_default_hostfile');"
    "hosts and 'OMPI_COMM_WORLD_RANK' not in os.environ and "
    "os.execvp('mpirun',['mpirun','--hostfile',hosts,*sys.orig_argv]);"
    "path=os.path.join(tempfile.mkdtemp(),'trainjob_function.py');"
    "open(path,'wb').write(base64.b64decode(sys.argv[1]));"
    "pip=sys.argv[2:];"
    "pip and subprocess.run([sys.executable,'-m','pip','install','--quiet',*pip],check=True);"
    "torchrun=['-m','torch.distributed.run'] if 'PET_NNODES' in os.environ else [];"
    "os.execvp(sys.executable,[sys.executable,*torchrun,path])"
)
_FUTURE_IMPORT = "from __future__ import annotations\n"
_PLAIN_TYPES = ("bool", "dict", "float", "int", "list", "str")
# Variables with a process's rank, set by torchrun, mpirun and Kubernetes. JAX and XGBoost use the last one.
_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "JOB_COMPLETION_INDEX")
_LONGEST_RESULT = 65_536  # characters; it is a line of a log, and workflow engines store it in their databases
_PROGRAM = """{source}

if __name__ == "__main__":
    import gc
    import json
    import os
    given = json.loads({arguments!r})  # on a separate line, because a traceback shows the line of the call
    result = {name}(**given)
    ranks = [os.environ[name] for name in {ranks} if name in os.environ]
    if result is not None and ranks[:1] in ([], ["0"]):
        try:
            text = json.dumps(result, allow_nan=False)
            if len(text) > {longest}:
                raise ValueError(f"it has {{len(text)}}")
            print("trainjob result: " + text, flush=True)
        except (TypeError, ValueError) as error:
            rule = "it must be a JSON value of at most {longest} characters"
            print(f"the return value of {name} is not reported, {{rule}}: {{error}}", flush=True)
    gc.collect()  # a DistributedDataParallel that is freed at the interpreter's exit may abort it (PyTorch 2.13, gloo)
"""


def function_command(trainer: CustomTrainer) -> list[str]:
    """Return the command that runs a trainer's function on each node.

    The function is started as the runtime's framework requires: by torchrun on a torch runtime, by mpirun on an MPI
    runtime, and directly on all others. The value that it returns in the process of rank 0 is printed as one line of
    JSON after `trainjob result: `.

    Raises:
        InvalidSpec: the function cannot be sent. It is a lambda, a method, a closure or a generator; it uses names of
            its module or package; it has no source; or it does not accept its arguments.
    """
    source, name = _extract_source(trainer.func)
    _check_call(trainer)
    arguments = json.dumps(dict(trainer.func_args or {}))
    program = _PROGRAM.format(source=source, name=name, arguments=arguments, ranks=_RANKS, longest=_LONGEST_RESULT)
    packed = base64.b64encode(program.encode()).decode()
    return list(validate_command(("python", "-c", _BOOTSTRAP, packed, *_pip_arguments(trainer)), "trainer.func"))


def function_source(function: Any) -> str:
    """Return the text of a function, to be sent to another process.

    The receiver creates a function from it with [function_from_source][].

    Annotations with Python's own types stay, such as `int`, because the receiver may convert texts to arguments by
    them.

    Raises:
        InvalidSpec: the function cannot be sent; see `function_command`.
    """
    return _extract_source(function, kept_types=_PLAIN_TYPES)[0]


def function_from_source(source: str) -> Callable[..., Any]:
    """Return a function with this source and its parameters, but without a body.

    It can be given to a `CustomTrainer`. Nothing of the text is executed, not even the values of its defaults, because
    it may come from an untrusted author.

    Raises:
        InvalidSpec: the text is not that of one plain function.
    """
    future = source.lstrip().startswith(_FUTURE_IMPORT)
    text = textwrap.dedent(source.lstrip().removeprefix(_FUTURE_IMPORT) if future else source).strip() + "\n"
    try:
        [definition] = ast.parse(text).body
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:  # MemoryError: nested too deeply
        raise _invalid_source(
            source, f"it must be the text of one function: {str(error) or 'it is nested too deeply'}"
        ) from None
    if not isinstance(definition, ast.FunctionDef):
        raise _invalid_source(source, "it must be the text of one function, defined with `def`")
    file = f"<{definition.name} {hashlib.sha256(source.encode()).hexdigest()[:16]}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)  # `inspect` reads it from here
    namespace: dict[str, Any] = {}
    flags = __future__.annotations.compiler_flag if future else 0
    exec(compile(_strip_body(definition), file, "exec", flags=flags, dont_inherit=True), namespace)  # noqa: S102
    return cast("Callable[..., Any]", namespace[definition.name])


def read_source(function: Any) -> str:
    """Return a function's source as it stands in its file.

    Raises:
        InvalidSpec: the source cannot be read.
    """
    try:
        return inspect.getsource(function)
    except (OSError, TypeError) as error:
        raise _invalid_function(
            "func", function, f"its source can't be read: {error}; define it with `def` in a file"
        ) from None


def _pip_arguments(trainer: CustomTrainer) -> list[str]:
    if not trainer.packages_to_install:
        return []
    first, *others = trainer.pip_index_urls or ("",)
    index = ["--index-url", first] if first else []
    extra = [word for url in others for word in ("--extra-index-url", url)]
    return [escape_expansion(word) for word in (*index, *extra, *trainer.packages_to_install)]


def _check_call(trainer: CustomTrainer) -> None:
    """Refuse arguments that the function does not accept.

    Without this check, a wrong argument would fail only after the pods have started.
    """
    try:
        inspect.signature(trainer.func).bind(**(trainer.func_args or {}))
    except TypeError as error:
        raise _invalid_function("func_args", trainer.func, f"they must match its parameters: {error}") from None


def _parse_definition(function: Any) -> ast.FunctionDef:
    """Return the syntax tree of a plain function."""
    if inspect.ismethod(function):
        raise _invalid_function("func", function, "it must be a plain function, not a method")
    source = textwrap.dedent(read_source(function))
    try:
        [definition] = ast.parse(source).body
    except (ValueError, SyntaxError):
        raise _invalid_function("func", function, "it must be a plain function, defined with `def`") from None
    if not isinstance(definition, ast.FunctionDef):
        raise _invalid_function("func", function, "it must be a plain function, defined with `def`")
    return definition


def _extract_source(function: Any, kept_types: Collection[str] = ()) -> tuple[str, str]:
    """Return the text to send for a function, and its name.

    The text contains only annotations with the types in `kept_types`.
    """
    definition = _strip_annotations(_parse_definition(function), kept_types)
    # The function's module decides by this import how annotations inside the function are evaluated.
    source = f"{_FUTURE_IMPORT if _has_future_annotations(function) else ''}{ast.unparse(definition)}"
    _check_names(function, source)
    _check_runs_in_pod(function, definition, source)
    return source, definition.name


def _strip_annotations(definition: ast.FunctionDef, kept_types: Collection[str]) -> ast.FunctionDef:
    """Remove decorators and all annotations except parameters' annotations in `kept_types`.

    The names in these annotations may not exist where the function runs.
    """
    definition.decorator_list, definition.returns = [], None
    for argument in ast.walk(definition.args):
        if isinstance(argument, ast.arg) and getattr(argument.annotation, "id", "") not in kept_types:
            argument.annotation = None
    return definition


def _strip_body(definition: ast.FunctionDef) -> ast.Module:
    """Return the definition with the same name and parameters, but nothing to execute.

    Neither the definition nor a call of the function executes any of its code.
    """
    arguments = _strip_annotations(definition, _PLAIN_TYPES).args
    arguments.defaults = [ast.Constant(None) for _ in arguments.defaults]
    arguments.kw_defaults = [default and ast.Constant(None) for default in arguments.kw_defaults]
    definition.body = [ast.Pass()]
    return ast.fix_missing_locations(ast.Module([definition], type_ignores=[]))


def _check_names(function: Any, source: str) -> None:
    """Refuse a function that uses names of its module, which would not exist where it runs."""
    module = symtable.symtable(source, "function", "exec")
    found = [(table, symbol) for table in _walk_tables(module) for symbol in table.get_symbols()]
    wanted = {s.get_name() for table, s in found if s.is_referenced() and (s.is_global() or table is module)}
    written = {s.get_name() for table, s in found if s.is_assigned() and (s.is_declared_global() or table is module)}
    missing = [name for name in sorted(wanted - written - {*dir(builtins)}) if not name.startswith("__")]
    if missing:
        names = ", ".join(missing)
        raise _invalid_function(
            "func",
            function,
            f"it uses {names} from its module: import such names inside it, or pass their values in func_args",
        )


def _check_runs_in_pod(function: Any, definition: ast.FunctionDef, source: str) -> None:
    """Refuse relative imports and generators, which do not work in the pod.

    All their names may exist, so [_check_names][] does not find them.
    """
    if any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(definition)):
        rule = "it has a relative import: import by the full name, and install that package in the training image"
        raise _invalid_function("func", function, rule)
    codes = compile(source, "function", "exec", dont_inherit=True).co_consts
    if any(isinstance(code, CodeType) and code.co_flags & inspect.CO_GENERATOR for code in codes):
        raise _invalid_function(
            "func", function, "it is a generator, whose code does not run when it is called; return a value instead"
        )


def _walk_tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from _walk_tables(child)


def _has_future_annotations(function: Any) -> bool:
    return bool(function.__code__.co_flags & __future__.annotations.compiler_flag)


def _invalid_function(field: str, value: object, allowed: str) -> InvalidSpec:
    name = getattr(value, "__qualname__", None) or type(value).__name__
    return InvalidSpec(Problem(f"trainer.{field}", name, allowed))


def _invalid_source(source: str, allowed: str) -> InvalidSpec:
    begin = source.strip()[:40]
    return InvalidSpec(Problem("trainer.func", repr(begin), allowed))
