"""Tests of an informer's object cache without threads: the events that handlers receive."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from trainjob.client.object_cache import EventHandler, ObjectCache
from trainjob.errors import ClusterUnreachable

KEYS = st.sampled_from("ab")
UIDS = st.sampled_from("123")


class Told:
    """A subscriber: what it knows, and what it does when it is told something.

    Attributes:
        knows: the objects' states by uid.
        over: after that nothing may be told.
    """

    def __init__(self, machine, key, does):
        self.machine, self.key, self.does, self.knows = machine, key, does, {}
        self.over, self.misses, self.handler = False, 0, None

    def __call__(self, change):
        assert not self.over, "told after its end"
        if change.error is not None:
            self.over = True
            return
        uid, state = change.found["metadata"]["uid"], None if change.gone else change.found
        assert self.knows.get(uid, ...) != state, "told twice"
        self.knows[uid] = state
        if self.does == "fail" and self.handler is not None:
            self.does = "has failed"
            raise ValueError("a mistake of its own")
        if self.does == "leave" and self.handler is not None:
            self.leave()
        if self.does == "put others out":
            for other in self.machine.told:
                if other.does == "stay" and other is not self:
                    other.leave()
        if self.does == "bring another":
            self.does = "has brought one"
            self.machine.add(self.key, "stay")

    def leave(self):
        self.handler.close()
        self.over = True

    def missing(self):
        assert not self.over
        self.misses += 1


class Bookkeeping(RuleBasedStateMachine):
    """An object cache beside what it must know."""

    subscribers = Bundle("subscribers")

    def __init__(self):
        super().__init__()
        self.cache, self.truth, self.told, self.version = ObjectCache(), {}, [], 0

    def add(self, key, does):
        told = Told(self, key, does)
        handler = EventHandler(key, told, told.missing, self.cache.remove_handler)
        self.cache.add_handler(handler)
        told.handler = handler
        self.told.append(told)
        return told

    @rule(
        target=subscribers,
        key=st.none() | KEYS,
        does=st.sampled_from(["stay", "stay", "fail", "leave", "put others out", "bring another"]),
    )
    def join(self, key, does):
        return self.add(key, does)

    @rule(told=consumes(subscribers))
    def leave(self, told):
        told.leave()

    @rule(key=KEYS, uid=UIDS, new=st.booleans())
    def change(self, key, uid, new):
        self.version += new
        found = {"metadata": {"uid": key + uid, "resourceVersion": str(self.version)}}
        self.truth[key, key + uid] = found
        self.cache.update(key, found)

    @rule(key=KEYS, uid=UIDS)
    def remove(self, key, uid):
        if found := self.truth.pop((key, key + uid), None):
            self.cache.update(key, found, gone=True)

    @rule(keep=st.sets(st.tuples(KEYS, UIDS)))
    def list_anew(self, keep):
        """What is not in the list is gone."""
        listed = {key + uid for key, uid in keep}
        self.truth = {(key, uid): found for (key, uid), found in self.truth.items() if uid in listed}
        self.cache.finish_list(listed)

    @rule()
    def end(self):
        self.cache.fail(ClusterUnreachable("over"))
        assert all(told.over for told in self.told)
        assert not self.cache
        self.truth, self.told = {}, []

    @invariant()
    def everybody_knows_the_truth(self):
        for told in self.told:
            if not told.over:
                truth = {uid: found for (key, uid), found in self.truth.items() if told.key in (None, key)}
                assert {uid: found for uid, found in told.knows.items() if found} == truth
                assert told.misses <= 1
        assert bool(self.cache) == any(not told.over for told in self.told)


TestBookkeeping = Bookkeeping.TestCase
TestBookkeeping.settings = settings(max_examples=100, stateful_step_count=30)
