"""Sources that a component's YAML contains, so that it runs without our packages.

They are the modules that the component imports, directly or indirectly, without unused code, minified and compressed to
a fifth of their size. Names and lines of code are not changed, so that a traceback stays readable.

The same sources result in the same bytes, because a component's command is part of Kubeflow Pipelines' cache key. kfp's
own `embedded_artifact_path` also packs timestamps.
"""

from __future__ import annotations

import ast
import base64
import bz2
import functools
import inspect
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping
from importlib import resources
from importlib.metadata import version
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from trainjob.minify import minify
from trainjob_kfp.unused_code import remove_unused_code

if TYPE_CHECKING:
    from importlib.abc import Traversable

_OUR_PACKAGES = ("trainjob", "trainjob_kfp")

# Step -> packages of which it needs all modules. It sends their sources to the training's pod, or it imports one of
# their modules by a text (trainjob/frameworks/trl/argument_table.py).
_WHOLE_PACKAGES = {
    "export_model": ("trainjob/programs/export",),
    "fine_tune": ("trainjob/frameworks/torchtune/pod",),
    "fine_tune_trl": ("trainjob/frameworks/trl/pod", "trainjob/frameworks/trl/argument_tables"),
    "initialize_dataset": ("trainjob/programs/fetch",),
    "initialize_model": ("trainjob/programs/fetch",),
}
# Step -> module that it imports by a text, and the name in it (trainjob/spec/framework.py).
_IMPORTS_BY_NAME = {
    "fine_tune": ("trainjob/frameworks/torchtune/framework", "FRAMEWORK"),
    "fine_tune_trl": ("trainjob/frameworks/trl/framework", "FRAMEWORK"),
}

# base85 without $ { } < > &, because YAML, the templates of KFP, Argo and Kubernetes, or Go's JSON would change them.
_TO_SAFE_CHARACTERS = str.maketrans("$&<>{}", ",./:[]")

# kfp's executor imports this from a folder of its own that `mktemp -d` creates: only this user can read it.
_UNPACKING_TEMPLATE = """\
# Modules of trainjob {core} and kfp-trainjob {own} that this component imports, written beside this file.
def _unpack(packed):
    import base64, bz2, os, sys
    folder = os.path.dirname(os.path.abspath(__file__))
    packed = packed.translate(str.maketrans(",./:[]", "$&<>{{}}"))
    words = bz2.decompress(base64.b85decode(packed)).decode().split("\\0")
    for path, text in zip(words[::2], words[1::2]):
        path = os.path.join(folder, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    sys.path.insert(0, folder)
_unpack("{packed}")
"""


def build_unpacking_program(function: Callable[..., Any]) -> str:
    """Return a program that makes the sources for a component function importable.

    The program unpacks them and adds their folder to `sys.path`. It has to run before the function.

    Raises:
        ImportError: an imported module does not exist.
    """
    words = [word for path, text in sorted(collect_sources(function).items()) for word in (path, text)]
    packed = base64.b85encode(bz2.compress("\0".join(words).encode())).decode().translate(_TO_SAFE_CHARACTERS)
    return _UNPACKING_TEMPLATE.format(core=version("trainjob"), own=version("kfp-trainjob"), packed=packed)


def remove_docstring(source: str) -> str:
    """Return a component's source without the function's docstring.

    kfp has copied the docstring to the component's description. Annotations stay, because kfp's executor evaluates
    them.
    """
    *_, function = ast.parse(source).body
    lines = source.splitlines(keepends=True)
    match function:
        case ast.FunctionDef(body=[ast.Expr(value=ast.Constant(value=str())) as docstring, _, *_]):
            del lines[docstring.lineno - 1 : docstring.end_lineno]
    return "".join(lines)


