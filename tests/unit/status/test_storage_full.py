"""Tests of failures because of a full disk.

The messages are real ones of Python 3.11 on a full tmpfs, with the libraries of the TRL environment of 2026-11: torch
2.13.0, safetensors 0.8.0, tokenizers 0.23.3, pyarrow 26.0.1, datasets 5.2.0, numpy 2.4.6, pip 26.3. Those about a quota
are from a preloaded library that lets the same writes fail with EDQUOT. Others have a comment with their source;
"composed" means that nobody saw the line as it is.
"""

from __future__ import annotations

import pytest

from trainjob.errors import CommandFailed, Interrupted, OutOfMemory, StorageFull
from trainjob.status import Category, Evidence, FinalPods, Phase, Verdict, build_outcome

JOB = {"metadata": {"name": "tune", "namespace": "ml", "uid": "u1"}}
TORCH_SAVE = """\
  File "/venv/lib/python3.11/site-packages/torch/serialization.py", line 1312, in _save
    zip_file.write_record(name, storage, num_bytes)
RuntimeError: basic_ios::clear: iostream error

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/workspace/train.py", line 25, in <module>
    torch.save({"a": torch.randn(1_000_000)}, path)
  File "/venv/lib/python3.11/site-packages/torch/serialization.py", line 1002, in save
    with _open_zipfile_writer(f) as opened_zipfile:
  File "/venv/lib/python3.11/site-packages/torch/serialization.py", line 834, in __exit__
    self.file_like.write_end_of_file()
RuntimeError: [enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534"""
SMALL_TORCH_SAVE = """\
Traceback (most recent call last):
  File "/workspace/train.py", line 2, in <module>
    torch.save({"a":torch.randn(10)},"/dev/full")
  File "/venv/lib/python3.11/site-packages/torch/serialization.py", line 1002, in save
    with _open_zipfile_writer(f) as opened_zipfile:
  File "/venv/lib/python3.11/site-packages/torch/serialization.py", line 834, in __exit__
    self.file_like.write_end_of_file()
RuntimeError: basic_ios::clear: iostream error"""
TORCHRUN = """\
      with _open_zipfile_writer(f) as opened_zipfile:
    File "/venv/lib/python3.11/site-packages/torch/serialization.py", line 834, in __exit__
      self.file_like.write_end_of_file()
  RuntimeError: [enforce fail at inline_container.cc:672] . unexpected pos 4160 vs 4052
  
============================================================"""  # noqa: W293 - as torchrun prints it
DATASETS = """\
OSError: [Errno 28] No space left on device

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/workspace/train.py", line 73, in <module>
    datasets.load_dataset("json", data_files="/workspace/d.jsonl", cache_dir="/workspace/hf")
  File "/venv/lib/python3.11/site-packages/datasets/load.py", line 1687, in load_dataset
    builder_instance.download_and_prepare(
  File "/venv/lib/python3.11/site-packages/datasets/builder.py", line 901, in download_and_prepare
    self._download_and_prepare(
  File "/venv/lib/python3.11/site-packages/datasets/builder.py", line 962, in _download_and_prepare
    self._prepare_split(split_generator, **prepare_split_kwargs)
  File "/venv/lib/python3.11/site-packages/datasets/builder.py", line 1702, in _prepare_split
    for job_id, done, content in self._prepare_split_single(
  File "/venv/lib/python3.11/site-packages/datasets/builder.py", line 1887, in _prepare_split_single
    raise DatasetGenerationError("An error occurred while generating the dataset") from e
datasets.exceptions.DatasetGenerationError: An error occurred while generating the dataset"""
PIP = """\
ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device

function: failed: packages could not be installed: pip ended with 1"""
MESSAGES = {
    "open().write": "OSError: [Errno 28] No space left on device",
    "open().write, quota": "OSError: [Errno 122] Disk quota exceeded",
    "open() without a free inode": "OSError: [Errno 28] No space left on device: '/workspace/output/c'",
    "shutil.copy": "OSError: [Errno 28] No space left on device: '/cache/big' -> '/workspace/output/a'",
    "shutil.copytree": "shutil.Error: [('/cache/f', '/workspace/t/f', \"[Errno 28] No space left on device: "
    "'/cache/f' -> '/workspace/t/f'\")]",
    "torch.save": TORCH_SAVE,
    "torch.save of a small object": SMALL_TORCH_SAVE,
    "torch.save, without a free inode": "RuntimeError: [enforce fail at inline_container.cc:747] . open file failed "
    "with strerror: No space left on device",
    "torch.save, last line only": "RuntimeError: [enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0",
    # https://github.com/SWivid/F5-TTS/issues/458, with an earlier torch
    "torch.save of an earlier version": "[rank0]: RuntimeError: [enforce fail at inline_container.cc:778] . "
    "PytorchStreamWriter failed writing file data.pkl: file write failed",
    "torch.save in the format before 1.6": "RuntimeError: write(): fd 3 failed with No space left on device",
    "transformers' Trainer with torchrun": TORCHRUN,
    "safetensors save_file and save_pretrained": "safetensors._safetensors_rust.SafetensorError: Error while "
    "serializing: I/O error: No space left on device (os error 28)",
    "safetensors, quota": "safetensors._safetensors_rust.SafetensorError: Error while serializing: I/O error: "
    "Disk quota exceeded (os error 122)",
    "tokenizers": "Exception: No space left on device (os error 28)",
    "pyarrow": "OSError: [Errno 28] Error writing bytes to file. Detail: [errno 28] No space left on device",
    "pyarrow, quota": "OSError: [Errno 122] Error writing bytes to file. Detail: [errno 122] Disk quota exceeded",
    "datasets": DATASETS,
    "datasets before it writes": "OSError: Not enough disk space. Needed: Unknown size (download: Unknown size, "
    "generated: Unknown size",
    "numpy.save": "OSError: 1000000 requested and 131056 written",
    "sqlite3": "sqlite3.OperationalError: database or disk is full",
    "pip": PIP,
    # huggingface_hub 1.27.0 and opendal 0.47.12
    "fetch from a hub": "fetch: failed: model demo/tiny can't be fetched: OSError: [Errno 28] No space left on device"
    "\n  -> the step may be repeated at any time",
    "fetch from a bucket": "fetch: failed: s3://models/t/v1 can't be fetched: OSError: [Errno 28] No space left on "
    "device\n  -> the step may be repeated at any time",
    # Composed: the program's prefix and the error of open()
    "export": "export: failed: [Errno 28] No space left on device",
    "cp": "cp: error writing '/workspace/probe.py': No space left on device",
    # Composed: Go's form of the error, and another container's source
    "a program in Go": "write /workspace/a: no space left on device",
    "another rank": "[node-1] OSError: [Errno 28] No space left on device",
}
NEAR_MISSES = {
    # An I/O error of the volume, and a limit of the file size
    "EIO": "OSError: [Errno 5] Input/output error",
    "EIO in pyarrow": "OSError: [Errno 5] Error writing bytes to file. Detail: [errno 5] Input/output error",
    "EFBIG": "OSError: [Errno 27] File too large",
    # A C++ program that reads a number from a text file, with exceptions of its stream enabled (libstdc++ 12)
    "iostream error of a read": "read: basic_ios::clear: iostream error",
    "damaged checkpoint": "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central "
    "directory",
    "folder of torch.save": "RuntimeError: Parent directory /nonexistent does not exist.",
    # https://github.com/pytorch/pytorch/issues/29186
    "unwritable file of torch.save": "RuntimeError: [enforce fail at inline_container.cc:319] . PytorchStreamWriter "
    "failed opening archive.",
    # /dev/shm of 1 MiB, which is memory
    "shared memory": "RuntimeError: unable to allocate shared memory(shm) for file </torch_24141_3261853649_0>: No "
    "space left on device (28)",
    "a semaphore": "    sl = self._semlock = _multiprocessing.SemLock(\n                         ^^^^^^^^^^^^^^^^^^^\n"
    "OSError: [Errno 28] No space left on device",
    # https://github.com/vllm-project/vllm/issues/11054 and others
    "NCCL": "Error while creating shared memory segment /dev/shm/nccl-VyXmXq (size 5767520), error: No space left on "
    "device (28)",
    # Composed: ENOSPC of inotify_add_watch means that a limit of the kernel is reached (inotify_add_watch(2))
    "inotify": "OSError: [Errno 28] inotify watch limit reached",
    "inotify in C": "inotify_add_watch(/workspace) failed: No space left on device",
    # Composed
    "CUDA": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
    "words of a script": "ValueError: there is no space left in the vocabulary",
    # https://github.com/ykdai/Flare7K/issues/25; the last line is composed, as in the next two
    "a save that is retried": "2024-08-21 17:43:49,126 WARNING: Save model error: [enforce fail at "
    "inline_container.cc:595] . unexpected pos 64 vs 0, remaining retry times: 1\nValueError: row 7 has no label",
    # huggingface_hub 2.4, file_download.py
    "a warning before a download": "UserWarning: Not enough free disk space to download the file. The expected file "
    "size is: 5.00 MB.\nValueError: row 7 has no label",
    "a warning about a cache": "UserWarning: no cache: [Errno 28] No space left on device\nValueError: row 7",
}


