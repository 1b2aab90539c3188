"""The only package that communicates with the Kubernetes API.

It has the connection, the requests, the shared informers, the logs and the diagnostics.
"""

from trainjob.client.backoff import Backoff
from trainjob.client.cluster import Cluster
from trainjob.client.cluster_identity import ClusterIdentity
from trainjob.client.connection import Connection
from trainjob.client.diagnostics import list_warning_events, list_warning_lines, read_failure_log_tail
from trainjob.client.informer import InformerState, SharedInformer
from trainjob.client.log_follower import LogFollower
from trainjob.client.log_lines import LogLine, LogNotice
from trainjob.client.log_queue import SkippedLines
from trainjob.client.log_rate import RateLimit
from trainjob.client.log_writer import LogChannel, LogWriter
from trainjob.client.object_cache import EventHandler, ObjectEvent
from trainjob.client.shared_clusters import connect, shared_cluster
from trainjob.client.written_times import SETTLE_SECONDS, STORE_SECONDS, WrittenTimes
from trainjob.status.diagnostics import event_time

__all__ = [
    "SETTLE_SECONDS",
    "STORE_SECONDS",
    "Backoff",
    "Cluster",
    "ClusterIdentity",
    "Connection",
    "EventHandler",
    "InformerState",
    "LogChannel",
    "LogFollower",
    "LogLine",
    "LogNotice",
    "LogWriter",
    "ObjectEvent",
    "RateLimit",
    "SharedInformer",
    "SkippedLines",
    "WrittenTimes",
    "connect",
    "event_time",
    "list_warning_events",
    "list_warning_lines",
    "read_failure_log_tail",
    "shared_cluster",
]
