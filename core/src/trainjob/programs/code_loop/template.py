"""Process that has imported torch, and from which the processes of each run are forked.

It is started with the text of this file as its command, so that it has no other module of this project. It imports no
module of the user's project, and does not initialize CUDA, because a process that is forked afterwards could not use
it.

Requests and replies are lines of JSON in two pipes. The first reply is `{"processes": N}`, the number of processes for
a node, or `{"unavailable": REASON}` before the process ends. A request has `target`, `is_module`, `arguments`,
`search_paths`, and `ranks`: the variables of each process. `{"pid": PID}` follows its start, and `{"code": CODE}` the
end of the run. PID is the ID of a process group.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import runpy
import signal
import sys
import warnings
from types import FrameType, TracebackType

__all__ = ["main"]

_TERMINATION_SECONDS = 5  # for the other processes of a run after one has failed


def main() -> int:
    """Start runs until there are no more requests; in a forked process, return its exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # with PYTHONUNBUFFERED, lines of two ranks would mix
        sys.stdout.reconfigure(line_buffering=True, write_through=False)
    requests = open(int(sys.argv[1]), encoding="utf-8")  # noqa: PTH123, SIM115 - a pipe
    replies = open(int(sys.argv[2]), "w", buffering=1, encoding="utf-8")  # noqa: PTH123, SIM115

    def reply(**values: object) -> None:
        replies.write(json.dumps(values) + "\n")

    sys.path[:] = [folder for folder in sys.path if folder]  # without the working directory, which is the project
    try:
        _import_torch()
        count = _count_processes(sys.argv[3])
    except Exception as error:  # noqa: BLE001 - a damaged installation may raise anything
        reply(unavailable=f"{type(error).__name__}: {error}")
        return 1
    reply(processes=count)
    gc.freeze()  # the garbage collector would copy the memory that a forked process shares with this one
    for line in iter(requests.readline, ""):
        pid = _fork()
        if not pid:
            requests.close()
            replies.close()
            return _lead(json.loads(line))
        reply(pid=pid)
        reply(code=_get_exit_code(os.waitpid(pid, 0)[1]))
    return 0


def _import_torch() -> None:
    import torch

    torch.__version__  # noqa: B018 - a folder without an `__init__.py` is imported, too
    with contextlib.suppress(Exception):  # torch's optimizers import it at their first step (torch 2.13)
        import torch._dynamo
    if torch.cuda.is_initialized():
        raise RuntimeError("the import of torch has initialized CUDA")


def _count_processes(given: str) -> int:
    """Return the number of processes for a node, as torchrun determines it.

    Raises:
        ValueError: the text is not understood here, or there is no GPU.
    """
    if given.isdigit():
        return int(given)
    gpus = _count_gpus() if given in ("gpu", "auto") else 0
    if given == "cpu" or (given == "auto" and not gpus):
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not gpus:
        raise ValueError(f"{given} processes for each node, and no GPU was found")
    return gpus


def _count_gpus() -> int:
    """Return the number of GPUs.

    A process of its own counts them, because that may initialize CUDA.
    """
    pid = _fork()
    if not pid:
        import torch

        os._exit(min(torch.cuda.device_count(), 255))
    return _get_exit_code(os.waitpid(pid, 0)[1])


def _lead(request: dict) -> int:  # type: ignore[type-arg]
    """Start the processes of a run in a group of their own, and wait for their end."""
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is for the processes of the group
    running = set()
    for variables in request["ranks"]:
        pid = _fork()
        if not pid:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            return _run(request, variables)
        running.add(pid)

    def kill(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as a handler is called
        _signal(running, signal.SIGKILL)

    signal.signal(signal.SIGALRM, kill)
    code = 0
    while running:
        pid, status = os.wait()
        running.discard(pid)
        if not code and (code := _get_exit_code(status)):
            _signal(running, signal.SIGTERM)
            signal.alarm(_TERMINATION_SECONDS)
    os._exit(code)


def _run(request: dict, variables: dict[str, str]) -> int:  # type: ignore[type-arg]
    """Run the module or script as Python would."""
    os.environ.update(variables)
    sys.path[:0] = request["search_paths"]
    sys.argv[:] = [request["target"], *request["arguments"]]
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # it would give the same numbers in each process and run
    try:
        if request["is_module"]:
            runpy.run_module(request["target"], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(request["target"], run_name="__main__")
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001 - the error of the user's code, as Python shows it
        shown = error.with_traceback(_select_frames(error.__traceback__))
        sys.excepthook(type(error), shown, shown.__traceback__)
        return 1
    return 0


def _select_frames(found: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames of this file and of runpy."""
    while found and found.tb_frame.f_code.co_filename in ("<string>", "<frozen runpy>", runpy.__file__):
        found = found.tb_next
    return found


def _signal(pids: set[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _fork() -> int:
    with warnings.catch_warnings():
        # numpy's threads have no lock of Python (DeprecationWarning of Python 3.12 and later).
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _get_exit_code(status: int) -> int:
    """Return the exit code for the status of a process, 128 + N after the signal N."""
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


if __name__ == "__main__":
    sys.exit(main())
