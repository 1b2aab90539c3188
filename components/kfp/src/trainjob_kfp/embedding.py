"""The sources that a component carries in its own YAML, so that it runs where nothing of ours is installed.

Carried are the modules that the component's imports lead to, without what only readers need, packed to a fifth. Names
and lines of code stay as they are, so that a traceback can be read. The same sources give the same bytes, as a
component's command is part of Kubeflow Pipelines' cache key; kfp's own `embedded_artifact_path` packs times, too.
"""

from __future__ import annotations

import ast
import base64
import bz2
import inspect
import textwrap
from collections.abc import Callable, Iterator
from importlib import resources
from importlib.metadata import version
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from trainjob.minify import minify

if TYPE_CHECKING:
    from importlib.abc import Traversable

_OURS = ("trainjob", "trainjob_kfp")

# Sources that are sent to the training's pod instead of being imported, by the step that sends them.
_SENT_BY = {
    "export_model": "trainjob/programs/export",
    "fine_tune": "trainjob/frameworks/torchtune/pod",
    "initialize_dataset": "trainjob/programs/fetch",
    "initialize_model": "trainjob/programs/fetch",
}
# What is imported by a name in a text, by the step that does so (trainjob/spec/framework.py).
_NAMED_BY = {"fine_tune": ("trainjob/frameworks/torchtune/framework", "FRAMEWORK")}

# base85 without $ { } < > & as the YAML, the templates of KFP, Argo and Kubernetes, or Go's JSON would change those.
_SAFE = str.maketrans("$&<>{}", ",./:[]")

# kfp's executor imports this from a folder of its own, made by `mktemp -d`: only this user can read it.
_PROGRAM = """\
# What this component imports of trainjob {core} and kfp-trainjob {own}, put beside this file.
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


def unpacking_program(function: Callable[..., Any]) -> str:
    """Program text that puts what this component function imports of ours on `sys.path`; to be run before it.

    Raises:
        ImportError: an import leads nowhere.
    """
    words = [word for path, text in sorted(carried_sources(function).items()) for word in (path, text)]
    packed = base64.b85encode(bz2.compress("\0".join(words).encode())).decode().translate(_SAFE)
    return _PROGRAM.format(core=version("trainjob"), own=version("kfp-trainjob"), packed=packed)


def carried_sources(function: Callable[..., Any]) -> dict[str, str]:
    """The texts, by path, of all modules that this component function leads to.

    Of a package's own file only those imports are left that somebody goes through: the others would load all of it.

    Raises:
        ImportError: an import leads nowhere.
    """
    program = ast.parse(textwrap.dedent(inspect.getsource(function)))
    steps = {node.attr for node in ast.walk(program) if isinstance(node, ast.Attribute)}
    texts = _sent_sources(steps)
    named = [module for step, module in _NAMED_BY.items() if step in steps]
    waiting = [*_imports(program), *named, *(found for text in texts.values() for found in _imports(ast.parse(text)))]
    doors: dict[str, set[str]] = {}
    while waiting:
        module, name = waiting.pop()
        for package in _packages_of(module):
            doors.setdefault(package, set())
        file = f"{module}.py"
        if module in doors:
            if way := _way_through(module, name):
                doors[module].add(way[0])
                waiting.append(way[1])
            elif name:
                waiting.append((f"{module}/{name}", ""))
        elif file not in texts:
            texts[file] = _text(file)
            waiting += _imports(ast.parse(texts[file]))
    return {f"{package}/__init__.py": "\n".join(sorted(lines)) for package, lines in doors.items()} | texts


def _sent_sources(steps: set[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for package in (_SENT_BY[name] for name in sorted(steps & _SENT_BY.keys())):
        for name in sorted(file.name for file in _file(package).iterdir()):
            if name.endswith(".py"):
                found[f"{package}/{name}"] = _text(f"{package}/{name}")
    return found


def _imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """What is imported of ours, anywhere in this module: (path of a module or package, name in it or nothing)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found = [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found = [(str(node.module), alias.name) for alias in node.names]
        else:
            continue
        yield from ((module.replace(".", "/"), name) for module, name in found if module.partition(".")[0] in _OURS)


def _way_through(package: str, name: str) -> tuple[str, tuple[str, str]] | None:
    """The line of a package's own file that brings this name, and where from; none brings the package's modules.

    A name goes before a module of the same name, as it does in Python: `trainjob.manifest.build` is the function.
    """
    for node in ast.parse(_text(f"{package}/__init__.py")).body:
        if isinstance(node, ast.ImportFrom) and node.module != package.replace("/", "."):
            for alias in node.names:
                if name == (alias.asname or alias.name):
                    line = ast.unparse(ast.ImportFrom(node.module, [alias], node.level))
                    return line, (str(node.module).replace(".", "/"), alias.name)
    return None


def _packages_of(module: str) -> list[str]:
    """The packages that are loaded with a module, itself included if it is one."""
    return [path for path in accumulate(module.split("/"), "{}/{}".format) if _file(f"{path}/__init__.py").is_file()]


def _text(path: str) -> str:
    file = _file(path)
    if not file.is_file():
        raise ImportError(f"{path} is imported but is not there")
    return minify(file.read_text("utf-8"))


def _file(path: str) -> Traversable:
    package, _, below = path.partition("/")
    return resources.files(package).joinpath(below)
