"""Stacks of a running process."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.support.polling import wait_until
from trainjob.frameworks.supervision.processes import read_process
from trainjob.frameworks.supervision.stacks import request_stacks
from trainjob.heartbeats import FOLDER_VARIABLE, read_heartbeats

THREADS = """
import threading
from trainjob.heartbeats import begin

def wait(event):
    event.wait()

begin()
for _ in range(20):
    threading.Thread(target=wait, args=(threading.Event(),), daemon=True).start()
print("ready", flush=True)
wait(threading.Event())
"""
LOOKS, CALLS = 200, 4


def test_the_threads_of_a_process_do_not_write_over_each_other(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", THREADS], env={**os.environ, FOLDER_VARIABLE: str(tmp_path)}, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout.readline()
        (rank,) = read_heartbeats(tmp_path)
        path = tmp_path / rank.stacks_name

        def look():
            calls = map(str, request_stacks(read_process(rank.pid), path, rank.main_thread).main)
            return tuple(calls)

        # Its first looks may see the main thread before it waits.
        wait_until(lambda: not read_process(rank.pid).is_running and len(look()) == CALLS)
        found = {look() for _ in range(LOOKS)}
    finally:
        process.kill()
        process.communicate()
    assert len(found) == 1
    assert [call.partition(" ")[0] for call in found.pop()] == ["wait", "wait", "wait", "<module>"]
