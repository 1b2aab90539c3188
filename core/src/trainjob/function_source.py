"""Source text of Python functions that run in another process.

A function is sent as text. It therefore must import what it needs and use no names from outside it.
"""

from __future__ import annotations
import __future__

import ast
import base64
import builtins
import hashlib
import inspect
import linecache
import symtable
import textwrap
from collections.abc import Callable, Collection, Iterator, Sequence
from types import CodeType
from typing import Any, cast

from trainjob.errors import InvalidSpec, Problem

_FUTURE_IMPORT = "from __future__ import annotations\n"
_PLAIN_TYPES = ("bool", "dict", "float", "int", "list", "str")
_FIELD = "trainer.func"
# Decorators of Airflow's tasks, which act where the DAG is parsed: @task.trainjob, @task.skip_if(...), @setup.
_OWN_DECORATORS = {"task", "trainjob", "setup", "teardown"}


def function_source(function: Any, *helpers: Any) -> str:
    """Return the text of a function, to be sent to another process.

    Helpers are functions and classes of its module. They become definitions inside the function, after the imports with
    which it begins, because the text is that of one function.

    The receiver creates a function from it with [function_from_source][].

    Annotations with Python's own types stay, such as `int`, because the receiver may convert texts to arguments by
    them.

    Raises:
        InvalidSpec: the function cannot be sent; see [extract_source][].
    """
    return extract_source(function, *helpers, kept_types=_PLAIN_TYPES)[0]


def pack_function(function: Any, field: str = _FIELD) -> str:
    """Return a function as `NAME:SOURCE`, for an argument of a program.

    The source is base64, which no shell and no expansion of Kubernetes changes.

    Raises:
        InvalidSpec: the function cannot be sent; see [extract_source][].
    """
    source, name = extract_source(function, field=field)
    return f"{name}:{base64.b64encode(source.encode()).decode()}"


def function_from_source(source: str, field: str = _FIELD) -> Callable[..., Any]:
    """Return a function with this source and its parameters, but without a body.

    It can be given to a `CustomTrainer`. Nothing of the text is executed, not even the values of its defaults, because
    it may come from an untrusted author.

    Args:
        source: the text.
        field: name of the field that contains it, for the error.

    Raises:
        InvalidSpec: the text is not that of one plain function.
    """
    future = source.lstrip().startswith(_FUTURE_IMPORT)
    text = textwrap.dedent(source.lstrip().removeprefix(_FUTURE_IMPORT) if future else source).strip() + "\n"
    try:
        [definition] = ast.parse(text).body
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:  # MemoryError: nested too deeply
        rule = f"it must be the text of one function: {str(error) or 'it is nested too deeply'}"
        raise _invalid_source(source, rule, field) from None
    if not isinstance(definition, ast.FunctionDef):
        raise _invalid_source(source, "it must be the text of one function, defined with `def`", field)
    file = f"<{definition.name} {hashlib.sha256(source.encode()).hexdigest()[:16]}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)  # `inspect` reads it from here
    namespace: dict[str, Any] = {}
    flags = __future__.annotations.compiler_flag if future else 0
    exec(compile(_strip_body(definition), file, "exec", flags=flags, dont_inherit=True), namespace)  # noqa: S102
    return cast("Callable[..., Any]", namespace[definition.name])


def read_source(function: Any, field: str = _FIELD) -> str:
    """Return the text of a function in its file, unchanged.

    Args:
        function: the function.
        field: name of the field that contains the function, for the error.

    Raises:
        InvalidSpec: the source cannot be read.
    """
    try:
        return inspect.getsource(function)
    except (OSError, TypeError) as error:
        raise _invalid_function(
            field, function, f"its source can't be read: {error}; define it with `def` in a file"
        ) from None


def _parse_definition(function: Any, field: str) -> ast.FunctionDef:
    """Return the syntax tree of a plain function."""
    if inspect.ismethod(function):
        raise _invalid_function(field, function, "it must be a plain function, not a method")
    definition = _parse_statement(function, field)
    if not isinstance(definition, ast.FunctionDef):
        raise _invalid_function(field, function, "it must be a plain function, defined with `def`")
    return definition


def _parse_helper(helper: Any, field: str) -> ast.FunctionDef | ast.ClassDef:
    """Return the syntax tree of a function or class, without annotations.

    Those of a class's attributes stay, because a dataclass reads them.
    """
    definition = _parse_statement(helper, field)
    if not isinstance(definition, ast.FunctionDef | ast.ClassDef):
        raise _invalid_function(field, helper, "a helper must be a function or class, defined in a file")
    for node in ast.walk(definition):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
    return definition


