"""The only room that talks to Kubernetes: connect, ask, watch, follow logs, gather evidence."""

from trainjob.cluster.api import Cluster, connect, shared_cluster
from trainjob.cluster.backoff import Backoff
from trainjob.cluster.connection import Connection
from trainjob.cluster.diagnosis import last_lines, warnings_about
from trainjob.cluster.logs import LogFollower, LogLine
from trainjob.cluster.watch import Change, Feed, Subscription

__all__ = [
    "Backoff",
    "Change",
    "Cluster",
    "Connection",
    "Feed",
    "LogFollower",
    "LogLine",
    "Subscription",
    "connect",
    "last_lines",
    "shared_cluster",
    "warnings_about",
]
