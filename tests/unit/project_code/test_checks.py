"""Tests of the checks before a project is packed: links, credentials, pointers of Git LFS and sizes."""

from __future__ import annotations

import base64
import json
import os

import pytest

from trainjob.errors import InvalidSpec
from trainjob.project_code import list_files
from trainjob.project_code.archive import MAX_BYTES
from trainjob.project_code.checks import check_files
from trainjob.project_code.file_credentials import find_credential
from trainjob.spec.credential_rules import _FORMATS, find_token

# Credentials are put together here, so that scanners of source code do not report this file.
WORD = "Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4zAb3dEf6hIj9kLm2nOp5q"
HF_TOKEN = "hf_" + "AbCdEfGhIj" * 3 + "AbCd"
PRIVATE_KEY = "-----BEGIN OPENSSH " + "PRIVATE KEY-----\nb3Bl\n"
TOKENS = [
    *("AKIA" + "Z7Q2" * 4, "ASIA" + "Z7Q2" * 4, HF_TOKEN, PRIVATE_KEY, "sk-ant-api03-" + WORD, "sk-proj-" + WORD),
    *("https://x/?X-Amz-Signature=" + "0a" * 32, "https://x/?X-Goog-Signature=" + "0a" * 32, "?sig=" + WORD[:43]),
    *("AccountKey=" + WORD, "SharedAccessKey=" + WORD, *(f"gh{kind}_" + WORD[:36] for kind in "pousr")),
    "github_pat_" + WORD + WORD,
    *(f"gl{kind}-" + WORD[:20] for kind in ("pat", "dt", "rt", "ptt", "soat", "cbt", "oas")),
    *("sk-" + WORD[:20] + "T3BlbkFJ" + WORD[:20], "AIza" + WORD[:35], "ya29." + WORD, "dapi" + "0a" * 16),
    *("xoxb-" + "123456789012-" * 2 + WORD[:24], "xapp-1-A0123456789-123-" + "0a" * 10, "nvapi-" + WORD),
    *("https://hooks.slack.com/services/T0ABCDEF1/B0ABCDEF1/" + WORD[:24], "dckr_pat_" + WORD[:27], "dckr_oat_" + WORD),
    *("pypi-AgE" + WORD + WORD, "eyJ" + WORD[:20] + ".eyJ" + WORD + "." + WORD, "bearer " + WORD[:24]),
    *("Authorization: Basic " + WORD[:16], "authorization: basic " + WORD[:16]),
]


def check(folder):
    check_files(folder, list_files(folder))


def test_every_format_of_a_token_has_an_example_here():
    assert {find_token(token) for token in TOKENS} == {*_FORMATS}


