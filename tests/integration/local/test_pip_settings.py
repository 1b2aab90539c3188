"""uv uses the package index that pip's settings name."""

from __future__ import annotations

import pytest

from trainjob_local.environments.pip_settings import read_pip_settings
from trainjob_local.environments.uv import uv_environment


@pytest.fixture
def home(tmp_path):
    (tmp_path / ".config" / "pip").mkdir(parents=True)
    return tmp_path


def read(home, **variables):
    return read_pip_settings({"HOME": str(home), "XDG_CONFIG_DIRS": str(home / "xdg"), **variables})


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, {}),
        ({"PIP_INDEX_URL": "https://a/simple"}, {"UV_DEFAULT_INDEX": "https://a/simple"}),
        (
            {"PIP_EXTRA_INDEX_URL": "https://a/simple https://b/simple"},
            {"UV_INDEX": "https://a/simple https://b/simple", "UV_INDEX_STRATEGY": "unsafe-best-match"},
        ),
        ({"PIP_FIND_LINKS": "/wheels https://a/wheels"}, {"UV_FIND_LINKS": "/wheels,https://a/wheels"}),
        ({"PIP_NO_INDEX": "1"}, {"UV_NO_INDEX": "1"}),
        ({"PIP_CERT": "/ca.pem"}, {"SSL_CERT_FILE": "/ca.pem"}),
        ({"PIP_TRUSTED_HOST": "a b"}, {"UV_INSECURE_HOST": "a b"}),
        ({"PIP_INDEX_URL": ""}, {}),
    ],
)
def test_variables_of_pip_become_variables_of_uv(home, variables, expected):
    assert read(home, PIP_CONFIG_FILE="/dev/null", **variables) == expected


@pytest.mark.parametrize("name", ["UV_DEFAULT_INDEX", "UV_INDEX_URL"])
def test_a_variable_of_uv_wins(home, name):
    variables = {"HOME": str(home), "PIP_INDEX_URL": "https://pip/simple", name: "https://uv/simple"}
    found = uv_environment({**variables, "PIP_CONFIG_FILE": "/dev/null"})
    assert {found.get("UV_DEFAULT_INDEX"), found.get("UV_INDEX_URL")} - {None} == {"https://uv/simple"}


@pytest.mark.parametrize(("name", "separator"), [("PIP_FIND_LINKS", " "), ("UV_FIND_LINKS", ",")])
def test_folders_with_wheels_are_relative_to_the_users_folder(home, monkeypatch, name, separator):
    monkeypatch.chdir(home)
    links = separator.join(["wheels", "/more/wheels", "https://a/wheels"])
    found = uv_environment({"HOME": str(home), "PIP_CONFIG_FILE": "/dev/null", name: links})
    assert found["UV_FIND_LINKS"] == f"{home}/wheels,/more/wheels,https://a/wheels"


def test_files_of_pip_are_read_in_pips_order(home):
    (home / ".config" / "pip" / "pip.conf").write_text(
        "[global]\nindex-url = https://user/simple\nfind-links =\n    /one\n    /two\n[install]\nno-index = true\n"
    )
    named = home / "named.conf"
    named.write_text("[global]\nindex-url = https://named/simple\n")
    assert read(home)["UV_DEFAULT_INDEX"] == "https://user/simple"
    assert read(home)["UV_FIND_LINKS"] == "/one,/two"
    assert read(home)["UV_NO_INDEX"] == "true"
    assert read(home, PIP_CONFIG_FILE=str(named))["UV_DEFAULT_INDEX"] == "https://named/simple"
    found = read(home, PIP_CONFIG_FILE=str(named), PIP_INDEX_URL="https://variable/simple")
    assert found["UV_DEFAULT_INDEX"] == "https://variable/simple"


def test_a_broken_file_of_pip_is_ignored(home):
    (home / ".config" / "pip" / "pip.conf").write_text("no section\n")
    assert "UV_DEFAULT_INDEX" not in read(home)


def test_variables_that_would_select_another_environment_are_not_inherited(home):
    found = uv_environment({"HOME": str(home), "VIRTUAL_ENV": "/v", "UV_TORCH_BACKEND": "cpu", "UV_OFFLINE": "1"})
    assert {"VIRTUAL_ENV", "UV_TORCH_BACKEND"}.isdisjoint(found)
    assert found["UV_OFFLINE"] == "1"
