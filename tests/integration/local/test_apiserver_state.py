"""Tests of the API server's stored state after SIGKILL, after a restart, over time and with two servers.

The last test checks which modules an import of the package loads.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from tests.integration.local.served_registry import ADMIN_TOKEN, TRAINJOBS, serve_registry, trainjob
from trainjob.errors import ClusterError
from trainjob_local.apiserver import ApiServer, Registry

CHILD = """
import pathlib, sys, threading
from trainjob_local.apiserver import ApiServer, Registry
registry = Registry(pathlib.Path(sys.argv[1]))
server = ApiServer(registry, admin_token=sys.argv[2], port=int(sys.argv[3]))
server.start()
print(server.port, flush=True)
threading.Event().wait()
"""


def start_child(state: Path, port: int = 0) -> tuple[subprocess.Popen[str], int]:
    started = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(state), ADMIN_TOKEN, str(port)], stdout=subprocess.PIPE, text=True
    )
    assert started.stdout is not None
    return started, int(started.stdout.readline())


def kill(process: subprocess.Popen[str]) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.wait(timeout=300)
    assert process.stdout is not None
    process.stdout.close()


def test_everything_survives_a_kill(tmp_path: Path) -> None:
    from http.client import HTTPConnection
    from json import dumps, loads

    def send(port: int, method: str, path: str, body: object = None) -> tuple[int, Any]:
        connection = HTTPConnection("127.0.0.1", port, timeout=60)
        headers = {"Authorization": f"Bearer {ADMIN_TOKEN}", "Content-Type": "application/json"}
        connection.request(method, path, dumps(body) if body else None, headers)
        response = connection.getresponse()
        found = response.status, loads(response.read().splitlines()[0])
        connection.close()
        return found

    first, port = start_child(tmp_path)
    created = [send(port, "POST", TRAINJOBS, trainjob(f"j{number}"))[1] for number in range(5)]
    send(port, "DELETE", f"{TRAINJOBS}/j0")
    kill(first)

    second, again = start_child(tmp_path, port)
    assert again == port  # immediately, although connections to the first server were open
    listed = send(port, "GET", TRAINJOBS)[1]
    assert listed["items"] == created[1:]
    last = int(created[-1]["metadata"]["resourceVersion"])
    assert int(listed["metadata"]["resourceVersion"]) == last + 1  # the deletion
    expired = send(port, "GET", f"{TRAINJOBS}?watch=1&resourceVersion={last}")[1]
    assert expired["object"]["code"] == 410  # the history is not stored
    later = send(port, "POST", TRAINJOBS, trainjob("later"))[1]
    assert int(later["metadata"]["resourceVersion"]) == last + 2
    kill(second)


def test_garbage_is_collected_after_a_restart(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    job = registry.create("trainjobs", trainjob("a"), "default")
    owner = {"apiVersion": job["apiVersion"], "kind": "TrainJob", "name": "a", "uid": job["metadata"]["uid"]}
    child_of = {"metadata": {"name": "c", "ownerReferences": [owner], "finalizers": ["x.io/held"]}}
    registry.create("configmaps", child_of, "default")
    registry._garbage_collector.stop()  # it stops before it processes the deletion
    registry.delete("trainjobs", "a", "default")
    registry.close()

    from tests.support.polling import wait_until

    reopened = Registry(tmp_path)
    wait_until(lambda: "deletionTimestamp" in reopened.get("configmaps", "c", "default")["metadata"])
    reopened.close()


def test_changed_bootstrap_objects_stay_changed(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    registry.patch("clusterroles", "system:discovery", {"rules": []})
    version = registry.store.version
    registry.close()
    reopened = Registry(tmp_path)
    assert not reopened.get("clusterroles", "system:discovery").get("rules")
    assert reopened.store.version == version
    reopened.close()


def test_a_state_folder_serves_one_registry(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    with pytest.raises(ClusterError, match="database is locked") as raised:
        Registry(tmp_path)
    assert "another laptop cluster" in raised.value.hint
    registry.close()
    Registry(tmp_path).close()


def test_a_port_serves_one_server() -> None:
    with serve_registry() as served:
        second = ApiServer(served.registry, admin_token=ADMIN_TOKEN, port=served.server.port)
        with pytest.raises(ClusterError, match=r"can't listen on 127\.0\.0\.1:"):
            second.start()
        port = served.server.port
        served.server.stop()
        served.server.start()
        assert served.server.port == port
        assert served.request("GET", "/healthz").text == "ok"


def test_events_are_deleted_an_hour_after_their_last_write(tmp_path: Path) -> None:
    now, deleted = [datetime(2026, 1, 1, tzinfo=timezone.utc)], []
    registry = Registry(tmp_path, clock=lambda: now[0])
    registry.subscribe(lambda event: deleted.append(event.key[1]) if event.type == "DELETED" else None)

    def write(name: str) -> list[str]:
        event = {"metadata": {"name": name}, "involvedObject": {"kind": "Pod", "name": "p"}, "type": "Normal"}
        registry.create("events", event, "default")
        return [found["metadata"]["name"] for found in registry.list("events")]

    write("first")
    write("counted-again")
    now[0] += timedelta(minutes=59)
    registry.patch("events", "counted-again", {"count": 2}, "default")
    now[0] += timedelta(minutes=1)
    assert write("second") == ["counted-again", "second"]
    now[0] += timedelta(days=1)
    assert write("third") == ["third"]
    assert deleted == ["first", "counted-again", "second"]
    registry.close()
    registry = Registry(tmp_path, clock=lambda: now[0])
    now[0] += timedelta(hours=1)
    assert write("fourth") == ["fourth"]
    registry.close()


def test_an_import_loads_no_web_server() -> None:
    heavy = "{'starlette', 'uvicorn', 'anyio', 'kubernetes', 'pydantic'}"
    for module in ("trainjob_local", "trainjob_local.apiserver"):
        code = f"import sys; import {module}; print({heavy} & set(sys.modules))"
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert found.stdout == "set()\n", module
