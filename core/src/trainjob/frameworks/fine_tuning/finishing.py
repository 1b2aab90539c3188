"""End of a complete training: the merged model, and the record."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from trainjob.frameworks.fine_tuning.merging import save_merged_model
from trainjob.frameworks.fine_tuning.run_files import read_record, sync_files, write_record
from trainjob.frameworks.fine_tuning.training_run import TrainingRun

__all__ = ["finish"]


def finish(run: TrainingRun, framework: str, summary: Mapping[str, Any]) -> None:
    """Save the merged model if there is an adapter, and record that the run is complete.

    Args:
        run: the request.
        framework: name of the framework, for the log.
        summary: last step, epoch and metrics.

    Raises:
        OSError: a folder cannot be read or written.
    """
    has_adapter = (run.output / "adapter_config.json").is_file()
    if has_adapter and run.merge:
        folder = save_merged_model(run.model, run.output, run.method)
        print(f"{framework}: {folder} contains the merged model", flush=True)
    sync_files(run.output)
    write_record(run.output, {**read_record(run.output), "complete": True, "adapter": has_adapter, **summary})
    print(f"{framework}: the training is complete: {json.dumps(dict(summary))}", flush=True)
