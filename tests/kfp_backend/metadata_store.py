"""The C++ metadata store of the package ml-metadata as a gRPC server: `metadata_store.py ADDRESS:PORT DATABASE_FILE`.

Kubeflow Pipelines 2.17 runs the same store (gcr.io/tfx-oss-public/ml_metadata_store_server) with a MySQL database.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent import futures
from typing import Any

import grpc
from ml_metadata.metadata_store.pywrap.metadata_store_extension import metadata_store as store
from ml_metadata.proto import metadata_store_pb2, metadata_store_service_pb2

_THREADS = 8
_UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
_STATUS_CODES = {code.value[0]: code for code in grpc.StatusCode}
_SERVICE = metadata_store_service_pb2.DESCRIPTOR.services_by_name["MetadataStoreService"]


def main(address: str, database: str) -> None:
    """Serve the store until the process is killed."""
    config = metadata_store_pb2.ConnectionConfig()
    config.sqlite.filename_uri = database
    config.sqlite.connection_mode = metadata_store_pb2.SqliteMetadataSourceConfig.READWRITE_OPENCREATE
    opened = store.CreateMetadataStore(
        config.SerializeToString(), metadata_store_pb2.MigrationOptions().SerializeToString()
    )
    lock = threading.Lock()  # a connection of SQLite serves one call at a time
    handlers = {
        method.name: _method_handler(getattr(store, method.name), opened, lock)
        for method in _SERVICE.methods
        if hasattr(store, method.name)
    }
    server = grpc.server(futures.ThreadPoolExecutor(_THREADS), options=_UNLIMITED)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(_SERVICE.full_name, handlers)])
    server.add_insecure_port(address)
    server.start()
    print(f"serving {address}", flush=True)
    server.wait_for_termination()


def _method_handler(call: Callable[..., Any], opened: Any, lock: threading.Lock) -> Any:
    """Return the handler of one method, whose requests and responses stay serialized."""

    def handle(request: bytes, context: Any) -> Any:
        with lock:
            response, message, code = call(opened, request)
        if code:
            context.abort(_STATUS_CODES[code], message.decode())
        return response

    return grpc.unary_unary_rpc_method_handler(handle)


if __name__ == "__main__":
    main(*sys.argv[1:])
