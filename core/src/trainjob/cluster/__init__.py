"""The only room that talks to Kubernetes: connect, ask, watch, follow logs, gather evidence."""

from trainjob.cluster.api import Cluster
from trainjob.cluster.audience import Change, Subscription
from trainjob.cluster.backoff import Backoff
from trainjob.cluster.connection import Connection
from trainjob.cluster.diagnosis import last_lines, warning_events, warnings_about
from trainjob.cluster.log_lines import LogLine
from trainjob.cluster.log_rate import RateLimit
from trainjob.cluster.log_writer import LogChannel, LogWriter
from trainjob.cluster.logs import LogFollower
from trainjob.cluster.shared import connect, shared_cluster
from trainjob.cluster.watch import Feed
from trainjob.status.findings import event_time

__all__ = [
    "Backoff",
    "Change",
    "Cluster",
    "Connection",
    "Feed",
    "LogChannel",
    "LogFollower",
    "LogLine",
    "LogWriter",
    "RateLimit",
    "Subscription",
    "connect",
    "event_time",
    "last_lines",
    "shared_cluster",
    "warning_events",
    "warnings_about",
]