def collect_sources(function: Callable[..., Any]) -> dict[str, str]:
    """Return the source texts by path of all modules that a component function needs.

    An `__init__.py` has only the imports that are used, because the others would load the whole package. Functions that
    nothing uses are left out, and then the modules that only these import.

    Raises:
        ImportError: an imported module does not exist.
    """
    program = textwrap.dedent(inspect.getsource(function))
    found: dict[str, str] = {}
    while True:
        whole, sources = _collect_imported(ast.parse(program), found)
        if sources == found:
            return sources
        found = remove_unused_code(sources, program, whole)


def _collect_imported(program: ast.Module, shortened: Mapping[str, str]) -> tuple[Collection[str], dict[str, str]]:
    """Return the paths of modules that stay whole, and the texts of all modules.

    Args:
        program: the program.
        shortened: shorter texts of some modules, by path.
    """
    steps = {node.attr for node in ast.walk(program) if isinstance(node, ast.Attribute)}
    whole = _collect_whole_packages(steps)
    texts = dict(whole)
    named = [module for step, module in _IMPORTS_BY_NAME.items() if step in steps]
    pending = [
        *_find_imports(program),
        *named,
        *(found for text in texts.values() for found in _find_imports_of(text)),
    ]
    package_imports: dict[str, set[str]] = {}
    while pending:
        module, name = pending.pop()
        for package in _parent_packages(module):
            package_imports.setdefault(package, set())
        file = f"{module}.py"
        if module in package_imports:
            if reexport := _find_reexport(module, name):
                package_imports[module].add(reexport[0])
                pending.append(reexport[1])
            elif name:
                pending.append((f"{module}/{name}", ""))
        elif file not in texts:
            texts[file] = shortened.get(file) or _read_source(file)
            pending += _find_imports_of(texts[file])
    packages = {f"{package}/__init__.py": "\n".join(sorted(lines)) for package, lines in package_imports.items()}
    return whole.keys(), packages | texts


def _collect_whole_packages(steps: set[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for package in (name for step in sorted(steps & _WHOLE_PACKAGES.keys()) for name in _WHOLE_PACKAGES[step]):
        for name in sorted(file.name for file in _source_file(package).iterdir()):
            if name.endswith(".py"):
                found[f"{package}/{name}"] = _read_source(f"{package}/{name}")
    return found


@functools.cache
def _find_imports_of(text: str) -> list[tuple[str, str]]:
    return list(_find_imports(ast.parse(text)))


def _find_imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the imports of our packages anywhere in a module.

    Each is the path of a module or package, and the imported name in it, or an empty string.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found = [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found = [(str(node.module), alias.name) for alias in node.names]
        else:
            continue
        yield from (
            (module.replace(".", "/"), name) for module, name in found if module.partition(".")[0] in _OUR_PACKAGES
        )


@functools.cache
def _find_reexport(package: str, name: str) -> tuple[str, tuple[str, str]] | None:
    """Return the import in a package's `__init__.py` that defines a name, and its source.

    The source is the path of a module and the name in it. The result is None if no import defines the name; the package
    may then have a module of that name. A defined name hides a module of the same name, as in Python:
    `trainjob.manifest.build` is the function.
    """
    for node in ast.parse(_read_source(f"{package}/__init__.py")).body:
        if isinstance(node, ast.ImportFrom) and node.module != package.replace("/", "."):
            for alias in node.names:
                if name == (alias.asname or alias.name):
                    line = ast.unparse(ast.ImportFrom(node.module, [alias], node.level))
                    return line, (str(node.module).replace(".", "/"), alias.name)
    return None


def _parent_packages(module: str) -> list[str]:
    """Return the packages that Python loads with a module.

    If the module is a package, it is included.
    """
    return [
        path for path in accumulate(module.split("/"), "{}/{}".format) if _source_file(f"{path}/__init__.py").is_file()
    ]


@functools.cache
def _read_source(path: str) -> str:
    file = _source_file(path)
    if not file.is_file():
        raise ImportError(f"{path} is imported but does not exist")
    return minify(file.read_text("utf-8"))


def _source_file(path: str) -> Traversable:
    package, _, below = path.partition("/")
    return resources.files(package).joinpath(below)
