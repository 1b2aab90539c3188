"""The promotion program, from its arguments to its exit code.

Exit codes: 0 promoted or rolled back, or nothing to do, 1 failed, 2 wrong arguments or input.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from trainjob.credentials import clean_environment, redact_credentials
from trainjob.errors import InvalidSpec, Problem, TrainJobError
from trainjob.programs.promotion.aliases import create_alias
from trainjob.programs.promotion.cluster_api import ClusterApi, connect
from trainjob.programs.promotion.hook import CommandHook
from trainjob.programs.promotion.kserve import InferenceService, KServeService, LLMInferenceService
from trainjob.programs.promotion.record import PromotionRecord, Served, get_record_name
from trainjob.programs.promotion.rollout import Rollout
from trainjob.programs.promotion.smoke import SmokeRequest, send
from trainjob.version import check_version

__all__ = ["create_service", "main"]

_ACTIONS = ("promote", "rollback")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a promotion or a rollback as a program and return its exit code.

    The last line of a successful run is `promote: done {json}` or `rollback: done {json}`.
    """
    given = check_version(sys.argv[1:] if arguments is None else arguments)
    action = next((word for word in given if word in _ACTIONS), _ACTIONS[0])
    ending: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ending.append(number))
    if problem := clean_environment():
        return _fail(action, 2, problem)
    try:
        result = _run(given, lambda: bool(ending), partial(_say, action))
    except InvalidSpec as refusal:
        return _fail(action, 2, str(refusal))
    except (TrainJobError, OSError) as failure:
        return _fail(action, 1, str(failure))
    except Exception as error:  # noqa: BLE001 - a traceback may show a credential
        return _fail(action, 1, f"{type(error).__name__}: {error}")
    _say(action, f"done {json.dumps(result)}")
    return 0


def _run(given: Sequence[str], is_ending: Callable[[], bool], say: Callable[[str], None]) -> dict[str, object]:
    options = _parse_arguments(given)
    if options.action == "rollback" and not (options.any_run or options.run):
        raise InvalidSpec(Problem("any_run", "false", "this step has no workflow run, so it must be true"))
    api = connect(options.api_folder)
    record = PromotionRecord(api, get_record_name(options.kind, options.service))
    service = create_service(
        api, options.kind, options.service, record, options.adapter, options.command, options.seconds
    )
    rollout = Rollout(
        service,
        record,
        options.key,
        options.run,
        options.seconds,
        alias=create_alias(options.registry, options.alias) if options.registry else None,
        try_out=partial(_send_smoke_request, options, service),
        is_ending=is_ending,
        say=say,
    )
    if options.action == "rollback":
        outcome = rollout.roll_back(any_run=options.any_run)
        return {"rolled_back": outcome.changed, **_describe(options, asdict(outcome))}
    outcome = rollout.promote(Served(options.model, options.canary_percent), options.version)
    return {"promoted": outcome.changed, **_describe(options, asdict(outcome))}


def _describe(options: argparse.Namespace, outcome: dict[str, object]) -> dict[str, object]:
    del outcome["changed"]
    return {"service": options.service, "kind": options.kind, **outcome}


def create_service(
    api: ClusterApi,
    kind: str,
    name: str,
    record: PromotionRecord,
    adapter: str = "",
    command: Sequence[str] = (),
    seconds: float = 0,
) -> KServeService | CommandHook:
    """Return what serves the model.

    Args:
        api: client of the cluster.
        kind: KServe's kind, or `Command` or `Registry` for a service that only its record knows.
        name: name of the service.
        record: its promotions.
        adapter: name of the LoRA adapter; may be empty.
        command: command that serves a model.
        seconds: longest time of the command.
    """
    if kind == "InferenceService":
        return InferenceService(api, name)
    if kind == "LLMInferenceService":
        return LLMInferenceService(api, name, adapter)
    return CommandHook(name, command, record, seconds)


def _send_smoke_request(options: argparse.Namespace, service: KServeService | CommandHook) -> None:
    given = options.smoke_request
    if isinstance(service, KServeService):
        request = SmokeRequest(**(given or {"url": service.smoke_path.format(name=service.name)}))
        send(request, request.url if "://" in request.url else f"{service.url}/{request.url.lstrip('/')}")
    elif given:
        request = SmokeRequest(**given)
        send(request, request.url)


def _parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m trainjob.programs.promotion", description="Change what is served.")
    parser.add_argument("action", choices=_ACTIONS)
    parser.add_argument("--key", required=True, help="text that is the same in all tries of the step")
    parser.add_argument("--run", default="", help="the workflow run")
    parser.add_argument("--kind", required=True, help="InferenceService, LLMInferenceService, Command or Registry")
    parser.add_argument("--service", required=True, help="name of the service")
    parser.add_argument("--adapter", default="", help="name of the LoRA adapter of an LLMInferenceService")
    parser.add_argument("--command", type=json.loads, default=[], help="JSON list: command that serves $MODEL_URI")
    parser.add_argument("--registry", type=json.loads, default={}, help="JSON object: server and model")
    parser.add_argument("--alias", default="champion", help="alias in the registry")
    parser.add_argument("--seconds", type=float, default=1800, help="longest time until a model is served")
    parser.add_argument("--api-folder", type=Path, required=True, help="folder of the service account's token")
    parser.add_argument("--model", default="", help="promote: address of the model")
    parser.add_argument("--version", default="", help="promote: version of the model in the registry")
    parser.add_argument("--canary-percent", type=int, help="promote: share of the requests")
    parser.add_argument("--smoke-request", type=json.loads, help="promote: JSON object: url, body, contains")
    parser.add_argument("--any-run", action="store_true", help="rollback: also of another workflow run")
    return parser.parse_args(arguments)


def _say(action: str, text: str) -> None:
    print(f"{action}: {redact_credentials(text)}", flush=True)


def _fail(action: str, code: int, message: str) -> int:
    print(f"{action}: failed: {redact_credentials(message)}", file=sys.stderr, flush=True)
    return code
