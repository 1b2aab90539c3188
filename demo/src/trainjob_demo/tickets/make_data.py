"""Write the demo's data set: support tickets, and the queue to which each ticket belongs.

    python make_data.py ROOT      ROOT/datasets/demo/tickets/{data,heldout,pairs,chats}/*.parquet

40 keywords x 10 sentences = 400 rows with the columns `input` and `output`. 60 rows are held out. The training rows
contain every keyword and every sentence, but not these 60 pairs. For each training row, two folders have conversations:

* `pairs`: one with the answer (`chosen`), and one with a useless answer (`rejected`).
* `chats`: the ticket as the message of a user (`prompt`), the answer as a message of the assistant (`completion`), and
  the answer as text (`answer`).
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

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


def make_tickets() -> list[tuple[str, str]]:
    """Return every (ticket, answer)."""
    rows = []
    for queue, keywords in QUEUES.items():
        for keyword in keywords.split():
            for sentence in SENTENCES:
                ticket = sentence.format(keyword)
                rows.append((ticket[0].upper() + ticket[1:], f"Route to {queue}."))
    return rows


def preference_pair(ticket: str, answer: str) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """Return the conversation with the answer, and the one with a useless answer."""
    question = {"role": "user", "content": ticket}
    good, bad = ([question, {"role": "assistant", "content": text}] for text in (answer, "I do not know."))
    return good, bad


def make_chat(ticket: str, answer: str) -> tuple[list[dict[str, str]], list[dict[str, str]], str]:
    """Return the ticket and the answer as messages, and the answer as text."""
    return [{"role": "user", "content": ticket}], [{"role": "assistant", "content": answer}], answer


def write(folder: Path, split: str, rows: list[Any], columns: tuple[str, ...] = ("input", "output")) -> None:
    import pyarrow
    import pyarrow.parquet

    folder.mkdir(parents=True, exist_ok=True)
    table = pyarrow.table(dict(zip(columns, map(list, zip(*rows, strict=True)), strict=True)))
    pyarrow.parquet.write_table(table, folder / f"{split}-00000-of-00001.parquet")
    print(f"{folder}: {len(rows)} rows")


def main(root: Path) -> None:
    rows = make_tickets()
    random.Random(7).shuffle(rows)  # noqa: S311 - no secret
    dataset = root / "datasets" / "demo" / "tickets"
    write(dataset / "data", "train", rows[HELD_OUT:])
    write(dataset / "heldout", "test", rows[:HELD_OUT])
    write(dataset / "pairs", "train", [preference_pair(*row) for row in rows[HELD_OUT:]], ("chosen", "rejected"))
    chats = [make_chat(*row) for row in rows[HELD_OUT:]]
    write(dataset / "chats", "train", chats, ("prompt", "completion", "answer"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