def _parse_statement(value: Any, field: str) -> ast.stmt | None:
    """Return the syntax tree of a definition; None if its source is not one statement."""
    source = textwrap.dedent(read_source(value, field))
    try:
        [statement] = ast.parse(source).body
    except (ValueError, SyntaxError):
        return None
    return statement


_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def extract_source(
    function: Any, *helpers: Any, field: str = _FIELD, kept_types: Collection[str] = ()
) -> tuple[str, str]:
    """Return the text to send for a function, and its name.

    Args:
        function: the function.
        helpers: functions and classes that are defined inside it.
        field: name of the field that contains the function, for the error.
        kept_types: types whose annotations stay in the text; all other annotations are removed.

    Raises:
        InvalidSpec: the function cannot be sent. It is a lambda, a method, a closure or a generator; it uses names of
            its module or package; it has a decorator; it runs nothing; or it has no source.
    """
    definition = _parse_definition(function, field)
    _check_decorators(function, definition, field)
    definition = _strip_annotations(definition, kept_types)
    begin = next((n for n, node in enumerate(definition.body) if not _is_header(node)), 0)
    own_body = definition.body
    definition.body = [*own_body[:begin], *(_parse_helper(helper, field) for helper in helpers), *own_body[begin:]]
    # The function's module decides by this import how annotations inside the function are evaluated.
    source = f"{_FUTURE_IMPORT if _has_future_annotations(function) else ''}{ast.unparse(definition)}"
    _check_names(function, source, field)
    _check_runs_in_pod(function, definition, own_body, source, field)
    return source, definition.name


def _check_decorators(function: Any, definition: ast.FunctionDef, field: str) -> None:
    """Refuse a decorator that is not sent, unless it belongs to the workflow engine."""
    for decorator in definition.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        root = called
        while isinstance(root, ast.Attribute):
            root = root.value
        names = {getattr(root, "id", ""), getattr(called, "attr", "")}
        if not names & _OWN_DECORATORS:
            rule = f"its decorator @{ast.unparse(called)} is not sent: call it inside the function"
            raise _invalid_function(field, function, rule)


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


def _check_names(function: Any, source: str, field: str) -> None:
    """Refuse a function that uses names of its module, which would not exist where it runs."""
    module = symtable.symtable(source, "function", "exec")
    found = [(table, symbol) for table in _walk_tables(module) for symbol in table.get_symbols()]
    wanted = {s.get_name() for table, s in found if s.is_referenced() and (s.is_global() or table is module)}
    written = {s.get_name() for table, s in found if s.is_assigned() and (s.is_declared_global() or table is module)}
    missing = [name for name in sorted(wanted - written - {*dir(builtins)}) if not name.startswith("__")]
    if missing:
        names = ", ".join(missing)
        advice = "import such names inside it"
        if field == _FIELD:
            advice += ", or pass their values in func_args; modules of your project travel with code"
        raise _invalid_function(
            field,
            function,
            f"it uses {names} from its module: {advice}",
        )


def _is_header(node: ast.stmt) -> bool:
    """Return whether a statement is an import or a docstring."""
    match node:
        case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant(value=str())):
            return True
    return False


def _check_runs_in_pod(
    function: Any, definition: ast.FunctionDef, own_body: Sequence[ast.stmt], source: str, field: str
) -> None:
    """Refuse what does not work in the pod: relative imports, generators, an idle body.

    All their names may exist, so [_check_names][] does not find them.
    """
    defined = [node.name for node in own_body if isinstance(node, _DEFINITIONS)]
    if defined and all(isinstance(node, (*_DEFINITIONS, ast.Import, ast.ImportFrom)) for node in own_body):
        raise _invalid_function(field, function, f"it only defines {', '.join(defined)}, and calls nothing")
    if any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(definition)):
        rule = "it has a relative import: import by the full name, from the training image or from a project in code"
        raise _invalid_function(field, function, rule)
    codes = compile(source, "function", "exec", dont_inherit=True).co_consts
    if any(isinstance(code, CodeType) and code.co_flags & inspect.CO_GENERATOR for code in codes):
        raise _invalid_function(
            field, function, "it is a generator, whose code does not run when it is called; return a value instead"
        )


def _walk_tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from _walk_tables(child)


def _has_future_annotations(function: Any) -> bool:
    return bool(function.__code__.co_flags & __future__.annotations.compiler_flag)


def _invalid_function(field: str, value: object, allowed: str) -> InvalidSpec:
    name = getattr(value, "__qualname__", None) or type(value).__name__
    return InvalidSpec(Problem(field, name, allowed))


def _invalid_source(source: str, allowed: str, field: str) -> InvalidSpec:
    begin = source.strip()[:40]
    return InvalidSpec(Problem(field, repr(begin), allowed))
