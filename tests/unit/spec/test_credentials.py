"""Tests of what counts as a credential: tables of values that are refused, warned about and allowed."""
# mypy: disable-error-code="call-arg"

from __future__ import annotations

import re
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainjob import (
    CustomTrainer,
    CustomTrainerContainer,
    ExportModel,
    FineTune,
    InvalidSpec,
    MLflow,
    TrainJob,
    TrainJobManifest,
)
from trainjob.frameworks.torchtune import TorchTuneConfig
from trainjob.manifest import build_trainjob
from trainjob.spec.credential_checks import check_command, check_document, check_text, check_values
from trainjob.spec.literal_credentials import redact_literals
from trainjob.spec.redaction import redact

# Tokens are put together here, so that scanners of source code do not report this file.
WORD = "Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4zAb3dEf6hIj9kLm2nOp5q"
TOKENS = {
    "an AWS access key": "AKIA" + "Z7Q2" * 4,
    "a temporary AWS access key": "ASIA" + "Z7Q2" * 4,
    "a presigned URL": "https://b.s3.amazonaws.com/x?X-Amz-Expires=60&X-Amz-Signature=" + "0a" * 32,
    "a signed URL of Google": "https://storage.googleapis.com/b/x?X-Goog-Signature=" + "0a" * 64,
    "a signed URL of Azure": "https://a.blob.core.windows.net/c?sv=2024-11-04&se=2027-01-01&sig=" + WORD[:43] + "%3D",
    "a SAS alone": "?sig=" + WORD[:43] + "%3D",
    "a connection string": "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=" + WORD + "==",
    "a shared access key": "Endpoint=sb://a/;SharedAccessKey=" + WORD[:43] + "=",
    "a GitHub token": "ghp_" + WORD[:36],
    "a GitHub token of an app": "ghs_" + WORD[:36],
    "a fine-grained GitHub token": "github_pat_" + WORD + WORD[:30],
    "a GitLab token": "glpat-" + WORD[:20],
    "a GitLab deploy token": "gldt-" + WORD[:20],
    "a Hugging Face token": "hf_" + "AbCdEfGhIj" * 3 + "AbCd",
    "an old OpenAI key": "sk-" + WORD[:20] + "T3BlbkFJ" + WORD[:20],
    "an OpenAI project key": "sk-proj-" + WORD,
    "an Anthropic key": "sk-ant-api03-" + WORD,
    "a Google API key": "AIza" + WORD[:35],
    "a Google access token": "ya29." + WORD,
    "a Slack token": "xoxb-" + "123456789012-" * 2 + WORD[:24],
    "a Slack webhook": "https://hooks.slack.com/services/T0ABCDEF1/B0ABCDEF1/" + WORD[:24],
    "a Databricks token": "dapi" + "0a" * 16,
    "a Docker token": "dckr_pat_" + WORD[:27],
    "an NVIDIA key": "nvapi-" + WORD,
    "a PyPI token": "pypi-AgE" + WORD + WORD,
    "a JSON Web Token": "eyJ" + WORD[:20] + ".eyJ" + WORD + "." + WORD,
    "a header": "Authorization: Bearer " + WORD,
    "a bearer": "bearer " + WORD[:24],
    "a header with a password": "Authorization: Basic " + WORD[:16],
    "a private key": "-----BEGIN " + "PRIVATE KEY-----\nMIIE",
    "an RSA key": "-----BEGIN RSA " + "PRIVATE KEY-----\nMIIE",
    "an OpenSSH key": "-----BEGIN OPENSSH " + "PRIVATE KEY-----\nb3Bl",
    "a URL with a password": "https://me:pa55@example.com/x",
    "a database's URL": "postgresql://me:pa55@db/tickets",
    "a URL with only a password": "redis://:pa55@cache:6379/0",
    "a query parameter": "https://example.com/data?part=1&token=s3cret",
    "another query parameter": "https://example.com/data?api_key=s3cret#x",
}
VARIABLES = re.findall(
    r"\w+",
    """
HF_TOKEN HUGGING_FACE_HUB_TOKEN WANDB_API_KEY AWS_SECRET_ACCESS_KEY AWS_ACCESS_KEY_ID AWS_SESSION_TOKEN
PGPASSWORD MYSQL_PWD DB_PASS GITHUB_PAT AZURE_STORAGE_KEY AZURE_STORAGE_CONNECTION_STRING KAGGLE_KEY
PRIVATE_KEY SSH_PRIVATE_KEY WANDB_KEY OPENAI_KEY OPENAI_API_KEY PASSPHRASE SSH_PASSPHRASE REDIS_AUTH PASSWORD
MYSQL_PASSWORD KEYSTORE_PASSWD CLIENT_SECRET JWT_SECRET SECRET_KEY MY_TOKEN TOKEN GH_TOKEN COMET_API_KEY
dbPassword openaiApiKey NGC_API_KEY MLFLOW_TRACKING_PASSWORD MLFLOW_TRACKING_TOKEN ENCRYPTION_KEY
GOOGLE_CREDENTIALS DATABASE_PASSWORD_2
""",
)
COMMANDS = {
    "an option": ["--password=s3cret"],
    "an option's word": ["--hf-token", "s3cret"],
    "an option in the middle": ["train.py", "--lr", "1", "--wandb_api_key", "s3cret", "-v"],
    "a setting": ["tracker.api_key=s3cret"],
    "a shell's variable": ["sh", "-c", "PGPASSWORD=s3cret psql -c 'select 1'"],
    "a shell's option": ["sh", "-c", "set -e; train --api-key 's3cret' --lr 1"],
    "a clone with a token": ["git", "clone", "https://s3cret-s3cret-s3cret-1@example.com/x"],
    "a clone": ["git", "clone", "https://me:s3cret@example.com/x"],
    "an exported variable": ["bash", "-c", 'export OPENAI_API_KEY="s3cret"\npython t.py'],
    "a lower-case variable": ["sh", "-c", "db_password=s3cret python t.py"],
    "a lower-case variable after another": ["sh", "-c", "set -e; LR=1 env db_password=s3cret python t.py"],
    "a password for curl": ["curl", "-sSu", "me:s3cret", "https://example.com"],
    "a script with curl": ["sh", "-c", "cd /tmp && curl --user 'me:s3cret' https://example.com"],
    "a header": ["curl", "-H", "X-Api-Key: s3cret", "https://example.com"],
    "a script with a header": ["sh", "-c", "curl -o x --header 'X-Api-Key: s3cret' https://example.com"],
    "sshpass": ["sshpass", "-p", "s3cret", "ssh", "host"],
    "a script with sshpass": ["sh", "-c", "sshpass -ps3cret ssh host"],
    "docker login": ["docker", "login", "-u", "me", "-p", "s3cret", "registry.example"],
    "a script with a login": ["sh", "-c", "echo; helm registry login -u me --password s3cret registry.example"],
    "mysql": ["mysql", "-h", "db", "-ps3cret", "tickets"],
    "python -c": ["python", "-c", "import os; os.environ['HF_TOKEN'] = 's3cret'; train()"],
    "setdefault": ["python", "-c", "import os\nos.environ.setdefault('HF_TOKEN', 's3cret')"],
    "a call": ["python", "-c", "login(user='me', api_key='s3cret')"],
    "JSON": ["train", '{"tracker": {"api_key": "s3cret"}}'],
    "JSON in a script": ["sh", "-c", 'train "{\\"api_key\\": \\"s3cret\\"}"'],
    "a .netrc file": ["sh", "-c", "echo machine api.wandb.ai login user password s3cret > ~/.netrc"],
    "a .netrc file in lines": ["sh", "-c", "printf 'machine h\n  login me\n  password s3cret' > ~/.netrc"],
    "a login of a registry": ["sh", "-c", """echo '{"auths": {"r.example": {"auth": "s3cret"}}}' > config.json"""],
}
LIKELY_COMMANDS = [["--token", "s3cret"], ["--my-token=s3cret"], ["sh", "-c", "train --token s3cret"], ["TOKEN=s3cret"]]

