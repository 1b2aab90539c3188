"""A tracker's token with a line end, a blank or another character after it: what the recorder shows of it."""

from __future__ import annotations

import signal

import pytest

from tests.integration.tracking.tracked_programs import mlflow_run, python, read_line, start_tracked, wait_for_end
from tests.support.loopback_server import LoopbackServer
from tests.support.odd_credentials import ODD_ENDS, SECRET, HeaderEcho

UNTIL_SIGTERM = """
import signal
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
step(1, 0.5)
signal.pause()
"""


@pytest.fixture(scope="module")
def server():
    server = LoopbackServer(HeaderEcho)
    yield server.url
    server.stop()


@pytest.mark.slow
@pytest.mark.parametrize("end", ODD_ENDS.values(), ids=ODD_ENDS)
def test_a_training_goes_on_and_no_credential_is_shown(server, unique, end):
    login = {"MLFLOW_TRACKING_USERNAME": "team", "MLFLOW_TRACKING_PASSWORD": SECRET + end}
    process = start_tracked(mlflow_run(server, unique), python(UNTIL_SIGTERM), env=login)
    shown = read_line(process, "tracking: ")
    process.send_signal(signal.SIGTERM)
    ended = wait_for_end(process)
    shown += ended.output + ended.errors
    assert ended.code == 0
    assert SECRET[3:] not in shown
    assert "Traceback" not in shown
