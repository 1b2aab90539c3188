"""Tests of the credentials in a program's environment: cleaned once, and removed from each text."""

from __future__ import annotations

import os
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainjob.credentials import clean_environment, redact_credentials

NAMES = [
    "ACCESS_TOKEN",
    "HF_TOKEN",
    "REGISTRY_TOKEN",
    "MLFLOW_TRACKING_TOKEN",
    "MLFLOW_TRACKING_PASSWORD",
    "WANDB_API_KEY",
]
NAMES += ["ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "GOOGLE_CREDENTIALS", "AWS_SECRET_ACCESS_KEY"]
ODD_ENDS = {"line end": "\n", "Windows line end": "\r\n", "blank": " ", "control character": "\x01", "euro": "€"}


@given(
    name=st.sampled_from(NAMES),
    core=st.text(st.characters(codec="utf-8", exclude_characters="\x00 Bearhdvlugi"), min_size=8),
    end=st.sampled_from(list(ODD_ENDS.values())),
    form=st.sampled_from([str, repr, quote, quote_plus, lambda text: repr(text.encode()), str.strip]),
)
def test_no_form_of_a_credential_is_shown(name, core, end, form):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(name, core + end)
        shown = redact_credentials(f"Illegal header value b'Bearer {form(core + end)}'")
    assert shown == "Illegal header value b'Bearer ***'" or form(core.strip()) not in shown


@pytest.mark.parametrize("name", NAMES)
def test_white_space_around_a_credential_is_removed(name):
    environment = {name: " \tsecret-value\r\n", "PLAIN": " x "}
    assert clean_environment(environment) == ""
    assert environment == {name: "secret-value", "PLAIN": " x "}


@pytest.mark.parametrize("character", ["\x01", "€", "\n"])
def test_a_character_that_no_header_can_have_is_named_by_its_position(character):
    problem = clean_environment({"HF_TOKEN": f"hf_{character}secret"})
    assert problem == "the value of HF_TOKEN can't be sent: its character 4 is not printable ASCII"
    assert clean_environment({"GOOGLE_CREDENTIALS": '{\n"type": "service_account"}'}) == ""


def test_credentials_in_addresses_are_removed():
    assert redact_credentials("https://u:p@h/x, h.example: u:p@h") == "https://***@h/x, h.example: ***@h"
    assert "PATH" not in redact_credentials(os.environ.get("PATH", ""))


@pytest.mark.parametrize("name", ["token", "api_key", "X-Amz-Signature", "sig", "Signature", "client_secret"])
def test_a_query_parameter_that_denotes_a_secret_is_redacted(name):
    text = f"GET https://h/x?part=1&{name}=abc%2Fdef&max_tokens=5 failed"
    assert redact_credentials(text) == f"GET https://h/x?part=1&{name}=***&max_tokens=5 failed"