ALLOWED_VARIABLES = {
    **dict.fromkeys(["PWD", "OLDPWD", "MONKEY", "KEY_FRAMES", "SORT_KEY", "S3_KEY", "PRIMARY_KEY", "CACHE_KEY"], "v"),
    **dict.fromkeys(["PAD_TOKEN", "EOS_TOKEN", "BOS_TOKEN", "MASK_TOKEN", "IMAGE_TOKEN", "STOP_TOKEN"], "end"),
    **dict.fromkeys(["MAX_TOKENS", "NUM_TOKENS", "TOKENIZERS_PARALLELISM", "EOS_TOKEN_ID", "TOKEN_TYPE"], "4096"),
    **dict.fromkeys(["HF_TOKEN_PATH", "PASSWORD_FILE", "API_KEY_FILE", "SECRET_NAME", "SECRET_ARN"], "some-name"),
    **dict.fromkeys(["FORWARD_PASS", "NUM_PASS", "BYPASS", "COMPASS", "PASSES", "AUTHOR", "AUTH_MODE"], "two"),
    **dict.fromkeys(["HF_TOKEN", "WANDB_API_KEY", "DB_PASSWORD"], ""),
    **dict.fromkeys(["USE_AUTH_TOKEN", "NO_PASSWORD", "REQUIRE_TOKEN", "ENABLE_API_KEY"], "1"),
    "PRIVATE_KEY": "/run/secrets/key",
    "SSH_PRIVATE_KEY": "~/.ssh/id_ed25519",
    "DATABASE_PASSWORD": "/run/secrets/password.txt",
    "ACCESS_TOKEN": "/var/run/secrets/kubernetes.io/serviceaccount/token",
    "GITHUB_TOKEN": "none",
    "REDIS_AUTH": "disabled",
    "SEP_TOKEN": "</s>",
    "MODEL_TOKEN": "<|endoftext|>",
    "CLS_TOKEN": "[CLS]",
}
ALLOWED_TEXTS = """
3c064fa1e2b3c4d5e6f708192a3b4c5d6e7f8091
sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
550e8400-e29b-41d4-a716-446655440000
meta-llama/Llama-3.2-1B-Instruct
hf://meta-llama/Llama-3.2-1B
hf_transfer
hf_hub_download_with_progress_bar_and_retry
sk-learn-contrib-with-a-long-name-of-a-package
sk-lora-rank-16-alpha-32-dropout-0.1-model
https://example.com/data?part=1&sig=none
https://example.com/data?token=$(TOKEN)&max_tokens=5&pad_token=end
https://github.com/me/repository.git@main
git+https://github.com/huggingface/trl@v1.6.0
git@github.com:me/repository.git
ssh://git@github.com/me/repository.git
https://host.example:8443/path@scope/name
docker://python:3.12@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
https://$USER:$TOKEN@example.com
https://oauth2:${TOKEN}@example.com
https://me:$(TOKEN)@example.com
s3://bucket/prefix/user:name@2024
registry.example:5000/team/image:tag
tcp://10.0.0.1:29500
iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4
AKIAshort
eyJhbGciOiJIUzI1NiJ9
bearer of good news
Bearer authentication-required-for-this
-----BEGIN CERTIFICATE-----
-----BEGIN PUBLIC KEY-----
ghp_short
glpat-short
AIzaNot-a-key
xoxb-not-a-token
the password is in the Secret db
Basic transformers for everybody
model.layers.0.self_attn.q_proj.weight
2026-01-01T00:00:00.000000Z
facebook/dinov2-with-registers-giant-imagenet1k-1-layer
""".strip().splitlines()
ALLOWED_COMMANDS = [
    ["--tokenizer", "gpt2"],
    ["--tokenizer=meta-llama/Llama-3.2-1B"],
    ["--max-tokens", "4096"],
    ["--max_new_tokens=128"],
    ["--pad-token", "<pad>"],
    ["--pad_token=x"],
    ["--eos_token", "end"],
    ["--image-token", "image"],
    ["--placeholder_token", "cat-toy"],
    ["--tokens-per-batch", "8192"],
    ["--token-type", "bpe"],
    ["--password-file", "/run/secrets/db"],
    ["--password", "$(DB_PASSWORD)"],
    ["--password=$(DB_PASSWORD)"],
    ["--password=$DB_PASSWORD"],
    ["--hf-token", "${HF_TOKEN}"],
    ["--api-key-env", "OPENAI_API_KEY"],
    ["--api-key", "OPENAI_API_KEY"],
    ["--hf-token="],
    ["--hf-token", "--verbose"],
    ["--use-auth-token", "train.py"],
    ["--use-auth-token=true"],
    ["--no-password", "train.py"],
    ["--private-key", "/run/secrets/key.pem"],
    ["--private-key=./keys/id"],
    ["--secret", "hf"],
    ["--secret-name", "hf"],
    ["--sort-key", "date"],
    ["--auth-mode", "none"],
    ["--access-token", "none"],
    ["--key-frames", "10"],
    ["--primary-key=id"],
    ["metric_logger.log_dir=/workspace/logs"],
    ["tokenizer.path=/workspace/model"],
    ["sh", "-c", 'psql "postgresql://me:$PGPASSWORD@db/x"'],
    ["sh", "-c", 'train --api-key "$OPENAI_API_KEY" --lr 1'],
    ["sh", "-c", "export HF_TOKEN=$(cat /run/secrets/hf); python train.py"],
    ["sh", "-c", "HF_TOKEN=/run/secrets/hf python train.py"],
    ["python", "-c", "import os\nlogin(token=os.environ['HF_TOKEN'], password=get())"],
    ["python", "-c", "API_KEY=os.environ['API_KEY']; print(1)"],
    ["python", "-c", "def f(tokenizer, token=None): return tokenizer(token)"],
    ["torchrun", "--rdzv-endpoint=a:29500", "--nproc-per-node", "8", "train.py"],
    ["git", "clone", "https://a-colleague-of-mine@bitbucket.org/team/repository.git"],
    ["curl", "-u", "me:$PASSWORD", "-o", "out", "http://host:80/x"],
    ["curl", "-H", "Accept: application/json", "-H", "Authorization: Bearer $(TOKEN)", "https://example.com"],
    ["sh", "-c", 'curl -fsS -H "X-Api-Key: $KEY" https://example.com:8443/a'],
    ["sh", "-c", "sort -u a:b > c; mysql -P 3306 -h db --protocol=tcp; sshpass -p $PASSWORD ssh host"],
    ["sh", "-c", "echo $PASSWORD | docker login -u me --password-stdin; docker run -p 80:80 image"],
    ["sh", "-c", "wandb login --relogin --host=https://wandb.example $WANDB_API_KEY && mkdir -p logs"],
    ["sh", "-c", "password=$(cat /run/secrets/db) python train.py; token_count=5 python t.py"],
    ["python", "-c", "f(api_key=key, password=config.password)\nassert os.environ['HF_TOKEN'] == 'x'"],
    ["python", "-c", "key = 'a'; data['key'] = 'b'; api_key = 'OPENAI_API_KEY'; password = ''"],
    ["train", '{"model": "m", "tokenizer": {"pad_token": "<pad>"}, "auth": null}'],
    ["sh", "-c", "echo 'machine learning: log in with a password of your own'"],
]
ALLOWED_ARGUMENTS = [
    {"tokenizer": "gpt2", "max_tokens": 10, "eos_token_id": 2, "pad_token": "<pad>"},
    {"auth_mode": "none", "password": None, "token": ""},
    {"secret": "hf", "secret_name": "hf", "key": "value", "keys": ["a", "b"]},
    {"api_key": "OPENAI_API_KEY", "private_key": "/run/secrets/key.pem"},
    {"use_auth_token": True, "token": False, "num_token": "5"},
    {"stop_token": "end", "special_token": ["a", "b"], "columns": {"input": "text"}},
    {"secret": {"name": "hf", "key": "token"}, "sort": {"key": "date"}},
]
REFUSED_ARGUMENTS = [
    {"password": "s3cret"},
    {"hf_token": "s3cret"},
    {"tracker": {"api_key": "s3cret"}},
    {"tracker": [{"apiKey": "s3cret"}]},
    {"cfg": [{"wandb": {"key": "s3cret"}}]},
    {"db": {"pass": "s3cret"}},
    {"text": '{"password": "s3cret"}'},
    {"url": "https://me:s3cret@example.com"},
]


