"""Order the sections of the site's search index, so that pages for users come first.

Usage: search_index.py SITE

The search of Zensical 0.0.73 has no boost. It sorts sections by the field that matches (title, then path, then text)
and by the position of the words in it, and leaves equal ones in the order of the index. So this program

* puts how-to guides and tutorials first,
* adds the words of `_WORDS` to the paths of pages,
* lets the name of a Python object match in the text instead of the title: else the class `S3ModelInitializer` comes
  before each page whose heading does not begin with "S3",
* removes attributes of classes, which the section of their class describes.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

_RANKS = {
    "faq/": 0,
    "how-to/": 1,
    "tutorials/": 2,
    "explanation/decisions/": 6,
    "explanation/": 5,
    "reference/python/": 7,
    "reference/": 4,
    "": 3,
}
"""The rank of each kind of pages; the first prefix that fits counts."""

_OBJECTS = ("reference/python/", "reference/airflow-api/", "reference/parameters/")
_WORDS = {
    "how-to/object-stores/": "S3, MinIO, GCS, Azure Blob Storage, Hugging Face Hub",
    "how-to/resume/": "Checkpoints, spot instances, preemption",
    "how-to/tracking/": "MLflow, Weights & Biases, TensorBoard",
    "how-to/failure-notifications/": "Mail, Slack, alerts",
    "how-to/platform/": "Permissions, RBAC, network policy",
    "how-to/air-gapped/": "Offline, mirrors, proxy",
    "how-to/preference-tuning/": "DPO, KTO, GRPO, reward model",
    "how-to/hardening/": "Hardening, restricted, Pod Security",
    "how-to/several-gpus/": "Multi node, distributed, FSDP, DeepSpeed, NCCL",
    "tutorials/every-night/": "Standalone, UI, schedule, CSV",
    "tutorials/lora-on-a-gpu/": "Hugging Face token, Secret",
}
"""Words that readers type and that no heading of the page has."""

_ATTRIBUTES = ("attribute</code>", "property</code>")
_WORD_JOINER = "\u2060"  # invisible; a word that starts with it does not match what a reader types


def rank(location: str) -> int:
    """Return the rank of the page to which a section belongs."""
    return next(rank for prefix, rank in _RANKS.items() if location.startswith(prefix))


def is_object(item: dict[str, Any]) -> bool:
    """Return whether a section describes one Python object."""
    return item["location"].startswith(_OBJECTS) and item["level"] > 2


def is_attribute(item: dict[str, Any]) -> bool:
    """Return whether a section describes an attribute of a class."""
    return is_object(item) and any(mark in item["title"] for mark in _ATTRIBUTES)


def with_name_in_text(item: dict[str, Any]) -> dict[str, Any]:
    """Return the section of an object with its name in the text, not in the title."""
    name = item["title"].split(" ")[0]
    title = re.sub(r"(?<![^\W_])(?=[^\W_])", _WORD_JOINER, name) + item["title"].removeprefix(name)
    return {**item, "title": title, "text": f"<p>{name}</p> {item['text']}"}


def with_words(item: dict[str, Any]) -> dict[str, Any]:
    """Return the first section of a page with the page's words in its path."""
    words = _WORDS.get(item["location"])
    return {**item, "path": [*item["path"], words]} if words else item


def main() -> int:
    """Rewrite the search index of a site; return the exit status."""
    path = Path(sys.argv[1]) / "search.json"
    index = json.loads(path.read_text("utf-8"))
    items = [
        with_name_in_text(item) if is_object(item) else with_words(item)
        for item in index["items"]
        if not is_attribute(item)
    ]
    index["items"] = sorted(items, key=lambda item: rank(item["location"]))
    path.write_text(json.dumps(index, ensure_ascii=False), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
