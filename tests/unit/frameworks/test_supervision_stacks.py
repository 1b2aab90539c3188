"""Places in the stacks of real processes, as `faulthandler` of several versions of Python writes them."""

from __future__ import annotations

import pytest

from trainjob.frameworks.supervision.stacks import parse_stacks

SITE = "/opt/conda/lib/python3.11/site-packages"
LIB = "/opt/conda/lib/python3.11"
ALL_REDUCE = f"""Thread 0x00007f1c2bfff640 (most recent call first):
  File "{LIB}/threading.py", line 331 in wait
  File "{LIB}/threading.py", line 629 in wait
  File "{SITE}/tqdm/_monitor.py", line 60 in run
  File "{LIB}/threading.py", line 1045 in _bootstrap_inner

Current thread 0x00007f1d4a3e2740 (most recent call first):
  File "{SITE}/torch/distributed/distributed_c10d.py", line 2810 in all_reduce
  File "{SITE}/torch/distributed/c10d_logger.py", line 81 in wrapper
  File "/workspace/train.py", line 40 in train
  File "/workspace/train.py", line 52 in <module>
"""
BACKWARD = f"""Current thread 0x00007f1d4a3e2740 (most recent call first):
  File "{SITE}/torch/autograd/graph.py", line 825 in _engine_run_backward
  File "{SITE}/torch/autograd/__init__.py", line 347 in backward
  File "{SITE}/torch/_tensor.py", line 581 in backward
  File "{SITE}/accelerate/accelerator.py", line 2473 in backward
  File "{SITE}/transformers/trainer.py", line 4071 in training_step
"""
LOADER = f"""Current thread 0x00007f1d4a3e2740 [python] (most recent call first):
  File "{LIB}/selectors.py", line 415 in select
  File "{LIB}/multiprocessing/connection.py", line 948 in wait
  File "{LIB}/multiprocessing/connection.py", line 440 in _poll
  File "{LIB}/multiprocessing/queues.py", line 113 in get
  File "{SITE}/torch/utils/data/dataloader.py", line 1275 in _try_get_data
  File "{SITE}/torch/utils/data/dataloader.py", line 1448 in _next_data
  File "{SITE}/torch/utils/data/dataloader.py", line 732 in __next__
  File "{SITE}/accelerate/data_loader.py", line 567 in __iter__
"""
OWN_DATASET = f"""Current thread 0x00007f1d4a3e2740 (most recent call first):
  File "{LIB}/socket.py", line 718 in readinto
  File "/workspace/data/rows.py", line 12 in __getitem__
  File "{SITE}/torch/utils/data/_utils/fetch.py", line 54 in fetch
  File "{SITE}/torch/utils/data/dataloader.py", line 788 in _next_data
  File "{SITE}/torch/utils/data/dataloader.py", line 732 in __next__
"""


@pytest.mark.parametrize(
    ("text", "place", "collective"),
    [
        (ALL_REDUCE, "all_reduce (torch/distributed/distributed_c10d.py:2810)", "all_reduce"),
        (BACKWARD, "_engine_run_backward (torch/autograd/graph.py:825)", "backward"),
        (LOADER, "DataLoader.__next__", ""),
        (OWN_DATASET, "__getitem__ (data/rows.py:12)", ""),
        ("", "", ""),
        ("Current thread 0x0000000000000001 (most recent call first):\n  <no Python frame>\n", "", ""),
    ],
)
def test_the_place_and_the_collective_operation(text, place, collective):
    stacks = parse_stacks(text, 0x7F1D4A3E2740)
    assert (stacks.place, stacks.collective) == (place, collective)


def test_the_main_thread_is_found_among_others():
    other = ALL_REDUCE.replace("Current thread", "Thread")
    begin, end = other.split("\n\n")
    text = f"{end}\nCurrent {begin[0].lower()}{begin[1:]}\n"  # as if another thread got the signal
    assert parse_stacks(text, 0x7F1D4A3E2740).collective == "all_reduce"
