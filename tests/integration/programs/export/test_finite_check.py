"""Weights that are NaN or infinite are not exported; every finite number is."""

from __future__ import annotations

import json
import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.export_runs import make_model, make_trl_run
from trainjob.errors import ExportError
from trainjob.programs.export.finite_check import FiniteCheck
from trainjob.programs.export.program import Export, export_model

PACKED = {"F16": "<e", "F32": "<f", "F64": "<d"}
LARGEST = {"F16": 65504.0, "F32": 3.4028234663852886e38, "F64": 1.7976931348623157e308}
BAD = (math.nan, -math.nan, math.inf, -math.inf)


def pack(dtype, number):
    if dtype == "BF16":
        return struct.pack("<f", number)[2:]
    return struct.pack(PACKED[dtype], number)


def safetensors(tensors):
    """Return a file from a list of (name, dtype, bytes)."""
    header, end, data = {}, 0, b""
    for name, dtype, content in tensors:
        header[name] = {"dtype": dtype, "shape": [], "data_offsets": [end, end + len(content)]}
        end, data = end + len(content), data + content
    raw = json.dumps(header).encode()
    return len(raw).to_bytes(8, "little") + raw + data


def check(content, size=7):
    finite = FiniteCheck("model.safetensors")
    for start in range(0, len(content), size):
        finite.update(content[start : start + size])


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("dtype", ["F16", "BF16", "F32", "F64"])
def test_a_number_that_is_not_finite_is_an_error_wherever_it_is(dtype, bad):
    good = pack(dtype, 0.5)
    for position in (0, 3, 9):
        numbers = [good] * 10
        numbers[position] = pack(dtype, bad)
        content = safetensors([("first", "I8", b"\x7f\xff\x80"), ("layer", dtype, b"".join(numbers))])
        for size in (1, 2, 5, 64, len(content)):
            with pytest.raises(ExportError, match=r"a number in layer is NaN or infinite"):
                check(content, size)


@given(
    st.lists(st.sampled_from(["F16", "F32", "F64"]).flatmap(lambda dtype: st.tuples(st.just(dtype), st.floats(-1, 1)))),
    st.integers(1, 100),
)
def test_finite_numbers_are_no_error(numbers, size):
    tensors = [(f"t{number}", dtype, pack(dtype, value) * 3) for number, (dtype, value) in enumerate(numbers)]
    check(safetensors([("odd", "U8", b"\xff"), *tensors]), size)


@pytest.mark.parametrize("dtype", PACKED)
def test_the_largest_number_is_finite(dtype):
    """Masks of attention are saved with it."""
    check(safetensors([("mask", dtype, pack(dtype, LARGEST[dtype]) + pack(dtype, -LARGEST[dtype]))]))


def test_other_types_may_have_any_bytes():
    check(safetensors([("quantized", "F8_E4M3", b"\xff\x7f"), ("ids", "I64", b"\xff" * 16)]))


@pytest.mark.parametrize("kind", ["model", "adapter"])
def test_a_diverged_model_is_not_exported(tmp_path, kind):
    make_model(tmp_path / "model")
    output = tmp_path / "output"
    make_trl_run(output, **({"adapter": True} if kind == "adapter" else {}))
    for path in output.rglob("*.safetensors"):
        path.write_bytes(safetensors([("layer.weight", "F32", pack("F32", 1.0) + pack("F32", math.nan))]))
    target = tmp_path / "export"
    with pytest.raises(ExportError, match=r"a number in layer\.weight is NaN") as raised:
        export_model(Export(output, tmp_path / "model", str(target)))
    assert "a lower learning rate" in raised.value.hint
    assert not list(tmp_path.glob("*export*"))
