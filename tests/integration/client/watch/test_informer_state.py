"""Tests of the state of an informer, from which metrics are made."""

from __future__ import annotations

from tests.integration.client.watch.recording_handler import RecordingHandler
from tests.integration.client.watch.scripted_api import error_response
from tests.support.polling import wait_until


def test_an_informer_that_never_ran_has_an_empty_state(informer):
    state = informer.state
    assert (state.resource, state.is_running, state.relists, state.errors) == ("trainjobs", False, 0, 0)
    assert state.seconds_since_sync is None


def test_a_bookmark_is_a_sync(api, informer):
    with informer.add_event_handler("a", RecordingHandler()):
        wait_until(lambda: informer.state.seconds_since_sync is not None and api.open_watches)
        synced_at = informer._synced_at
        wait_until(lambda: api.bookmark() or informer._synced_at != synced_at)
        assert informer.state.is_running
    wait_until(lambda: not informer.state.is_running)


def test_failed_lists_and_relists_are_counted(api, informer):
    api.respond_with("list", error_response(500), 2)
    with informer.add_event_handler("a", RecordingHandler()):
        wait_until(lambda: api.open_watches)
        assert informer.state.errors >= 2
        assert informer.state.relists == 0  # the first list is no relist
        with api.changed:
            api.write("a")
            api.compact()
        wait_until(lambda: api.interrupt_watches("reset") or informer.state.relists)
        wait_until(lambda: informer.state.relists)
        assert informer.state.errors >= 3
