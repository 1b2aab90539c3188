"""The faults of the harness: which requests fail, and what happens to the containers meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tests.chaos.logs.fault_proxy import PERMANENT, Fault, JobFaults

KUBELET_ERROR = "failed to create fsnotify watcher: too many open files"
CODES = (401, 403, 429, 500)


@dataclass(frozen=True)
class Scenario:
    """A fault, and what the waits under it must emit.

    Attributes:
        name: name of the fault in the evidence.
        faults: returns the faults of one TrainJob's requests, from the size of its logs in bytes.
        exact: whether each line must be emitted, and no notice.
        containers: what happens to the containers: `restart`, `rotate` (the log starts later), `delete` (a pod is
            deleted after its last line), `fail` (the waiter ends the TrainJob because of a restart).
        status_delay: delay of the status after a restart in seconds.
        pods_delay: longest delay of the list of all pods in seconds; each wait then has its own client.
        emit_seconds: longest time that the listener takes for a line.
        lines: largest number of lines of a run.
        ranks: largest number of pods.
        waits: share of the waits, where most scenarios have 1.
    """

    name: str
    faults: Callable[[Random, int], JobFaults] = lambda _random, _size: JobFaults()
    exact: bool = True
    containers: str = ""
    status_delay: float = 0.0
    pods_delay: float = 0.0
    emit_seconds: float = 0.0
    lines: int = 150
    ranks: int = 4
    waits: float = 1.0

    @property
    def needs_script(self) -> bool:
        """Whether only a scripted container can do this.

        A deleted pod is replaced by another one, and the laptop cluster rotates no logs and delays no status.
        """
        return self.containers in ("delete", "rotate") or self.status_delay > 0.0


def _breaks(*kinds: str, most: int = 4) -> Callable[[Random, int], JobFaults]:
    def faults(random: Random, size: int) -> JobFaults:
        return JobFaults([_break(random, random.choice(kinds), size) for _ in range(random.randint(1, most))])

    return faults


def _break(random: Random, kind: str, size: int) -> Fault:
    anywhere = random.randrange(size + 1)
    return Fault(kind, after=random.choice((0, random.randrange(200), anywhere, anywhere)))


def _refusals(*codes: int) -> Callable[[Random, int], JobFaults]:
    def faults(random: Random, _size: int) -> JobFaults:
        return JobFaults([Fault("status", code=random.choice(codes)) for _ in range(random.randint(1, 4))])

    return faults


def _permanent(kind: str) -> Callable[[Random, int], JobFaults]:
    def faults(random: Random, size: int) -> JobFaults:
        return JobFaults([Fault(kind, code=random.choice(CODES), after=random.randrange(size), times=PERMANENT)])

    return faults


def _kubelet_errors(random: Random, size: int) -> JobFaults:
    faults = _breaks("end", "reset")(random, size)
    faults.logs.insert(0, Fault("append", text=KUBELET_ERROR.encode(), times=random.randint(1, 3)))
    return faults


def _everything(random: Random, size: int) -> JobFaults:
    logs = [
        _break(random, random.choice(("end", "line end", "reset", "close", "silence")), size)
        if random.random() < 0.7
        else Fault("status", code=random.choice((401, 429, 500)))
        for _ in range(random.randint(2, 6))
    ]
    return JobFaults(logs, [Fault("status", code=random.choice((429, 500)), times=random.randint(1, 2))])


SCENARIOS = (
    Scenario("none"),
    Scenario("stream reset", _breaks("reset")),
    Scenario("stream closed within a chunk", _breaks("close")),
    Scenario("stream ends early, within a line or not", _breaks("end")),
    Scenario("stream ends early at the end of a line", _breaks("line end")),
    Scenario("stream is silent", _breaks("silence", most=2)),
    Scenario("401, 429 and 500 to requests for logs", _refusals(401, 429, 500)),
    Scenario("403 to requests for logs", _refusals(403), exact=False),
    Scenario(
        "requests for logs fail for good",
        _permanent("status"),
        exact=False,
        waits=0.3,
    ),
    Scenario(
        "lists of pods fail",
        lambda random, _: JobFaults([], [Fault("status", code=500, times=random.randint(1, 3))]),
    ),
    Scenario("pods' informer is late", pods_delay=1.0),
    Scenario("pods' informer is late, and streams end early", _breaks("end", "line end"), pods_delay=1.0),
    Scenario(
        "pods' informer is missing, and lists of pods fail",
        lambda random, _: JobFaults([], [Fault("status", code=random.choice((403, 500)), times=PERMANENT)]),
        exact=False,
        pods_delay=1e6,
        waits=0.3,
    ),
    Scenario("pod deleted between two reads", _breaks("end", "reset", "line end"), exact=False, containers="delete"),
    Scenario("clean-up after a failure", _breaks("end", "reset"), exact=False, ranks=1, containers="fail"),
    Scenario("clean-up after silence", _breaks("silence"), exact=False, ranks=1, containers="fail"),
    Scenario("streams stay silent", _permanent("silence"), exact=False, waits=0.1),
    Scenario(
        "clean-up while streams are silent", _permanent("silence"), exact=False, ranks=1, containers="fail", waits=0.2
    ),
    Scenario(
        "clean-up while requests for logs fail",
        _permanent("status"),
        exact=False,
        ranks=1,
        containers="fail",
        waits=0.2,
    ),
    Scenario("flood of lines", lines=30_000, ranks=1, waits=0.1),
    Scenario("slow listener", _breaks("end", "reset"), emit_seconds=0.02),
    Scenario("log rotated", _breaks("end", "reset"), exact=False, containers="rotate"),
    Scenario("restarts", exact=False, containers="restart"),
    Scenario("restarts, and streams break", _breaks("end", "reset", "line end"), exact=False, containers="restart"),
    Scenario("restarts whose status is late", exact=False, containers="restart", status_delay=4.0, waits=0.3),
    Scenario("the kubelet's errors within the log", _kubelet_errors),
    Scenario("several faults at once", _everything, waits=2.0),
)
