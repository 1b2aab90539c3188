"""Kill a save at every file access and at moments between, and resume from what it left.

python killed_saves.py FOLDER full|lora

For each kill the program prints, as JSON, the last complete epoch (from 0). It also prints whether the loaded state,
and the saves of an attempt that resumes, are equal to those of an uninterrupted run. A child process for each kill
saves the third of four epochs.
"""

from __future__ import annotations

import contextlib
import filecmp
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from safetensors.torch import save_file

from trainjob.frameworks.checkpoint_owner import CheckpointOwner
from trainjob.frameworks.torchtune.pod.checkpointer import ResumableCheckpointer
from trainjob.frameworks.torchtune.pod.epochs import claim_epochs, state_file

OWNER = CheckpointOwner("mine", {})
EPOCHS, KILLED_EPOCH = 4, 2
KILL_TIMES = 8
FILE_EVENTS = ("open", "os.", "shutil.")
CONFIG = {"num_attention_heads": 2, "num_key_value_heads": 2, "hidden_size": 64, "vocab_size": 512}


class SavedTraining:
    """The saves of a training, without the training: every value of epoch N is N + 1."""

    def __init__(self, folder: Path, *, adapter: bool) -> None:
        self.model, self.adapter = folder / "model", adapter
        self.model.mkdir(parents=True, exist_ok=True)
        (self.model / "config.json").write_text(json.dumps(CONFIG))
        (self.model / "tokenizer.json").write_text("{}" * 10_000)
        base = {"model.embed_tokens.weight": torch.zeros(512, 64), "model.norm.weight": torch.zeros(64)}
        save_file(base, self.model / "model.safetensors")

    def open_checkpointer(self, output: Path, **resumed: object) -> ResumableCheckpointer:
        files = {"checkpoint_files": ["model.safetensors"], **resumed}
        checkpointer = ResumableCheckpointer(str(self.model), model_type="LLAMA3_2", output_dir=str(output), **files)
        self.loaded = checkpointer.load_checkpoint()
        return checkpointer

    def resume_checkpointer(self, output: Path, epoch: int, files: tuple[str, ...]) -> ResumableCheckpointer:
        state = {"recipe_checkpoint": str(state_file(output, epoch).relative_to(output))}
        weights = {"adapter_checkpoint": files[0]} if self.adapter else {"checkpoint_files": list(files)}
        return self.open_checkpointer(output, should_load_recipe_state=True, **state, **weights)

    def save(self, checkpointer: ResumableCheckpointer, epoch: int) -> None:
        value = float(epoch + 1)
        content = {
            "model": {"tok_embeddings.weight": torch.full((512, 64), value), "norm.scale": torch.full((64,), value)},
            "optimizer": {"moments": torch.full((200_000,), value)},
            "epochs_run": epoch + 1,
        }
        if self.adapter:
            names = [f"layers.0.attn.q_proj.lora_{half}.weight" for half in "ab"]
            content["adapter"] = dict(zip(names, (torch.full((4, 64), value), torch.full((64, 4), value)), strict=True))
            content["adapter_config"] = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj"]}
        checkpointer.save_checkpoint(content, epoch=epoch, intermediate_checkpoint=epoch + 1 < EPOCHS)

    def has_loaded_epoch(self, epoch: int) -> bool:
        """Return whether all loaded values are those of this epoch."""
        parts = [self.loaded["adapter" if self.adapter else "model"], self.loaded["optimizer"]]
        values = {float(number) for part in parts for tensor in part.values() for number in tensor.unique()}
        return values == {epoch + 1.0} and self.loaded["epochs_run"] == epoch + 1


def kill_at(point: int) -> Callable[[str, object], None]:
    remaining = point

    def count(event: str, _: object) -> None:
        nonlocal remaining
        remaining -= event.startswith(FILE_EVENTS)
        if remaining < 0 and event != "os.kill":
            os.kill(os.getpid(), signal.SIGKILL)

    return count


def start_child(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        with contextlib.redirect_stdout(sys.stderr):
            try:
                work()
                os._exit(0)
            except BaseException as failure:  # noqa: BLE001 - the parent reports it
                print(repr(failure), file=sys.stderr, flush=True)
                os._exit(1)
    return pid


def kill_saves(save: Callable[[], None], restore: Callable[[], None]) -> Iterator[str]:
    """Kill a save in a child process, and yield the name of each kill.

    First the child is killed at its n-th file access, for each n, until the save completes. Then it is killed at
    fractions of the save's duration.
    """
    point, status, took = 0, 1, 0.0
    while status != 0:
        restore()

        def hooked(point: int = point) -> None:
            sys.addaudithook(kill_at(point))
            save()

        began = time.monotonic()
        status = os.waitpid(start_child(hooked), 0)[1]
        if status not in (0, signal.SIGKILL):
            raise SystemExit(f"the save at point {point} ended with {status}")
        took = time.monotonic() - began
        yield f"file access {point}"
        point += 1
    for part in range(KILL_TIMES):
        restore()
        pid = start_child(save)
        time.sleep(took * part / KILL_TIMES)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        yield f"time {part}"


def has_same_files(one: Path, other: Path) -> bool:
    names = sorted(str(path.relative_to(one)) for path in one.rglob("*") if path.is_file())
    other_names = sorted(str(path.relative_to(other)) for path in other.rglob("*") if path.is_file())
    return names == other_names and filecmp.cmpfiles(one, other, names, shallow=False)[1:] == ([], [])


def main(folder: Path, kind: str) -> None:
    run = SavedTraining(folder, adapter=kind == "lora")
    unbroken, before, output = folder / "unbroken", folder / "before", folder / "output"
    for folder_of_run, epochs in ((unbroken, EPOCHS), (before, KILLED_EPOCH)):
        OWNER.record(folder_of_run)
        checkpointer = run.open_checkpointer(folder_of_run)
        for epoch in range(epochs):
            run.save(checkpointer, epoch)

    def restore() -> None:
        shutil.rmtree(output, ignore_errors=True)
        shutil.copytree(before, output)

    def save() -> None:
        run.save(run.open_checkpointer(output), KILLED_EPOCH)

    found: list[dict[str, object]] = []
    for label in kill_saves(save, restore):
        with contextlib.redirect_stdout(sys.stderr):
            last = claim_epochs(output, OWNER, adapter=run.adapter, epochs=EPOCHS)
        if last is None:
            found.append({"kill": label, "epoch": None})
            continue
        checkpointer = run.resume_checkpointer(output, last.number, last.files)
        loaded = run.has_loaded_epoch(last.number)
        for later in range(last.number + 1, EPOCHS):
            run.save(checkpointer, later)
        same_files = all(
            has_same_files(unbroken / f"epoch_{number}", output / f"epoch_{number}") for number in range(EPOCHS)
        )
        found.append({"kill": label, "epoch": last.number, "loaded": loaded, "same_files": same_files})
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
