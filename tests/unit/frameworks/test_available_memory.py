"""Available memory is the least of what the node and the container's control group leave."""

from __future__ import annotations

import pytest

from trainjob.frameworks.fine_tuning.available_memory import measure_available_memory

GIB = 1 << 30


@pytest.fixture
def measure(tmp_path):
    """Return a function that measures on a node with 8 GiB, for the files of a control group."""
    node = tmp_path / "meminfo"
    node.write_text(f"MemTotal:  {16 << 20} kB\nMemAvailable:   {8 << 20} kB\n")

    def measure_with(**files):
        for name, content in files.items():
            (tmp_path / f"memory.{name}").write_text(f"{content}\n")
        return measure_available_memory(tmp_path, node)

    return measure_with


def test_without_a_limit_the_nodes_memory_is_available(measure):
    assert measure() == 8 * GIB
    assert measure(max="max", current=GIB, stat="active_file 0\ninactive_file 0") == 8 * GIB


def test_cached_files_do_not_count_as_used(measure):
    stat = f"anon {GIB}\nactive_file {GIB}\ninactive_file {2 * GIB}"
    assert measure(max=6 * GIB, current=5 * GIB, stat=stat) == 4 * GIB


def test_a_limit_above_the_nodes_memory_makes_no_more_available(measure):
    assert measure(max=64 * GIB, current=GIB, stat="active_file 0\ninactive_file 0") == 8 * GIB


def test_the_kernels_own_files_are_read():
    assert measure_available_memory() > 0
