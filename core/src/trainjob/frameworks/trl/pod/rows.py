"""Checks of the rows for TRL's trainers, before torch is loaded."""

from __future__ import annotations

from collections.abc import Mapping

from trainjob.errors import InvalidSpec, Problem
from trainjob.frameworks.fine_tuning.checks import has_chat_template
from trainjob.frameworks.fine_tuning.row_checks import Choices, check_rows_of
from trainjob.frameworks.fine_tuning.training_run import TrainingRun

__all__ = ["TRL_COLUMNS", "check_rows", "rename_text_column"]

# Source: trl 1.16, docs/source/dataset_formats.md and the trainers; the same as in trl 1.15. Messages with `from`
# instead of `role` are converted only in the column `conversations` (data_utils.py, maybe_convert_to_chatml).
TRL_COLUMNS: Mapping[str, Choices] = {
    "sft": (("prompt", "completion"), ("messages",), ("text",), ("input_ids",)),
    "dpo": (("chosen", "rejected"),),
    "kto": (("prompt", "completion", "label"), ("chosen", "rejected")),
}
"""Sets of columns of the methods that several frameworks have, of which a method needs one completely."""


def check_rows(run: TrainingRun, choices: Choices, chat_template: str) -> None:
    """Refuse rows that the method cannot use.

    Args:
        run: the request.
        choices: sets of columns, of which the method needs one completely.
        chat_template: chat template that the request gives; empty for the tokenizer's own.

    Raises:
        InvalidSpec: a dataset does not exist, a column or a value is missing, or conversations have no chat template.
    """
    paths = filter(None, (run.dataset, run.eval_dataset))
    checked = [check_rows_of(path, run.method, run.columns, choices) for path in paths]
    if any(rows.has_conversations for rows in checked) and not chat_template and not has_chat_template(run.model):
        # Only these methods have the argument (trl 1.15 and 1.16).
        has_argument = run.method in ("sft", "reward")
        advice = "give chat_template_path in arguments" if has_argument else "use a model whose tokenizer has one"
        rule = f"the rows are conversations, but its tokenizer has no chat template: {advice}"
        raise InvalidSpec(Problem("model_path", str(run.model), rule))


def rename_text_column(choices: Choices, name: str) -> Choices:
    """Return sets of columns with another name for SFT's column `text`."""
    return [tuple(name if each == "text" else each for each in names) for names in choices]
