"""Stand-in for Argo's emissary: emissary.py COMMAND ARGUMENT...

It is a container's first process and behaves as Argo 4.0 does (workflow/executor/emissary, cmd/argoexec). It starts the
command as the leader of a process group of its own, and forwards SIGTERM and SIGINT to that group. Once a second it
checks whether the command has ended. Then it kills the group and ends with the command's exit code. When the
container's first process ends, all other processes of the container end too.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time

command: subprocess.Popen[bytes] | None = None
early_signals: list[int] = []
signal_times: list[float] = []


def forward_signal(number: int, _frame: object = None) -> None:
    if command is None:
        early_signals.append(number)
        return
    signal_times.append(time.monotonic())
    with contextlib.suppress(ProcessLookupError):  # the whole group has ended
        os.killpg(command.pid, number)


for handled in (signal.SIGTERM, signal.SIGINT):
    signal.signal(handled, forward_signal)
command = subprocess.Popen(sys.argv[1:], start_new_session=True)
for number in early_signals:
    forward_signal(number)
while command.poll() is None:
    time.sleep(1)
seconds_after_signal = time.monotonic() - signal_times[0] if signal_times else None
forward_signal(signal.SIGKILL)
if seconds_after_signal is not None:
    print(f"emissary: all is killed {seconds_after_signal:.3f} s after the signal", file=sys.stderr, flush=True)
sys.exit(command.returncode if command.returncode >= 0 else 128 - command.returncode)