def container(**fields):
    return CustomTrainerContainer(image="busybox", **fields)


def assert_refused(make, secret):
    with pytest.raises(InvalidSpec) as raised:
        make()
    assert secret not in str(raised.value)
    assert "***" in str(raised.value)
    assert "security.md#secrets-passed-as-values" in str(raised.value)


def test_the_tables_are_long_enough():
    assert len(TOKENS) + len(VARIABLES) + len(COMMANDS) + len(REFUSED_ARGUMENTS) >= 60
    allowed = (ALLOWED_VARIABLES, ALLOWED_TEXTS, ALLOWED_COMMANDS, ALLOWED_ARGUMENTS)
    assert sum(map(len, allowed)) >= 100


@pytest.mark.parametrize("kind", TOKENS)
def test_a_credential_is_refused_wherever_everybody_can_read_it(kind):
    value = TOKENS[kind]
    for make in (
        lambda: container(env={"SETTING": value}),
        lambda: container(command=("train", value)),
        lambda: container(args=("train", "sh", f"run {value} 'x'")),
        lambda: CustomTrainer(func=print, func_args={"x": [{"y": value}]}),
        lambda: TrainJob(annotations={"example.com/x": value}),
        lambda: TrainJobManifest(manifest=manifest(annotations={"x": value})),
    ):
        assert_refused(make, value)
    assert value not in str(redact(["run", value]))


