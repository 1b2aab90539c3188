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
    """A subscriber: what it knows, and what it does when it is told something.

    Attributes:
        knows: the objects' states by uid.
        over: after that nothing may be told.
    """

    def __init__(self, machine, key, action):
        self.machine, self.key, self.action, self.known = machine, key, action, {}
        self.is_over, self.misses, self.handler = False, 0, None

    def __call__(self, change):
        assert not self.is_over, "told after its end"
        if change.error is not None:
            self.is_over = True
            return
        uid, state = change.found["metadata"]["uid"], None if change.gone else change.found
        assert self.known.get(uid, ...) != state, "told twice"
        self.known[uid] = state
        if self.action == "fail" and self.handler is not None:
            self.action = "has failed"
            raise ValueError("a mistake of its own")
        if self.action == "leave" and self.handler is not None:
            self.close()
        if self.action == "put others out":
            for other in self.machine.told:
                if other.does == "stay" and other is not self:
                    other.leave()
        if self.action == "bring another":
            self.action = "has brought one"
            self.machine.add(self.key, "stay")

    def close(self):
        self.handler.close()
        self.is_over = True

    def on_missing(self):
        assert not self.is_over
        self.misses += 1


class ObjectCacheModel(RuleBasedStateMachine):
    """An object cache beside what it must know."""

    handlers = Bundle("subscribers")

    def __init__(self):
        super().__init__()
        self.cache, self.objects, self.active_handlers, self.version = ObjectCache(), {}, [], 0

    def add_handler(self, key, action):
        told = RecordingHandler(self, key, action)
        handler = EventHandler(key, told, told.on_missing, self.cache.remove_handler)
        self.cache.add_handler(handler)
        told.handler = handler
        self.active_handlers.append(told)
        return told

    @rule(
        target=handlers,
        key=st.none() | KEYS,
        does=st.sampled_from(["stay", "stay", "fail", "leave", "put others out", "bring another"]),
    )
    def join_handler(self, key, action):
        return self.add_handler(key, action)

    @rule(told=consumes(handlers))
    def close_handler(self, handler):
        handler.leave()

    @rule(key=KEYS, uid=UIDS, new=st.booleans())
    def change(self, key, uid, new):
        self.version += new
        found = {"metadata": {"uid": key + uid, "resourceVersion": str(self.version)}}
        self.objects[key, key + uid] = found
        self.cache.update(key, found)

    @rule(key=KEYS, uid=UIDS)
    def remove(self, key, uid):
        if found := self.objects.pop((key, key + uid), None):
            self.cache.update(key, found, deleted=True)

    @rule(keep=st.sets(st.tuples(KEYS, UIDS)))
    def relist(self, kept):
        """What is not in the list is gone."""
        listed = {key + uid for key, uid in kept}
        self.objects = {(key, uid): found for (key, uid), found in self.objects.items() if uid in listed}
        self.cache.finish_list(listed)

    @rule()
    def fail_cache(self):
        self.cache.fail(ClusterUnreachable("over"))
        assert all(told.over for told in self.active_handlers)
        assert not self.cache
        self.objects, self.active_handlers = {}, []

    @invariant()
    def handlers_know_objects(self):
        for told in self.active_handlers:
            if not told.over:
                truth = {uid: found for (key, uid), found in self.objects.items() if told.key in (None, key)}
                assert {uid: found for uid, found in told.knows.items() if found} == truth
                assert told.misses <= 1
        assert bool(self.cache) == any(not told.over for told in self.active_handlers)


TestObjectCacheModel = ObjectCacheModel.TestCase
TestObjectCacheModel.settings = settings(max_examples=100, stateful_step_count=30)
