"""A container of a pod: its starts, its restarts with back-off, its state.

Source: Kubernetes 1.36 `pkg/kubelet/kuberuntime` (exit codes, StartError), `pkg/kubelet/container` (restart policies,
back-off).
"""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

from trainjob_local.images import Image
from trainjob_local.kubelet.command_line import build_rewriter, expand
from trainjob_local.kubelet.container_logs import ContainerLog
from trainjob_local.kubelet.image_pull import ImagePull
from trainjob_local.kubelet.isolation import Mount
from trainjob_local.kubelet.master_ports import NoFreePort
from trainjob_local.kubelet.missing_module import MissingModule
from trainjob_local.kubelet.node_context import NodeContext
from trainjob_local.kubelet.pod_inputs import MissingInput, PodInputs
from trainjob_local.kubelet.pod_status import lost_state, terminated_state, waiting_state
from trainjob_local.kubelet.pod_status_writer import PodStatusWriter
from trainjob_local.kubelet.processes import ContainerProcess
from trainjob_local.kubelet.proxy_variables import exempt_loopback
from trainjob_local.objects import Json, utc_now

__all__ = ["Container", "RunResult"]

_KILLED, _NOT_STARTED = 137, 128
_RETRY_SECONDS = 1.0  # seconds until a missing input, such as a Secret, is looked up again


@dataclass(frozen=True)
class RunResult:
    """The result of one run of a container."""

    exit_code: int
    reason: str
    message: str
    started: datetime

    def to_state(self) -> Json:
        """Return the container's state after this run, with the current time as its end."""
        return terminated_state(self.exit_code, self.reason, self.message, self.started, utc_now())


