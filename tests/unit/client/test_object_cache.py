"""Tests of an informer's object cache without threads: the events that handlers receive."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from trainjob.client.object_cache import EventHandler, ObjectCache
from trainjob.errors import ClusterUnreachable

KEYS = st.sampled_from("ab")
UIDS = st.sampled_from("123")


class RecordingHandler:
    """Event handler that records the objects, and performs an action when it is called.

    Attributes:
        known: states of the objects by uid; None for a deleted object.
        is_over: whether the handler must get no more events.
    """

    def __init__(self, machine, key, action):
        self.machine, self.key, self.action, self.known = machine, key, action, {}
        self.is_over, self.misses, self.handler = False, 0, None

    def __call__(self, event):
        assert not self.is_over, "called after its end"
        if event.error is not None:
            self.is_over = True
            return
        uid, state = event.object["metadata"]["uid"], None if event.deleted else event.object
        assert self.known.get(uid, ...) != state, "called twice with the same state"
        self.known[uid] = state
        if self.action == "fail" and self.handler is not None:
            self.action = "has failed"
            raise ValueError("a bug of the handler")
        if self.action == "close" and self.handler is not None:
            self.close()
        if self.action == "close others":
            for other in self.machine.active_handlers:
                if other.action == "stay" and other is not self:
                    other.close()
        if self.action == "add another":
            self.action = "has added another"
            self.machine.add_handler(self.key, "stay")

    def close(self):
        self.handler.close()
        self.is_over = True

    def on_missing(self):
        assert not self.is_over
        self.misses += 1


class ObjectCacheModel(RuleBasedStateMachine):
    """Object cache and a model of the objects that it must have."""

    handlers = Bundle("handlers")

    def __init__(self):
        super().__init__()
        self.cache, self.objects, self.active_handlers, self.version = ObjectCache(), {}, [], 0

    def add_handler(self, key, action):
        recorder = RecordingHandler(self, key, action)
        handler = EventHandler(key, recorder, recorder.on_missing, self.cache.remove_handler)
        self.cache.add_handler(handler)
        recorder.handler = handler
        self.active_handlers.append(recorder)
        return recorder

    @rule(
        target=handlers,
        key=st.none() | KEYS,
        action=st.sampled_from(["stay", "stay", "fail", "close", "close others", "add another"]),
    )
    def join_handler(self, key, action):
        return self.add_handler(key, action)

    @rule(recorder=consumes(handlers))
    def close_handler(self, recorder):
        recorder.close()

    @rule(key=KEYS, uid=UIDS, new=st.booleans())
    def change(self, key, uid, new):
        self.version += new
        obj = {"metadata": {"uid": key + uid, "resourceVersion": str(self.version)}}
        self.objects[key, key + uid] = obj
        self.cache.update(key, obj)

    @rule(key=KEYS, uid=UIDS)
    def remove(self, key, uid):
        if obj := self.objects.pop((key, key + uid), None):
            self.cache.update(key, obj, deleted=True)

    @rule(kept=st.sets(st.tuples(KEYS, UIDS)))
    def relist(self, kept):
        """Finish a list; the objects that are not in it were deleted."""
        listed = {key + uid for key, uid in kept}
        self.objects = {(key, uid): obj for (key, uid), obj in self.objects.items() if uid in listed}
        self.cache.finish_list(listed)

    @rule()
    def fail_cache(self):
        self.cache.fail(ClusterUnreachable("over"))
        assert all(recorder.is_over for recorder in self.active_handlers)
        assert not self.cache
        self.objects, self.active_handlers = {}, []

    @invariant()
    def handlers_know_objects(self):
        for recorder in self.active_handlers:
            if not recorder.is_over:
                expected = {uid: obj for (key, uid), obj in self.objects.items() if recorder.key in (None, key)}
                assert {uid: obj for uid, obj in recorder.known.items() if obj} == expected
                assert recorder.misses <= 1
        assert bool(self.cache) == any(not recorder.is_over for recorder in self.active_handlers)


TestObjectCacheModel = ObjectCacheModel.TestCase
TestObjectCacheModel.settings = settings(max_examples=100, stateful_step_count=30)
