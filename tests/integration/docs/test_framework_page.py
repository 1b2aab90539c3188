"""The page "Add a training framework" shows the files of the example package."""

from __future__ import annotations

import pytest

from tests.support.code_blocks import ALL_BLOCKS
from tests.support.framework_packages import SOURCE

BLOCKS = [block for block in ALL_BLOCKS if block.page == "docs/how-to/add-a-framework.md" and block.title]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.title)
def test_a_block_is_a_part_of_the_package(block):
    assert block.text in (SOURCE / block.title).read_text(encoding="utf-8")
