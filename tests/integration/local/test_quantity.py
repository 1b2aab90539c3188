"""Tests of quantities, with results of k8s.io/apimachinery 0.36."""

from __future__ import annotations

import pytest

from trainjob_local.quantity import canonicalize, parse_quantity, round_up

TABLE = """
0.5 500m    2000m 2         1500M 1500M   1000 1k       1073741824 1073741824   0.0001 100u   0.5m 500u
0 0         0Gi 0           0.5Gi 512Mi   1.5Gi 1536Mi  1024Mi 1Gi              1023Ki 1023Ki 1500Mi 1500Mi
0.5Ki 512   1.5Ki 1536      0.1Ki 102400m -0.5Gi -512Mi 0.1Gi 107374182400m     0.1n 1n       12E 12E
1e3 1e3     1e4 10e3        1e-1 100e-3   1e21 1e21
"""
_WORDS = TABLE.split()
WRITTEN = dict(zip(_WORDS[::2], _WORDS[1::2], strict=True))


@pytest.mark.parametrize(("given", "written"), WRITTEN.items())
def test_the_canonical_form(given, written):
    assert canonicalize(given) == written
    assert canonicalize(written) == written


@pytest.mark.parametrize("amount", ["0.1n", "1e-10"])
def test_less_than_a_billionth_is_rounded_up(amount):
    assert parse_quantity(canonicalize(amount)) == parse_quantity("1n")


@pytest.mark.parametrize("given", [value for value in WRITTEN if value != "0.1n"])
def test_the_canonical_form_is_the_same_amount(given):
    assert parse_quantity(canonicalize(given)) == parse_quantity(given)


def test_numbers_are_written_as_text():
    assert (canonicalize(2), canonicalize("2")) == ("2", "2")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("500m", 1), ("1500m", 2), ("2", 2), (3, 3), ("1e3", 1000), ("20Gi", 20 * 2**30), ("0.5k", 500), ("-1", -1)],
)
def test_whole_numbers_are_rounded_up(text, expected):
    assert round_up(text) == expected


@pytest.mark.parametrize("given", ["", "lots", "1x", "Gi", "1 Gi", "1e", "1KiB", "0x1"])
def test_other_texts_are_rejected(given):
    with pytest.raises(ValueError, match="is not a Kubernetes quantity"):
        canonicalize(given)