@pytest.mark.parametrize("name", VARIABLES)
def test_the_name_of_a_variable_denotes_a_secret(name):
    assert_refused(lambda: container(env={name: "s3cret"}), "s3cret")
    assert_refused(lambda: TrainJobManifest(manifest=manifest(env=[{"name": name, "value": "s3cret"}])), "s3cret")


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_a_credential_in_a_command_is_refused(words):
    assert_refused(lambda: container(command=("run", *words)), "s3cret")
    assert_refused(lambda: container(args=words), "s3cret")
    assert_refused(lambda: TrainJobManifest(manifest=manifest(args=words)), "s3cret")
    assert "s3cret" not in str(redact({"command": ["run", *words]}))


def test_overlapping_credentials_are_redacted_to_their_ends():
    assert redact_literals("curl -H 'X-Api-Key: x;db_password=a tail'") == "curl -H 'X-Api-Key: ***'"


@pytest.mark.parametrize("scheme", ["", "Bearer ", "bearer  ", "Basic ", "Token "])
def test_a_credential_after_the_scheme_of_a_header_is_redacted(scheme):
    assert (
        redact(f"curl -H 'Authorization: {scheme}s3cret12345678901' https://a.example")
        == "curl -H 'Authorization: *** https://a.example"
    )


@pytest.mark.parametrize("words", LIKELY_COMMANDS)
def test_a_value_that_may_be_a_credential_causes_a_warning(words):
    with pytest.warns(UserWarning, match="may be a credential") as caught:
        container(args=words)
    assert "s3cret" not in str(caught[0].message)


