"""Program that fetches the archive of a project from a store, and then starts the program that unpacks it.

    python -m trainjob.programs.code_fetch --uri s3://bucket/project-DIGEST.tar.gz --fetch N -- FETCH ... UNPACK ...

The first N words are the command of the fetch's program. In the others, the word ARCHIVE is the path of the archive.
Exit code 1: the archive was not fetched; a line that begins with `code: failed: ` has the reason.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from trainjob.job_variables import CODE_ARCHIVE
from trainjob.programs.store_fetch import fetch
from trainjob.version import check_version

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Replace this process with the command, or return the exit code 1."""
    given = check_version(sys.argv[1:] if arguments is None else arguments)
    end = given.index("--")
    parser = argparse.ArgumentParser(description="Fetch the archive of a project, and start a command.")
    parser.add_argument("--uri", required=True, help="address of the archive")
    parser.add_argument("--endpoint", default="", help="URL of the object store")
    parser.add_argument("--region", default="", help="region of an S3 bucket")
    parser.add_argument("--fetch", type=int, required=True, help="number of words of the fetch's command")
    options = parser.parse_args(given[:end])
    words = given[end + 1 :]
    folder = Path(tempfile.mkdtemp(prefix="trainjob-code-archive-"))
    env = {"ENDPOINT": options.endpoint, "REGION": options.region}
    try:
        fetch(options.uri, words[: options.fetch], folder, "code", kind="dataset", env=env)
        archive = folder / options.uri.rpartition("/")[2]
        command = [str(archive) if word == CODE_ARCHIVE else word for word in words[options.fetch :]]
        os.execvp(command[0], command)  # noqa: S606 - it is the step's own command
    except (RuntimeError, ImportError, OSError) as error:
        print(f"code: failed: {error}", file=sys.stderr, flush=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())
