"""Program for the tests of checkpoint copies, which runs with the Trainer's libraries.

Usage: copying_program.py ADDRESS ENDPOINT upload|find|download|remove [FOLDER [STEP]]
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from trainjob.addresses import parse_destination
from trainjob.frameworks.checkpoint_copies.copies import CheckpointCopies
from trainjob.programs.fetch.bucket import create_bucket


def main(address: str, endpoint: str, action: str, *words: str) -> object:
    place = parse_destination(address)
    store = create_bucket(place, os.environ, endpoint, "").create_operator(f"/{place.path}/")
    copies = CheckpointCopies(store)
    if action == "upload":
        return copies.upload(Path(words[0]))
    if action == "find":
        return copies.find_newest()
    if action == "download":
        return copies.download(int(words[1]), Path(words[0]))
    copies.remove_all()
    return None


if __name__ == "__main__":
    print(main(*sys.argv[1:]))