@pytest.mark.parametrize("arguments", REFUSED_ARGUMENTS)
def test_a_credential_in_a_function_s_arguments_is_refused(arguments):
    assert_refused(lambda: CustomTrainer(func=print, func_args=arguments), "s3cret")
    assert "s3cret" not in str(redact(arguments))


def test_a_token_among_a_function_s_arguments_causes_a_warning():
    with pytest.warns(UserWarning, match="'my_token' may be a credential"):
        CustomTrainer(func=print, func_args={"my_token": "s3cret"})


def function_with_token():
    return "hf_AbCdEfGhIjAbCdEfGhIjAbCdEfGhIjAbCd"  # codespell:ignore


def test_a_token_in_a_function_s_source_is_refused():
    job = TrainJob(trainer=CustomTrainer(func=function_with_token))
    assert_refused(lambda: build_trainjob(job, name="a", namespace="b"), "hf_AbC")


def test_a_credential_in_a_recipe_s_overrides_is_refused():
    overrides = ("metric_logger.api_key=s3cret",)
    assert_refused(lambda: TorchTuneConfig(overrides=overrides), "s3cret")
    assert_refused(
        lambda: FineTune(model="llama3.2-1b", workspace="w", config={"framework": "torchtune", "overrides": overrides}),
        "s3cret",
    )