def fail(text, step="node", reason="Error", message=""):
    ended = {"terminated": {"exitCode": 1, "reason": reason, "message": message}}
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": step}
    pod = {"metadata": {"labels": labels}, "status": {"containerStatuses": [{"name": "node", "state": ended}]}}
    evidence = Evidence(FinalPods([pod]), log_tail=text.splitlines())
    return build_outcome(JOB, Verdict(Phase.FAILED, "FailedJobs"), evidence)


@pytest.mark.parametrize("step", ["node", "dataset-initializer"])
@pytest.mark.parametrize("text", MESSAGES.values(), ids=MESSAGES)
def test_a_full_disk_is_a_failure_of_its_own(text, step):
    outcome = fail(f"step 7 of 9\n{text}", step)
    assert (outcome.category, outcome.retryable) == (Category.STORAGE_FULL, False)
    with pytest.raises(StorageFull, match=r"-> free space .* larger PersistentVolumeClaim") as raised:
        outcome.raise_for_failure()
    assert not raised.value.retryable


@pytest.mark.parametrize("text", NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_another_error_is_not_a_full_disk(text):
    outcome = fail(f"step 7 of 9\n{text}")
    assert outcome.category is Category.APPLICATION
    with pytest.raises(CommandFailed):
        outcome.raise_for_failure()


@pytest.mark.parametrize(
    ("reason", "message", "category", "error"),
    [
        ("OOMKilled", "", Category.OUT_OF_MEMORY, OutOfMemory),
        ("Evicted", "The node was low on resource: ephemeral-storage.", Category.INFRASTRUCTURE, Interrupted),
    ],
)
def test_the_kubelets_reason_comes_before_the_log(reason, message, category, error):
    outcome = fail("OSError: [Errno 28] No space left on device", reason=reason, message=message)
    assert outcome.category is category
    with pytest.raises(error):
        outcome.raise_for_failure()
