"""Losses by the names of their classes, with the columns that their rows need and their arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["LOSSES", "NUMBERS", "Loss"]

NUMBERS = ("score", "label")
"""Columns with a number; the others have a text. The trainer finds them by these names."""
# The trainer takes the texts in this order, whatever their names are.
_RANKED = (("anchor", "positive", "negative"), ("anchor", "positive"))
_SCORED = (("sentence1", "sentence2", "score"),)
_LABELED = (("sentence1", "sentence2", "label"),)


@dataclass(frozen=True)
class Loss:
    """Columns and arguments of a loss.

    Attributes:
        columns: sets of columns, of which the rows need one completely; the first one that they have is used.
        arguments: type of each argument by its name.
        compares_rows: whether the loss of a row depends on the other rows of its batch.
    """

    columns: tuple[tuple[str, ...], ...]
    arguments: Mapping[str, str]
    compares_rows: bool = False


# Source: sentence-transformers 6.2, sentence_transformer/losses. Losses with weights of their own, such as SoftmaxLoss,
# are left out: a checkpoint does not have these weights, so a training could not resume.
LOSSES: Mapping[str, Loss] = {
    "MultipleNegativesRankingLoss": Loss(_RANKED, {"scale": "float"}, compares_rows=True),
    "CachedMultipleNegativesRankingLoss": Loss(
        _RANKED, {"scale": "float", "mini_batch_size": "int"}, compares_rows=True
    ),
    "TripletLoss": Loss(_RANKED[:1], {"triplet_margin": "float"}),
    "CoSENTLoss": Loss(_SCORED, {"scale": "float"}, compares_rows=True),
    "AnglELoss": Loss(_SCORED, {"scale": "float"}, compares_rows=True),
    "CosineSimilarityLoss": Loss(_SCORED, {}),
    "ContrastiveLoss": Loss(_LABELED, {"margin": "float"}),
    "OnlineContrastiveLoss": Loss(_LABELED, {"margin": "float"}, compares_rows=True),
}
"""The losses that a request may name."""
