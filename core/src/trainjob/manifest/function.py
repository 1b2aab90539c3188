"""A Python function as a container's command."""

from __future__ import annotations

import ast
import base64
import inspect
import json
import textwrap
from typing import Any

from trainjob.errors import InvalidSpec, Problem
from trainjob.spec import CustomTrainer

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
        InvalidSpec: the function can't be sent: a lambda, a closure, no source, or arguments that are no JSON.
    """
    source = _source(trainer.func)
    try:
        arguments = json.dumps(dict(trainer.func_args or {}))
    except (TypeError, ValueError) as error:
        raise _refused("func_args", trainer.func_args, f"arguments must be JSON values: {error}") from None
    program = _PROGRAM.format(source=source, name=trainer.func.__name__, arguments=arguments)
    packed = base64.b64encode(program.encode()).decode()
    return ["python", "-c", _LAUNCHER, packed, *_pip_arguments(trainer)]


def _pip_arguments(trainer: CustomTrainer) -> list[str]:
    if not trainer.packages_to_install:
        return []
    first, *others = trainer.pip_index_urls or ("",)
    index = ["--index-url", first] if first else []
    extra = [word for url in others for word in ("--extra-index-url", url)]
    return [*index, *extra, *trainer.packages_to_install]


def _source(function: Any) -> str:
    try:
        source = textwrap.dedent(inspect.getsource(function))
        [definition] = ast.parse(source).body
    except (OSError, TypeError, ValueError, SyntaxError) as error:
        raise _refused("func", function, f"its source can't be read: {error}; define it with `def` in a file") from None
    if not isinstance(definition, ast.FunctionDef):
        raise _refused("func", function, "it must be a plain function, defined with `def`")
    if getattr(function, "__closure__", None):
        names = ", ".join(function.__code__.co_freevars)
        raise _refused("func", function, f"it uses {names} from around it; pass them in func_args instead")
    definition.decorator_list = []
    return ast.unparse(definition)


def _refused(field: str, value: object, allowed: str) -> InvalidSpec:
    name = getattr(value, "__qualname__", None) or type(value).__name__
    return InvalidSpec(Problem(f"trainer.{field}", name, allowed))