@pytest.mark.parametrize("token", TOKENS, ids=range(len(TOKENS)))
def test_a_token_in_any_text_file_is_refused_with_its_line_and_without_its_value(tmp_path, write, token):
    write(tmp_path, {"src/模型.py": f"# a\nx = 1\nvalue = {token!r}\n".replace("\\n", "\n")})
    with pytest.raises(InvalidSpec) as caught:
        check(tmp_path)
    message = str(caught.value)
    assert f"a folder with 'src/模型.py': line 3 contains {find_token(token)}, which everybody" in message
    assert ".trainjobignore or .gitignore" in message
    assert "Secret" in message
    assert token.strip()[-12:] not in message


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (".env", "HF_HOME=/cache\nexport DB_PASSWORD='s3cr3t'\n"),
        (".env.local", "\nWANDB_API_KEY=abc123\n"),
        ("config/prod.env", "\nAPI_TOKEN = abc\n"),
        (".netrc", "machine api.wandb.ai\n  login user password abc123\n"),
        ("sub/_netrc", "machine x login user\npassword abc123\n"),
        (".git-credentials", "\nhttps://me:abc@github.com\n"),
        (".pypirc", "[pypi]\npassword = abc123\n"),
        (".npmrc", "\n//registry.npmjs.org/:_authToken=abc123\n"),
        ("kaggle.json", '{"username": "me",\n"key": "0123456789abcdef"}'),
        (".aws/credentials", "[default]\naws_secret_access_key = abc/def+ghi\n"),
        ("id_rsa", "\n" + PRIVATE_KEY),
        ("key.pem", "\n-----BEGIN RSA " + "PRIVATE KEY-----\n"),
        ("kubeconfig", "users:\n- {name: a, user: {token: abc123}}\n"),
        ("prod.kubeconfig.yaml", "users:\n    token: abc123\n"),
        ("deploy/cluster.yaml", "users:\n    client-key-data: LS0tLS1CRUdJTiBQUklWQVRF\n"),
        (".docker/config.json", '{"auths": {"ghcr.io": {\n"auth": "bWU6cGFzc3dvcmQ="}}}'),
        (
            "service-account.json",
            '{"type": "service_account",\n"private_key": "-----BEGIN ' + 'PRIVATE KEY-----\\nMII"}',
        ),
        ("requirements.txt", "torch\npkg @ git+https://me:abc@github.com/x/pkg\n"),
        ("requirements/dev.in-requirements", "torch\n--extra-index-url https://me:abc@pypi.example.com/simple\n"),
        ("pyproject.toml", '[tool.uv]\nurl = "https://me:abc@pypi.example.com/simple"\n'),
        ("uv.lock", '\nsource = { registry = "https://me:abc@pypi.example.com/simple" }\n'),
        (".gitmodules", '[submodule "x"]\n\turl = https://me:abc@github.com/x/y\n'),
        ("conf/train.yaml", "a: 1\ndatabase: postgresql://me:abc@db/tickets\n"),
    ],
)
def test_files_with_credentials_are_refused(tmp_path, write, name, text):
    write(tmp_path, {name: text, "train.py": ""})
    with pytest.raises(InvalidSpec, match=rf"a folder with '{name}': line 2 contains "):
        check(tmp_path)
    write(tmp_path, {".trainjobignore": f"/{name}\n"})
    check(tmp_path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (".env.example", "HF_TOKEN=your_token_here\nDB_PASSWORD=changeme\n"),
        (".env", "HF_TOKEN=\nWANDB_API_KEY=${WANDB_API_KEY}\nHF_HOME=/cache\nMAX_TOKENS=100\nPAD_TOKEN=<pad>\n"),
        ("README.md", "export HF_TOKEN=hf_xxx\nexport WANDB_API_KEY=<your key>\nhttps://user:password@host/\n"),
        ("docs/login.md", "Authorization: Bearer $TOKEN\ncurl -H 'Authorization: Bearer <token>'\n"),
        ("train.py", 'parser.add_argument("--token")\ntoken = os.environ["HF_TOKEN"]\napi_key="EMPTY"\n'),
        ("tests/test_login.py", 'client = Client(password="test", api_key="sk-test")\n'),
        (
            "tokenizer.json",
            json.dumps({"added_tokens": [{"content": "<|im_end|>", "id": 2}], "token": "hf_"}, indent=1),
        ),
        ("vocab.json", json.dumps({"password": 1, "secret": 2, "task-risk-": 3, "ĠBearer": 4, "key": 5})),
        (
            "config.json",
            json.dumps({"model_type": "llama", "auth": None, "bos_token": "<s>", "pad_token_id": 0}, indent=1),
        ),
        ("data/chat.json", json.dumps({"value": '{"name": "create_user", "arguments": {"password": "password123"}}'})),
        ("docker-compose.yml", "environment:\n  POSTGRES_PASSWORD: postgres\n  password: changeme\n"),
        ("conf/train.yaml", "hf_token: null\napi_key: your-key\nurl: https://user@example.com:443/x\n"),
        ("job.yaml", "image: ghcr.io/a/b@sha256:" + "0a" * 32 + "\nurl: http://${USER}:${PASSWORD}@db/\n"),
        ("nb.ipynb", json.dumps({"cells": [{"source": ["!wandb login\n", "huggingface-cli login --token $T"]}]})),
        ("nb2.ipynb", json.dumps({"image/png": base64.b64encode(bytes(range(256)) * 40).decode()})),
        ("data.csv", "id,token\n1,eyJhbGciOi\n" * 100),
        ("weights.bin", b"\0" + HF_TOKEN.encode()),
        ("requirements.txt", "torch==2.9\npkg @ git+ssh://git@github.com/x/pkg\n--index-url https://pypi.org/simple\n"),
        ("server.pub", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI me@host\n-----BEGIN CERTIFICATE-----\n"),
        ("latin.py", "# caf\xe9".encode("latin-1")),
    ],
)
def test_what_only_looks_like_a_credential_travels(tmp_path, write, name, text):
    write(tmp_path, {name: text})
    check(tmp_path)


def test_a_token_at_the_end_of_a_large_text_is_found_and_data_over_a_mebibyte_is_not_read(tmp_path, write):
    write(tmp_path, {"a.jsonl": "x" * 1_000_000 + "\n" + HF_TOKEN})
    with pytest.raises(InvalidSpec, match="line 2"):
        check(tmp_path)
    write(tmp_path, {"a.jsonl": "x" * (1 << 20) + "\n" + HF_TOKEN})
    check(tmp_path)


