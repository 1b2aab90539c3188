"""Tests that the time to parse text grows linearly with its length, for text that any user may write."""

from __future__ import annotations

import contextlib
import io
import time

import pytest
import urllib3

from trainjob.client.api_errors import error_from_status
from trainjob.client.log_reader import LogReader
from trainjob.credentials import redact_credentials
from trainjob.errors import InvalidSpec
from trainjob.frameworks.log_parser import JobLogParser
from trainjob.frameworks.torchtune.arguments import _quote_if_needed
from trainjob.manifest import labels
from trainjob.manifest.identity import job_name
from trainjob.programs.export.destinations import Access, create_target
from trainjob.programs.fetch.bucket import extract_message
from trainjob.spec import CustomTrainer, InitializeDataset, TrainJobManifest
from trainjob.spec.credential_checks import check_command, check_variable
from trainjob.spec.literal_credentials import find_literal
from trainjob.spec.secrets import SecretReference
from trainjob.status import derive_verdict, parse_step_result

MANIFEST = "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nspec: {runtimeRef: {name: r}}\n"
_TRIES = 6


def parse_progress(text):
    JobLogParser().feed(text)


def derive_failure(message):
    condition = {"type": "Failed", "status": "True", "message": message}
    derive_verdict({"metadata": {"name": "tune"}, "status": {"conditions": [condition]}})


def parse_log(text):
    content = text.encode()
    length = {"Content-Length": str(len(content))}
    stream = urllib3.HTTPResponse(body=io.BytesIO(content), headers=length, preload_content=False)
    for _ in LogReader().read(stream):
        pass


def ignore_refusal(parse):
    def parse_or_ignore(text):
        with contextlib.suppress(InvalidSpec):
            parse(text)

    return parse_or_ignore


def parse_server_error(text):
    str(error_from_status(500, text, {}, server="https://s", doing="list pods"))


