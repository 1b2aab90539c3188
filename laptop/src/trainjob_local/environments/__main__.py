"""Create an environment in a process of its own: `python -m trainjob_local.environments LOCK`.

The kubelet runs this program, so that a creation can be ended like a container, with all its processes. LOCK is the
JSON of an `EnvironmentLock`. Standard output has uv's lines. If the creation fails, its last line is
the error, in JSON.
"""

from __future__ import annotations

import json
import signal
import sys

from trainjob_local.environments import EnvironmentLock, EnvironmentNotCreated, create_environment


def main(text: str) -> int:
    """Create the environment of a lock; return the exit code, which is 1 if that failed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that an incomplete environment is removed
    try:
        create_environment(EnvironmentLock.from_json(text), report=lambda line: print(line, flush=True))
    except EnvironmentNotCreated as error:
        print(json.dumps(str(error)), flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
