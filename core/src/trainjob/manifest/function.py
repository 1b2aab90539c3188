"""Conversion of a Python function to a container's command."""

from __future__ import annotations

import base64
import json
from dataclasses import replace

from trainjob.errors import INSTALLATION_FAILED, InvalidSpec
from trainjob.function_source import extract_source
from trainjob.heartbeats import RANK_VARIABLES
from trainjob.packing import pack_sources
from trainjob.spec import CustomTrainer
from trainjob.spec.credential_checks import check_source
from trainjob.spec.function_arguments import list_argument_problems
from trainjob.spec.trainers import escape_expansion, validate_command

# This program runs in the training image. It writes the function's file, runs pip, and replaces itself with the starter
# of the runtime's framework: torchrun, mpirun or plain Python. mpirun runs this program again on every node. The choice
# depends on variables that the plugin of Trainer 2.3 sets (pkg/runtime/framework/plugins); the Kubeflow SDK 0.5 chooses
# in the same way. pip installs into the user's folder if the image's is read-only, and a random user of OpenShift has
# no home folder. On one node, torchrun gets a free port: a pod that is still saving may hold the Trainer's, with
# hostNetwork and on a laptop cluster. The source is base64, so that no shell and no $(NAME) expansion of Kubernetes
# changes it.
_BOOTSTRAP = (
    "import base64,os,socket,subprocess,sys,tempfile;"
    "hosts=os.environ.get('OMPI_MCA_orte_default_hostfile');"
    "hosts and 'OMPI_COMM_WORLD_RANK' not in os.environ and "
    "os.execvp('mpirun',['mpirun','--hostfile',hosts,*sys.orig_argv]);"
    "path=os.path.join(tempfile.mkdtemp(),'trainjob_function.py');"
    "open(path,'wb').write(base64.b64decode(sys.argv[1]));"
    "pip=sys.argv[2:];"
    "os.access(os.path.expanduser('~'),os.W_OK) or os.environ.setdefault('PYTHONUSERBASE',tempfile.mkdtemp());"
    "code=pip and subprocess.call([sys.executable,'-m','pip','install','--quiet',*pip]);"
    f"code and sys.exit('function: failed: {INSTALLATION_FAILED}: pip ended with %d'%code);"
    "free=socket.socket();free.bind(('127.0.0.1',0));port=str(free.getsockname()[1]);free.close();"
    "os.environ.get('PET_NNODES')=='1' and os.environ.update(PET_MASTER_ADDR='127.0.0.1',PET_MASTER_PORT=port);"
    "torchrun=['-m','torch.distributed.run'] if 'PET_NNODES' in os.environ else [];"
    "os.execvp(sys.executable,[sys.executable,*torchrun,path])"
)
_LONGEST_RESULT = 65_536  # characters; it is a line of a log, and workflow engines store it in their databases
_PROGRAM = """{source}

if __name__ == "__main__":
    import gc
    import json
    import os
{setup}    given = json.loads({arguments!r})  # on a separate line, because a traceback shows the line of the call
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

RESUME_MODULES = (
    *(f"trainjob.{name}" for name in ("checkpoint", "heartbeats", "job_variables", "credentials", "errors", "version")),
    *(f"trainjob.frameworks.{name}" for name in ("training_state", "transformers")),
    *(f"trainjob.frameworks.{name}" for name in ("checkpoint_owner", "durable_files", "folder_lease")),
)
"""Names of the modules that a function that can resume imports."""
# The lines with which it imports them.
_UNPACKING = """\
    import base64
    import sys
    import tempfile
    import zlib
    sys.path.insert(0, os.path.join(tempfile.mkdtemp(), "trainjob.zip"))
    with open(sys.path[0], "wb") as archive:
        archive.write(zlib.decompress(base64.b64decode({packed!r})))
"""
_HEARTBEATS = "trainjob.heartbeats"
_BEGINNING = """\
    from trainjob.heartbeats import begin
    begin(reports_steps={reports_steps})
"""


def function_command(trainer: CustomTrainer, *, is_watched: bool = False) -> list[str]:
    """Return the command that runs a trainer's function on each node.

    The function is started as the runtime's framework requires: by torchrun on a torch runtime, by mpirun on an MPI
    runtime, and directly on all others. The value that it returns in the process of rank 0 is printed as one line of
    JSON after `trainjob result: `.

    Args:
        trainer: the trainer.
        is_watched: whether a watchdog reads the heartbeats of its processes.

    Raises:
        InvalidSpec: the function cannot be sent. It is a lambda, a method, a closure or a generator; it uses names of
            its module or package; it has no source; or it does not accept its arguments.
    """
    source, name = extract_source(trainer.func)
    check_source(source, "trainer.func")
    _check_call(trainer)
    arguments = json.dumps(dict(trainer.func_args or {}))
    reports = [_HEARTBEATS] if is_watched or _HEARTBEATS in source else []
    modules = RESUME_MODULES if trainer.resume else reports
    setup = _UNPACKING.format(packed=pack_sources(*modules)) if modules else ""
    setup += _BEGINNING.format(reports_steps="report_step" in source) if is_watched else ""
    program = _PROGRAM.format(
        source=source, setup=setup, name=name, arguments=arguments, ranks=RANK_VARIABLES, longest=_LONGEST_RESULT
    )
    packed = base64.b64encode(program.encode()).decode()
    return list(validate_command(("python", "-c", _BOOTSTRAP, packed, *_pip_arguments(trainer)), "trainer.func"))


def _pip_arguments(trainer: CustomTrainer) -> list[str]:
    if not trainer.packages_to_install:
        return []
    first, *others = trainer.pip_index_urls or ("",)
    index = ["--index-url", first] if first else []
    extra = [word for url in others for word in ("--extra-index-url", url)]
    return [escape_expansion(word) for word in (*index, *extra, *trainer.packages_to_install)]


def _check_call(trainer: CustomTrainer) -> None:
    """Refuse a function with required parameters that gets no arguments at all."""
    problems = list_argument_problems(trainer.func, trainer.func_args or {})
    if found := [replace(problem, field=f"trainer.func_args.{problem.field}") for problem in problems]:
        raise InvalidSpec(found)
