"""Writes the demo's data set: support tickets, and the queue that each belongs to.

    python make_data.py ROOT      ROOT/datasets/demo/tickets/{data,heldout}/*.parquet

40 keywords x 10 sentences = 400 rows with the columns `input` and `output`. 60 of them are held out: every keyword and
every sentence is trained on, but not these pairs.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

QUEUES = {
    "billing": "invoice refund payment receipt charge discount tax subscription",
    "network": "router wifi vpn firewall cable latency proxy dns",
    "account": "password login username profile signup badge token lockout",
    "hardware": "laptop keyboard monitor printer battery charger mouse webcam",
    "delivery": "parcel courier shipment tracking address pickup package customs",
}
SENTENCES = (
    "I have a question about my {}.",
    "The {} does not work.",
    "Please help, {} problem!",
    "My {} is wrong.",
    "Who can look at the {}?",
    "There is an issue with the {}.",
    "Can you fix the {} today?",
    "Urgent: {}",
    "{} again, third time this week.",
    "Something is off with my {}.",
)
HELD_OUT = 60


def tickets() -> list[tuple[str, str]]:
    """Every (ticket, answer)."""
    rows = []
    for queue, keywords in QUEUES.items():
        for keyword in keywords.split():
            for sentence in SENTENCES:
                ticket = sentence.format(keyword)
                rows.append((ticket[0].upper() + ticket[1:], f"Route to {queue}."))
    return rows


def write(folder: Path, split: str, rows: list[tuple[str, str]]) -> None:
    import pyarrow
    import pyarrow.parquet

    folder.mkdir(parents=True, exist_ok=True)
    table = pyarrow.table({"input": [ticket for ticket, _ in rows], "output": [answer for _, answer in rows]})
    pyarrow.parquet.write_table(table, folder / f"{split}-00000-of-00001.parquet")
    print(f"{folder}: {len(rows)} rows")


def main(root: Path) -> None:
    rows = tickets()
    random.Random(7).shuffle(rows)  # noqa: S311 - no secret
    dataset = root / "datasets" / "demo" / "tickets"
    write(dataset / "data", "train", rows[HELD_OUT:])
    write(dataset / "heldout", "test", rows[:HELD_OUT])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