def test_find_credential_needs_time_proportional_to_the_text():
    assert find_credential("a.py", "sk-" * 300_000 + "\n" + "eyJ" * 200_000) is None


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("a", "b.txt"),
        ("sub/a", "../b.txt"),
        ("sub/a", "./../sub/deep/../c.txt"),
        ("a", "sub"),
        ("sub/a", ".."),
        ("a", "through/c.txt"),  # by another link
        ("a", "chain"),
        ("a", "sub/"),
    ],
)
def test_links_to_files_and_folders_that_travel_are_allowed(tmp_path, write, name, target):
    write(tmp_path, {"b.txt": "", "sub/c.txt": "", "sub/deep/d.txt": ""})
    (tmp_path / "through").symlink_to("sub")
    (tmp_path / "chain").symlink_to("through/c.txt")
    (tmp_path / name).symlink_to(target)
    check(tmp_path)


@pytest.mark.parametrize(
    ("name", "target", "reason"),
    [
        ("a", "/data", "is absolute"),
        ("a", "../p/b.txt", "leaves the folder"),  # back into the folder, by its name on this machine
        ("sub/a", "../../etc/passwd", "leaves the folder"),
        ("a", "away/x", "leaves the folder"),  # by another link
        ("a", "a", "never ends"),
        ("a", "missing.txt", "does not travel"),
        ("a", "ignored.log", "does not travel"),
        ("sub/a", "b.txt", "does not travel"),
    ],
)
def test_links_that_would_be_broken_in_the_pod_are_refused(tmp_path, write, name, target, reason):
    project = write(tmp_path / "p", {"b.txt": "", "sub/c.txt": "", "ignored.log": "", ".gitignore": "*.log\naway\n"})
    (project / "sub" / "away").symlink_to("../..")
    (project / "away").symlink_to("..")
    (project / "sub" / "away").unlink()
    (project / name).symlink_to(target)
    if target.startswith("away"):
        write(project, {".gitignore": "*.log\n"})
    with pytest.raises(InvalidSpec) as caught:
        check(project)
    assert f"a folder with '{name}': the target of this link, '{target}', " in str(caught.value)
    assert reason in str(caught.value)


def test_a_pointer_of_git_lfs_is_refused(tmp_path, write):
    write(
        tmp_path, {"model.bin": "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0a" * 32 + "\nsize 12\n"}
    )
    with pytest.raises(InvalidSpec, match=r"'model.bin': it is a pointer of Git LFS .*`git lfs pull`"):
        check(tmp_path)


def test_one_error_lists_ten_problems_and_the_number_of_the_others(tmp_path, write):
    write(tmp_path, {f"{number:02}.py": HF_TOKEN for number in range(13)})
    (tmp_path / "link").symlink_to("/data")
    with pytest.raises(InvalidSpec) as caught:
        check(tmp_path)
    assert len(caught.value.problems) == 11
    assert "'link'" in str(caught.value.problems[0])
    assert "'08.py'" in str(caught.value.problems[9])
    assert "4 other files" in str(caught.value.problems[10])


def test_too_large_a_project_has_its_ten_largest_files(tmp_path, write):
    write(tmp_path, {f"{number}.bin": "" for number in range(12)})
    for number in range(12):
        os.truncate(tmp_path / f"{number}.bin", (number + 1) << 20)
    os.truncate(tmp_path / "0.bin", MAX_BYTES - sum((number + 1) << 20 for number in range(1, 12)))
    check(tmp_path)
    (tmp_path / "train.py").write_text("x")
    with pytest.raises(InvalidSpec) as caught:
        check(tmp_path)
    message = str(caught.value)
    assert "200.0 MiB are allowed" in message
    assert ".trainjobignore" in message
    listed = [line.split() for line in message.splitlines() if line.endswith(".bin")]
    assert [line[-1] for line in listed] == ["0.bin", *(f"{number}.bin" for number in range(11, 2, -1))]
    assert listed[1] == ["12.0", "MiB", "11.bin"]


@pytest.mark.parametrize("files", [{}, {".gitignore": "*\n", "train.py": ""}])
def test_a_project_without_files_is_refused(tmp_path, make_repository, write, files):
    make_repository(tmp_path / "p", {})
    write(tmp_path / "p", files)
    with pytest.raises(InvalidSpec, match="no file that travels"):
        check(tmp_path / "p")


def test_a_file_that_cannot_be_read_is_refused(unprivileged_folder, write):
    write(unprivileged_folder, {"closed.py": ""})
    (unprivileged_folder / "closed.py").chmod(0)
    with pytest.raises(InvalidSpec, match=r"a folder with 'closed.py': it cannot be read: Permission denied"):
        check(unprivileged_folder)


def test_read_only_and_empty_files_travel(tmp_path, write):
    write(tmp_path, {"a.py": "x", "empty": ""})
    (tmp_path / "a.py").chmod(0o400)
    check(tmp_path)