class Container:
    """A container of a pod, run until its restart policy is satisfied.

    Args:
        node: settings and services of the node.
        pod: the pod.
        spec: the container's spec.
        status_writer: writer of the pod's status, which receives the container's status.
        inputs: environment and volumes of the pod's containers.
        init: whether it is an init container.
        stop: set when the pod has to end.
    """

    def __init__(
        self,
        node: NodeContext,
        pod: Json,
        spec: Json,
        status_writer: PodStatusWriter,
        inputs: PodInputs,
        *,
        init: bool,
        stop: threading.Event,
    ) -> None:
        self._node, self._pod, self._spec, self._status_writer, self._inputs = node, pod, spec, status_writer, inputs
        self._is_init, self._stop = init, stop
        self.name: str = spec["name"]
        self.volume_folders: dict[str, Path] = {}
        self.logs: dict[int, ContainerLog] = {}
        self.process: ContainerProcess | None = None
        self._delay, self._out_of_memory = 0.0, False
        self._folder = node.settings.pod_folder(pod["metadata"]["uid"])

    # -- running --------------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Run the container, with restarts, and return the exit code of its last run."""
        if self._was_running():
            state = lost_state(self._status["state"], utc_now())
            if not self._should_restart(_KILLED):
                return self._finish(_KILLED, state)
            self._status_writer.update_container(
                self.name, lastState=state, restartCount=self._status["restartCount"] + 1
            )
        elif self._already_ended():
            return int(self._status["state"]["terminated"]["exitCode"])
        image = ImagePull(self._node, self._pod, self._spec["image"], self._push_state, self._stop).run()
        if image is None:
            return _KILLED
        while True:
            ended = self._run_once(image)
            state = ended.to_state()
            if not self._should_restart(ended.exit_code):
                return self._finish(ended.exit_code, state)
            self._back_off(state)
            self._status_writer.update_container(
                self.name,
                state=waiting_state("ContainerCreating"),  # with CrashLoopBackOff, the next run would have failed, too
                lastState=state,
                restartCount=self._status["restartCount"] + 1,
            )

    def kill_out_of_memory(self) -> None:
        """End a running container as the kernel does if it exceeds its memory limit."""
        self._out_of_memory = self.process is not None
        self.signal(signal.SIGKILL)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the container's processes, if it runs."""
        if self.process is not None:
            self.process.signal(number)

    def first_process_id(self) -> int | None:
        """Return the ID of process 1 of the container while it runs isolated, else None."""
        return self.process.first_process_id() if self.process is not None else None

    def log(self, restart: int) -> ContainerLog | None:
        """Return the log of the run after this number of restarts.

        Returns:
            The log, or None if no such run exists.
        """
        if restart in self.logs:
            return self.logs[restart]
        path = self._log_path(restart)  # a run of an earlier kubelet process
        return ContainerLog(path, ended=True) if path.exists() else None

    # -- steps of a run -------------------------------------------------------------------------------------------

    @property
    def _status(self) -> Json:
        return self._status_writer.get_container(self.name)

    def _was_running(self) -> bool:
        """Return whether the container ran when an earlier kubelet of this node was killed."""
        return "running" in self._status["state"]

    def _already_ended(self) -> bool:
        end = self._status["state"].get("terminated")
        return bool(end) and not self._should_restart(end["exitCode"])

    def _should_restart(self, code: int) -> bool:
        policy = self._pod["spec"].get("restartPolicy", "Always")
        wanted = (code != 0 and policy != "Never") or (policy == "Always" and not self._is_init)
        return wanted and not self._stop.is_set()

    def _finish(self, code: int, state: Json) -> int:
        self._status_writer.update_container(self.name, state=state, ready=False, started=False)
        if self._is_init or not self._status_writer.has_ended:
            self._status_writer.push()  # the pod reports its last container, together with its phase
        return code

    def _back_off(self, state: Json) -> None:
        """Wait before a restart; the first restart follows immediately, as with a real kubelet."""
        meta = self._pod["metadata"]
        where = f"{meta['name']}_{meta['namespace']}({meta['uid']})"
        if self._delay:
            self._event("Warning", "BackOff", f"Back-off restarting failed container {self.name} in pod {where}")
            text = f"back-off {self._delay:g}s restarting failed container={self.name} pod={where}"
            self._push_state(waiting_state("CrashLoopBackOff", text), lastState=state)
        else:
            self._push_state(state)
        self._stop.wait(self._delay)
        settings = self._node.settings
        self._delay = min(self._delay * 2 or settings.backoff, settings.backoff_max)

    def _run_once(self, image: Image) -> RunResult:
        resolved = self._wait_environment()
        started = utc_now()
        if resolved is None:
            return RunResult(_KILLED, "Error", "", started)
        restart = self._status["restartCount"]
        log = self.logs[restart] = ContainerLog(self._log_path(restart))
        try:
            process = self._start(image, resolved)
        except OSError as error:
            self._event("Warning", "Failed", f"Error: {error}")
            return RunResult(_NOT_STARTED, "StartError", str(error), started)
        else:
            return self._follow_process(process, log, image, started)
        finally:
            log.close()

    def _wait_environment(self) -> dict[str, str] | None:
        """Wait until everything that the container's environment needs exists.

        Returns:
            The environment, or None if the pod has to end first.
        """
        while not self._stop.is_set():
            try:
                return self._inputs.resolve_environment(self._spec)
            except (MissingInput, NoFreePort) as error:
                self._push_state(waiting_state("CreateContainerConfigError", str(error)))
                self._stop.wait(_RETRY_SECONDS)
        return None

    def _follow_process(
        self, process: ContainerProcess, log: ContainerLog, image: Image, started: datetime
    ) -> RunResult:
        self.process = process
        self._event("Normal", "Started", "Container started")
        running = {"running": {"startedAt": started.strftime("%Y-%m-%dT%H:%M:%SZ")}}
        if not self._is_init:
            self._status_writer.phase = "Running"
        self._push_state(running, containerID=f"process://{process.pid}", imageID=self._spec["image"])
        if self._stop.is_set():  # the stop arrived before this process was registered
            process.signal(signal.SIGTERM)
        missing_module = MissingModule()
        while output := process.read():
            log.write(output)
            missing_module.read(output)
        code = process.wait()
        if code and (advice := missing_module.advice(image.environment)):
            log.write(advice.encode())
        self._node.processes.report_end(process)
        self.process = None
        wants_log = self._spec.get("terminationMessagePolicy") == "FallbackToLogsOnError"
        message = log.read_tail(lines=80, size=2048) if code and wants_log else ""
        reason = "OOMKilled" if self._out_of_memory else "Error" if code else "Completed"
        self._out_of_memory = False
        return RunResult(code, reason, message, started)

    # -- its process ----------------------------------------------------------------------------------------------

    def _start(self, image: Image, variables: dict[str, str]) -> ContainerProcess:
        if problem := image.problem():
            raise OSError(problem)
        isolation = self._node.settings.isolation
        port = partial(self._node.master_ports.acquire, self._pod)
        rewrite = build_rewriter([] if isolation else self._mount_paths(), *self._dns_names(), port)
        command = self._spec.get("command") or list(image.entrypoint)
        argv = [rewrite(expand(part, variables)) for part in [*command, *self._spec.get("args", [])]]
        if not argv:
            raise OSError(f"no command specified and no entrypoint known for image {self._spec['image']}")
        own = self._folder / "root" / self.name
        own.mkdir(parents=True, exist_ok=True)
        base = self._node.base_environment(image, home=self._folder, hostname=self._hostname())
        given = {name: rewrite(value) for name, value in {**image.env, **variables}.items()}
        env = exempt_loopback({**base, **given})
        argv = [*image.prefix, *argv]
        wanted = rewrite(self._spec.get("workingDir", ""))
        if isolation:
            programs = env.get("PATH", "").split(":")
            argv = isolation.command(argv, folder=own, mounts=self._mounts(), cwd=wanted, programs=programs)
            return self._node.processes.start(argv, env, own, first_process=isolation.first_process)
        cwd = wanted if wanted and Path(wanted).is_dir() else own
        return self._node.processes.start(_resolve_program(argv, env, image.environment), env, cwd)

    def _hostname(self) -> str:
        return str(self._pod["spec"].get("hostname", self._pod["metadata"]["name"]))

    def _dns_names(self) -> tuple[str, str]:
        return self._pod["spec"].get("subdomain", ""), self._pod["metadata"]["namespace"]

    def _mount_paths(self) -> list[tuple[str, str]]:
        return [(mount.path, str(mount.local)) for mount in self._mounts()]

    def _mounts(self) -> list[Mount]:
        return [
            Mount(self._local_path(mount), mount["mountPath"], read_only=bool(mount.get("readOnly")))
            for mount in self._spec.get("volumeMounts", [])
            if mount["name"] in self.volume_folders
        ]

    def _local_path(self, mount: Json) -> Path:
        sub_path = str(mount.get("subPath", ""))
        local = self.volume_folders[mount["name"]] / sub_path
        if not local.exists():
            local.mkdir(parents=True, exist_ok=True)
        return local.resolve() if sub_path else local  # the file of a ConfigMap stays the same when it is refreshed

    def _log_path(self, restart: int) -> Path:
        return self._folder / "logs" / f"{self.name}.{restart}.log"

    def _push_state(self, state: Json, **more: object) -> None:
        running = "running" in state
        self._status_writer.update_container(
            self.name, state=state, ready=running and not self._is_init, started=running, **more
        )
        self._status_writer.push()

    def _event(self, kind: str, reason: str, message: str) -> None:
        self._node.events.record(self._pod, "pods", kind, reason, message)


def _resolve_program(argv: list[str], env: dict[str, str], environment: Path | None) -> list[str]:
    """Return the command with its program looked up in the container's PATH.

    The PATH of the kubelet's own process differs from the container's.

    Raises:
        FileNotFoundError: the PATH has no such executable file.
    """
    program = argv[0]
    if os.sep in program:
        return argv
    for folder in env["PATH"].split(os.pathsep):
        candidate = Path(folder or ".") / program
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return [str(candidate), *argv[1:]]
    where = f"; the local environment of this image is {environment}" if environment else ""
    raise FileNotFoundError(2, f"exec: {program!r}: executable file not found in $PATH{where}")
