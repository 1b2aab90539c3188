"""End of a complete training: the record, and then the merged model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from trainjob.errors import MergeError, OutputInUse
from trainjob.frameworks.durable_files import read_object
from trainjob.frameworks.fine_tuning.run_files import UNMERGED, read_record, sync_files, write_record
from trainjob.frameworks.fine_tuning.start import Start
from trainjob.frameworks.fine_tuning.training_run import TrainingRun
from trainjob.frameworks.transformers.checkpoints import discard_checkpoints

__all__ = ["finish", "record_training"]


def record_training(run: TrainingRun, start: Start, framework: str, summary: Mapping[str, Any]) -> None:
    """Record that the run is complete, whatever happens to the merge after it.

    Its checkpoints and their copies are removed, unless the request wants them.

    Args:
        run: the request.
        start: the decision at its start.
        framework: name of the framework, for the log.
        summary: last step, epoch and metrics; also the model's subfolders as `folders`, if it has any.

    Raises:
        OutputInUse: another training has taken the output folder meanwhile.
        OSError: a folder cannot be read or written.
    """
    record = _read_own_record(run, start)
    has_adapter = run.uses_lora and (run.output / "adapter_config.json").is_file()  # not that of another training
    if not has_adapter:
        _restore_cache_setting(run)
    sync_files(run.output, summary.get("folders") or ())
    record |= {"complete": True, "adapter": has_adapter, **summary}
    if has_adapter and run.merge:
        record[UNMERGED] = "the merge did not end"
    write_record(run.output, record)
    if not run.keep_checkpoints:
        discard_checkpoints(run.output, start.owner)
    if start.copier:
        start.copier.finish_training(keep=run.keep_checkpoints)
    print(f"{framework}: the training is complete: {json.dumps(dict(summary))}", flush=True)


def finish(run: TrainingRun, start: Start, framework: str) -> None:
    """Save the merged model if the request wants one that does not exist yet.

    It may be repeated: the trained adapter is on disk.

    Args:
        run: the request.
        start: the decision at its start.
        framework: name of the framework, for the log.

    Raises:
        OutputInUse: another training has taken the output folder meanwhile.
        MergeError: the adapter cannot be merged.
        OSError: a folder cannot be read or written.
    """
    record = _read_own_record(run, start)
    if UNMERGED not in record:
        return
    try:
        merged = _merge(run) if run.merge else "the adapter is not merged, as requested"
    except Exception as error:  # of peft, transformers or torch
        reason = error.message if isinstance(error, MergeError) else f"{type(error).__name__}: {error}"
        write_record(run.output, {**record, UNMERGED: reason})
        hint = 'export it with adapter="keep", or run this step again, which only merges'
        raise MergeError(f"the adapter is trained and saved, but not merged: {reason}", hint=hint) from error
    if run.merge:
        sync_files(run.output / "merged")
    del record[UNMERGED]
    write_record(run.output, record)
    print(f"{framework}: {merged}", flush=True)


def _merge(run: TrainingRun) -> str:
    from trainjob.frameworks.fine_tuning import merging  # it needs peft, which an image without LoRA may lack

    return merging.merge_adapter(run)


def _read_own_record(run: TrainingRun, start: Start) -> dict[str, Any]:
    record = read_record(run.output)
    if record.get("attempt", start.nonce) != start.nonce:
        raise OutputInUse(f"{run.output} has the record of {record.get('trained_by') or 'another training'} now")
    return record


def _restore_cache_setting(run: TrainingRun) -> None:
    """Set `use_cache` of the trained model to the base model's value.

    Gradient checkpointing sets it to false (transformers 5.23, trainer.py). A server of the model would then compute
    without a cache.
    """
    base, trained = (read_object(folder / "config.json") for folder in (run.model, run.output))
    if trained.get("use_cache") is not False or base.get("use_cache") is False:
        return
    del trained["use_cache"]
    if "use_cache" in base:
        trained["use_cache"] = base["use_cache"]
    text = json.dumps(trained, indent=2, ensure_ascii=False) + "\n"
    (run.output / "config.json").write_text(text, encoding="utf-8")