# The parser, the repeated text, the text before it, and the number of characters of the shorter text.
ROWS = {
    "progress: digits": (parse_progress, "1", "", 200_000),
    "progress: beginnings of frames": (parse_progress, "1|2|Loss: ", "", 200_000),
    "progress: a frame that does not end": (parse_progress, "|", "1|2|Loss: 1: 5%", 200_000),
    "progress: steps": (parse_progress, "Step 1 | ", "", 200_000),
    "progress: a step that does not end": (parse_progress, "a ", "Step 1 | ", 200_000),
    "progress: white space": (parse_progress, " ", "", 1_000_000),  # a short text may fit into the processor's cache
    "progress: beginnings of dicts": (parse_progress, "{'loss': '", "", 200_000),
    "progress: a dict that does not end": (parse_progress, "'loss': '0.5', ", "{", 200_000),
    "progress: a name that does not end": (parse_progress, "a", "{'loss", 200_000),
    "progress: a value that does not end": (parse_progress, "1", "{'loss': '", 200_000),
    "progress: text before a dict": (parse_progress, "\x1b[A ", "{'", 200_000),
    "progress: a bar that does not end": (parse_progress, "#", " 50%|", 200_000),
    "progress: bars": (parse_progress, " 50%|# | 5/9 [0", "", 200_000),
    "a condition's message": (derive_failure, "(first failed job: ", "", 200_000),
    "a condition's message, one word": (derive_failure, "a", "(first failed job: ", 200_000),
    "a log without lines": (parse_log, "x", "2026-01-01T00:00:00.000000000Z ", 2_000_000),
    "a log of carriage returns": (parse_log, "x\r", "2026-01-01T00:00:00.000000000Z ", 200_000),
    "a log of rows up": (parse_log, "x\x1b[A", "2026-01-01T00:00:00.000000000Z ", 200_000),
    "a log of begun escape sequences": (parse_log, "\x1b[1", "2026-01-01T00:00:00.000000000Z ", 200_000),
    "a log of line ends": (parse_log, "\n", "", 200_000),
    "a log of times": (parse_log, "2026-01-01T00:00:00.000000000Z x\n", "", 500_000),
    "a step result": (parse_step_result, "[", "export: done ", 1_000_000),
    "an error response": (parse_server_error, '{"kind":', "", 1_000_000),
    "an object store's error": (extract_message, 'code: "a', "", 200_000),
    "credentials in a text": (redact_credentials, "a:", "", 500_000),
    "credentials in URLs": (redact_credentials, "://a", "", 500_000),
    "a variable's value": (lambda text: check_variable("A", text, "A", "r"), "https://", "", 500_000),
    "a variable's name": (ignore_refusal(lambda text: check_variable(text, "v", "A", "r")), "_TOKEN_", "", 200_000),
    "a variable's token": (lambda text: check_variable("A", text, "A", "r"), "eyJ-", "", 200_000),
    "a variable's key": (lambda text: check_variable("A", text, "A", "r"), "sk-a", "", 200_000),
    "a script": (lambda text: check_command([text], "args"), "--a='x ", "", 60_000),
    "a script with logins": (find_literal, "docker login ", "", 60_000),
    "a script with curl": (find_literal, "curl -u ", "", 60_000),
    "a script with names": (find_literal, "a_key: '", "", 60_000),
    "a script with variables": (find_literal, "export a=b a_key=$", "", 60_000),
    "a URL's user": (lambda text: check_command([text], "args"), "https://a", "", 60_000),
    "a system prompt": (_quote_if_needed, "\\", "", 200_000),
    "a system prompt with quotes": (_quote_if_needed, "\\${", "", 100_000),
    "a URI": (ignore_refusal(lambda uri: InitializeDataset(storage_uri=uri, workspace="w")), "a/", "hf://", 200_000),
    "no URI": (ignore_refusal(lambda uri: InitializeDataset(storage_uri=uri, workspace="w")), "a.", "", 200_000),
    "a destination": (ignore_refusal(lambda uri: create_target(uri, Access())), "a@", "hf://a/b", 200_000),
    "a Secret's name": (ignore_refusal(lambda name: SecretReference(name=name)), "a-", "", 200_000),
    "a package": (
        ignore_refusal(lambda package: CustomTrainer(func=parse_progress, packages_to_install=[package])),
        "://a:",
        "",
        200_000,
    ),
    "a name": (lambda text: job_name(text, "0" * 16, 1), "-a", "", 500_000),
    "a label": (labels.label_value, "/a", "", 500_000),
    "a manifest": (ignore_refusal(lambda text: TrainJobManifest(manifest=text)), "# x\n", MANIFEST, 20_000),
    "a manifest of references": (
        ignore_refusal(lambda text: TrainJobManifest(manifest=text)),
        "*a, ",
        "a: &a x\nb: [",
        8_000,
    ),
    "a manifest of brackets": (ignore_refusal(lambda text: TrainJobManifest(manifest=text)), "- [[[[]]]]\n", "", 8_000),
}


def measure_seconds(read, text):
    """Return the processor time, on which other processes have little effect."""
    began = time.process_time()
    read(text)
    return time.process_time() - began


@pytest.mark.parametrize("name", ROWS)
def test_time_grows_linearly_with_length(name):
    """A quadratic parser needs sixteen times as long for four times the length; the limit is eight times."""
    read, repeated, prefix, size = ROWS[name]
    short, long = (prefix + repeated * (count // len(repeated)) for count in (size, 4 * size))
    best = [min(measure_seconds(read, text) for _ in range(2)) for text in (short, long)]
    for _ in range(_TRIES):
        if best[1] <= max(8.0 * best[0], 0.02):
            break
        best = [min(seconds, measure_seconds(read, text)) for seconds, text in zip(best, (short, long), strict=True)]
    assert best[1] <= max(8.0 * best[0], 0.02)
    assert best[1] < 20.0