def test_a_credential_in_a_manifest_s_patches_is_refused():
    patch = {"spec": {"containers": [{"name": "node", "env": [{"name": "DB_PASS", "value": "s3cret"}]}]}}
    assert_refused(lambda: TrainJobManifest(manifest=manifest(podTemplateOverrides=[patch])), "s3cret")


@pytest.mark.parametrize(("name", "value"), ALLOWED_VARIABLES.items())
def test_other_variables_are_allowed(name, value):
    assert container(env={name: value}).env == {name: value}


@pytest.mark.parametrize("text", ALLOWED_TEXTS)
def test_other_texts_are_allowed(text):
    check_text(text, "")
    check_document({"x": [text]})
    check_values({"x": text})


@pytest.mark.parametrize("words", ALLOWED_COMMANDS)
def test_other_commands_are_allowed_without_a_warning(words):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_command(words, "")


@pytest.mark.parametrize("arguments", ALLOWED_ARGUMENTS)
def test_other_arguments_are_allowed_without_a_warning(arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_values(arguments)


@given(st.sampled_from(list(TOKENS.values())), st.text(st.characters(exclude_characters="-_@"), max_size=30), st.text())
def test_a_token_is_found_within_any_text_and_never_shown(token, before, after):
    text = f"{before} {token} {after}"
    with pytest.raises(InvalidSpec) as raised:
        check_command([text], "args")
    assert token not in str(raised.value)


@given(st.lists(st.from_regex(r"[a-z_.-]{1,12}(=[a-z0-9./:-]{0,20})?", fullmatch=True)))
def test_words_without_a_secret_s_name_are_allowed(words):
    names = re.compile(r"pass|pwd|pat|secret|token|key|auth|cred|string|id")
    check_command([word for word in words if not names.search(word)], "args")


def manifest(annotations=None, podTemplateOverrides=None, **trainer):  # noqa: N803
    spec = {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer}
    if podTemplateOverrides:
        spec["podTemplateOverrides"] = podTemplateOverrides
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"annotations": annotations or {}},
        "spec": spec,
    }


@pytest.mark.parametrize(
    "make",
    [
        lambda: TrainJob(trainer={"image": "x", "command": ["y"]}, labels={"password": "s3cret"}),
        lambda: TrainJob(trainer={"image": "x", "command": ["y"]}, annotations={"example.org/api-key": "s3cret"}),
        lambda: ExportModel(destination="s3://b/p", metadata={"wandb": [{"api_key": "s3cret"}]}),
        lambda: ExportModel(destination="s3://b/p", endpoint="https://h/?token=s3cret"),
    ],
    ids=["label", "annotation", "metadata", "endpoint"],
)
def test_a_name_that_denotes_a_secret_is_refused_wherever_it_is(make):
    with pytest.raises(InvalidSpec) as raised:
        make()
    assert "s3cret" not in str(raised.value)


def test_an_error_shows_no_query_parameter_that_denotes_a_secret():
    with pytest.raises(InvalidSpec) as raised:
        MLflow(tracking_uri="https://m/?token=s3cret", experiment="e")
    assert "s3cret" not in str(raised.value)
