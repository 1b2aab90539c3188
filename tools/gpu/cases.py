"""The cases: steps, what is measured, and what must be true."""

from __future__ import annotations

import contextlib
import filecmp
import importlib.util
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.gpu.pods import Container, MemoryLog, Pod, TimeOver, read_container, read_metrics
from trainjob import (
    ExportModel,
    FineTune,
    InitializeDataset,
    InitializeModel,
    TRLConfig,
    TRLLoraConfig,
    WorkspaceVolume,
)

_HERE = Path(__file__).resolve().parent
_RUN = "gpu-evidence"
_BF16_TOLERANCE = 0.1  # relative difference of logits, as in trainjob.frameworks.fine_tuning.merging
_TRAINED = "trained"  # folder of the exported model of SFT, below the workspace
_FP32 = {"dtype": "float32"}  # in bf16, a weight would not take the small steps of DPO and GRPO
_EQUAL_ANSWERS = 0.693  # loss of DPO if the model prefers neither answer: ln 2


class CheckFailed(Exception):
    """A check of a case did not hold."""


class NotRun(Exception):
    """A case cannot run on this machine."""


@dataclass(frozen=True)
class Sizes:
    """Lengths of the trainings.

    Attributes:
        max_length: tokens to which a text is cut.
        batch: texts of a step.
        steps: steps of SFT.
        short: steps of DPO, LoRA and QLoRA.
        online: steps of GRPO.
        saved: steps between two checkpoints; the trainings that are interrupted have three times as many.
        rates: learning rates of SFT, of LoRA and of DPO.
    """

    max_length: int
    batch: int
    steps: int
    short: int
    online: int
    saved: int
    rates: tuple[float, float, float]


SMALL = Sizes(max_length=1024, batch=16, steps=200, short=60, online=10, saved=20, rates=(3e-4, 5e-4, 2e-5))
TINY = Sizes(max_length=64, batch=4, steps=30, short=12, online=2, saved=8, rates=(3e-3, 1e-2, 1e-3))


@dataclass
class Session:
    """A run of the cases.

    Attributes:
        folder: folder for workspace and logs.
        hub_url: URL of the hub with model and dataset.
        hub: its folder.
        device: `cuda` or `cpu`.
        sizes: lengths of the trainings.
        ratio: least share of the bare script's tokens per second.
        deadline: when all cases must have ended, in seconds of `time.monotonic`.
        memory: memory of the GPU; None on a CPU.
    """

    folder: Path
    hub_url: str
    hub: Path
    device: str
    sizes: Sizes
    ratio: float
    deadline: float
    memory: MemoryLog | None = None
    _checker: subprocess.Popen[str] | None = None
    _pods: int = 0

    @property
    def workspace(self) -> Path:
        """Folder of the workspace."""
        return self.folder / "workspace"

    def volume(self) -> WorkspaceVolume:
        """Return the workspace of the steps."""
        return WorkspaceVolume(node_path=str(self.workspace))

    def start(self, container: Container, name: str) -> Pod:
        """Start a container; its log has a number and this name."""
        self._pods += 1
        return Pod.start(container, self.folder / f"{self._pods:02}-{name}.log", self.device)

    def run(self, step: Any, name: str) -> list[str]:
        """Run a step, and return its log.

        Raises:
            CheckFailed: its exit code is not 0.
        """
        return self.finish(self.start(read_container(step, self.workspace, _RUN), name))

    def finish(self, pod: Pod) -> list[str]:
        """Wait for the end of a pod, and return its log.

        Raises:
            CheckFailed: its exit code is not 0.
        """
        code = pod.wait(self.remaining())
        check(code == 0, f"exit code {code}: {pod.describe_end()}")
        return pod.read_lines()

    def remaining(self) -> float:
        """Return the seconds that a process may take: half of what is left."""
        return max(1.0, (self.deadline - time.monotonic()) / 2)

    def check_model(self, action: str, **arguments: str) -> dict[str, Any]:
        """Return an answer of the process that checks models.

        Raises:
            CheckFailed: the check raised, or the process ended.
        """
        if self._checker is None:
            with (self.folder / "model-checks.log").open("w") as log:
                self._checker = subprocess.Popen(
                    [sys.executable, _HERE / "model_checks.py"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                )
        assert self._checker.stdin and self._checker.stdout
        self._checker.stdin.write(json.dumps({"action": action, **arguments}) + "\n")
        self._checker.stdin.flush()
        answer: dict[str, Any] = json.loads(self._checker.stdout.readline() or '{"error": "the checks ended"}')
        check("error" not in answer, str(answer.get("error")))
        return answer

    def close(self) -> None:
        """End the process that checks models."""
        if self._checker is not None:
            self._checker.kill()
            self._checker.communicate()


def check(is_true: bool, text: str) -> None:
    """Raise the text as the reason of a failed case unless a check holds."""
    if not is_true:
        raise CheckFailed(text)


def run_case(session: Session, name: str) -> dict[str, Any]:
    """Run a case, and return its row."""
    begin, values = time.monotonic(), session.memory.count() if session.memory else 0
    row: dict[str, Any] = {"case": name, "measured": ""}
    try:
        row["measured"] = CASES[name](session)
        row["result"] = "passed"
    except NotRun as reason:
        return {**row, "result": f"not run: {reason}"}
    except (CheckFailed, TimeOver) as failure:
        row["result"] = f"**failed**: {failure}"
    except Exception as error:  # noqa: BLE001 - it is a result
        row["result"] = f"**failed**: {type(error).__name__}: {error}"
    # No path of this machine, and no long output of a library.
    row["result"] = row["result"].replace(str(session.folder), "")[:300]
    row["seconds"] = round(time.monotonic() - begin, 1)
    if session.memory:
        row["memory"] = session.memory.find_most(values)
    return row


def share_of_letters(completions: list[str], **_: Any) -> list[float]:
    return [sum(letter.isalpha() for letter in text) / max(1, len(text)) for text in completions]


def fetch(session: Session) -> str:
    """Fetch model and dataset from the hub."""
    sources = {"model": session.hub / "models/demo/llama", "dataset": session.hub / "datasets/demo/tickets"}
    common = {"workspace": session.volume(), "endpoint": session.hub_url}
    session.run(InitializeModel(storage_uri="hf://demo/llama", **common), "fetch-model")
    session.run(InitializeDataset(storage_uri="hf://demo/tickets", **common), "fetch-dataset")
    count = 0
    for kind, source in sources.items():
        names = [path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()]
        _, wrong, missing = filecmp.cmpfiles(source, session.workspace / kind, names, shallow=False)
        check(not wrong and not missing, f"{kind}: other content {wrong}, missing {missing}")
        count += len(names)
    return f"{count} files"


def train_all_weights(session: Session) -> str:
    """Run SFT of all weights."""
    step = _sft(session, "sft", max_steps=session.sizes.steps, save_strategy="no")
    lines = session.run(step, "sft")
    measured = _check_training(session, "sft", lines, session.sizes.steps)
    types = session.check_model("read_types", file=f"{session.workspace}/output/sft/model.safetensors")["types"]
    check(types == ["BF16"], f"the types of the saved weights are {types}")
    if session.memory:
        used, weights = session.memory.find_most(0), session.workspace / "model/model.safetensors"
        least = session.memory.idle + weights.stat().st_size // 2**20
        check(used >= least, f"the training did not use the GPU: {used} MiB in use, {session.memory.idle} before")
    return f"{measured}; {_compute_speed(lines):,.0f} tokens/s"


def train_with_bare_script(session: Session) -> str:
    """Run TRL's own script with the arguments of SFT, and SFT again.

    The first SFT also loads CUDA's libraries from a disk that nothing has read yet: on an NVIDIA H200, it had 0.85 of
    the tokens per second for this reason. So its speed is not compared.
    """
    step = _sft(session, "bare", max_steps=session.sizes.steps, save_strategy="no")
    words, environment = read_container(step, session.workspace, _RUN)
    arguments = words[words.index("sft", words.index("--output")) + 1 :]  # what follows the method
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "-m", "trl.scripts.sft", *arguments),
        f"--model_name_or_path={session.workspace}/model",
        f"--dataset_name={session.workspace}/dataset/texts",
        f"--output_dir={session.workspace}/output/bare",
        *("--disable_tqdm=true", *(["--use_cpu=true"] if session.device == "cpu" else [])),
    ]
    lines = session.finish(session.start((command, environment), "bare"))
    bare = _compute_speed(lines)
    again = _sft(session, "again", max_steps=session.sizes.steps, save_strategy="no")
    ratio = _compute_speed(session.run(again, "sft-again")) / bare
    check(ratio >= session.ratio, f"the program reaches {ratio:.2f} of its {bare:,.0f} tokens/s")
    return f"{bare:,.0f} tokens/s; the program: {ratio:.2f} of them"


def train_lora(session: Session) -> str:
    """Run LoRA, and merge the adapter."""
    return _train_lora(session, "lora")


def train_qlora(session: Session) -> str:
    """Run LoRA of a model in 4 bits, and merge the adapter into the model in 16 bits."""
    if session.device == "cpu":
        raise NotRun("it needs a GPU")
    if importlib.util.find_spec("bitsandbytes") is None:
        raise NotRun("bitsandbytes is not installed")
    return _train_lora(session, "qlora", load_in_4bit=True)


def _train_lora(session: Session, name: str, **options: Any) -> str:
    lora = TRLLoraConfig(lora_rank=16, lora_alpha=32, lora_dropout=0.0, target_modules=("all-linear",), **options)
    steps, rate = session.sizes.short, session.sizes.rates[1]
    config = _configure(session, "sft", max_steps=steps, learning_rate=rate, peft_config=lora)
    lines = session.run(_step(session, name, config, dataset_path="chats", model_path=_TRAINED), name)
    measured = _check_training(session, name, lines, steps)
    merged = [line.partition("; ")[2] for line in lines if "contains the merged model" in line]
    check(len(merged) == 1, "the log does not say that the adapter is merged")
    check("logits differ by" in merged[0], f"the merge did not compare logits: {merged[0]}")
    return f"{measured}; merge in the pod: {merged[0].partition(',')[0]}"


def check_merge(session: Session) -> str:
    """Compare the merged model with base model and adapter, again after the program."""
    output = f"{session.workspace}/output/lora"
    found = session.check_model(
        "compare", base=f"{session.workspace}/{_TRAINED}", adapter=output, merged=f"{output}/merged"
    )
    text = f"relative difference {found['merged']:.1e}; of the base model {found['base']:.1e}"
    check(found["merged"] <= _BF16_TOLERANCE, text)
    check(found["base"] > 3 * found["merged"], f"the adapter has too little effect: {text}")
    return text


def train_dpo(session: Session) -> str:
    """Run DPO."""
    steps = session.sizes.short
    config = _configure(session, "dpo", max_steps=steps, learning_rate=session.sizes.rates[2], arguments=_FP32)
    lines = session.run(_step(session, "dpo", config, dataset_path="pairs", model_path=_TRAINED), "dpo")
    _check_record(session, "dpo", steps)
    losses = _read_values(lines, "loss")
    check(losses[-1] < _EQUAL_ANSWERS, f"the last loss is {losses[-1]:.3f}")
    return f"loss {losses[0]:.3f} to {losses[-1]:.3f}; accuracy {_read_values(lines, 'rewards/accuracies')[-1]:.2f}"


def train_grpo(session: Session) -> str:
    """Run GRPO with a reward function."""
    steps = session.sizes.online
    config = _configure(
        session,
        "grpo",
        max_steps=steps,
        learning_rate=1e-5,
        columns={"prompt": "input"},
        reward_functions=(share_of_letters,),
        arguments={"num_generations": 4, "max_completion_length": 32, **_FP32},
    )
    lines = session.run(_step(session, "grpo", config, dataset_path="data", model_path=_TRAINED), "grpo")
    _check_record(session, "grpo", steps)
    rewards, spread = _read_values(lines, "reward"), _read_values(lines, "reward_std")
    check(all(0 <= reward <= 1 for reward in rewards), f"the rewards are {rewards}")
    check(max(spread) > 0, "all answers have the same reward")
    folders = [str(session.workspace / name) for name in (_TRAINED, "output/grpo")]
    changed = session.check_model("count_changes", one=folders[0], other=folders[1])["changed"]
    check(changed > 0, "the weights did not change")
    trend = f"mean reward {rewards[0]:.2f} to {rewards[-1]:.2f}, standard deviation up to {max(spread):.2f}"
    return f"{trend}; {changed} tensors changed"


def resume_after_sigkill(session: Session) -> str:
    """Kill all processes of a training, and start it again."""
    step, output = _interrupted(session, "sigkill")
    pod = session.start(read_container(step, session.workspace, _RUN), "sigkill-1")
    first = session.sizes.saved + 2  # after the first checkpoint
    pod.wait_for(lambda: _find_complete(output) > 0 and _last_step(pod) >= first, session.remaining())
    pod.kill()
    return _check_resumption(session, step, "sigkill", _find_complete(output), _last_step(pod))


def resume_after_sigterm(session: Session) -> str:
    """Terminate a training as the kubelet does, and start it again."""
    step, output = _interrupted(session, "sigterm")
    pod = session.start(read_container(step, session.workspace, _RUN), "sigterm-1")
    first = session.sizes.saved + 2
    pod.wait_for(lambda: _last_step(pod) >= first, session.remaining())
    pod.terminate()
    code = pod.wait(session.remaining())
    check(code != 0, "the terminated attempt ended with exit code 0")
    saved = [line for line in pod.read_lines() if line.startswith("SIGTERM: ")]
    check(len(saved) == 1, "the terminated attempt does not say that it has saved a checkpoint")
    step_number, last = _find_complete(output), _last_step(pod)
    check(step_number == last, f"the last step was {last}, and the last complete checkpoint has step {step_number}")
    return _check_resumption(session, step, "sigterm", step_number, last)


def export_trained(session: Session) -> str:
    """Export the model of SFT, from which the next trainings start."""
    return _export(session, "sft", "", _TRAINED)


def export_merged(session: Session) -> str:
    """Export the merged model of LoRA."""
    return _export(session, "lora", "merged", "export")


def _export(session: Session, name: str, below: str, folder: str) -> str:
    destination, volume = f"/workspace/{folder}", session.volume()
    step = ExportModel(workspace=volume, destination=destination, output_path=name, any_run=True)
    session.run(step, f"export-{name}")
    trained, exported = session.workspace / "output" / name / below, session.workspace / folder
    names = [path.name for path in trained.glob("*.safetensors")]
    check(bool(names), f"{trained} has no weights")
    check(filecmp.cmpfiles(trained, exported, names, shallow=False)[0] == names, "the exported weights differ")
    return f"{sum(path.is_file() for path in exported.rglob('*'))} files"


def generate(session: Session) -> str:
    """Load the exported folder, and generate a text."""
    found, expected = (
        session.check_model("generate", folder=str(session.workspace / name))
        for name in ("export", "output/lora/merged")
    )
    check(found["tokens"] > 0, "no token was generated")
    check(found["text"] == expected["text"], f"{found['text']!r} is not {expected['text']!r}")
    check(found["device"] == session.device, f"the model was on {found['device']}")
    return f"{found['tokens']} tokens on {found['device']}: {json.dumps(found['text'])}"


CASES: Mapping[str, Callable[[Session], str]] = {
    "fetch": fetch,
    "sft": train_all_weights,
    "bare": train_with_bare_script,
    "export": export_trained,
    "lora": train_lora,
    "merge": check_merge,
    "qlora": train_qlora,
    "export-lora": export_merged,
    "generate": generate,
    "dpo": train_dpo,
    "grpo": train_grpo,
    "sigkill": resume_after_sigkill,
    "sigterm": resume_after_sigterm,
}


def _configure(session: Session, method: str, **fields: Any) -> TRLConfig:
    """Return a configuration in bf16, which also has the weights in bf16 by default."""
    arguments = {"logging_steps": 1, "dtype": "bfloat16", **fields.pop("arguments", {})}
    given = {"precision": "bf16", "batch_size": session.sizes.batch, "seed": 7, "save_strategy": "no", **fields}
    return TRLConfig(method=method, arguments=arguments, **given)


def _step(session: Session, name: str, config: TRLConfig, **fields: Any) -> FineTune:
    return FineTune(model="llama", workspace=session.volume(), config=config, output_path=name, **fields)


def _sft(session: Session, name: str, **fields: Any) -> FineTune:
    sizes = session.sizes
    given = {"learning_rate": sizes.rates[0], "max_length": sizes.max_length, **fields}
    return _step(session, name, _configure(session, "sft", **given), dataset_path="texts")


def _interrupted(session: Session, name: str) -> tuple[FineTune, Path]:
    saved = session.sizes.saved
    step = _sft(session, name, max_steps=3 * saved, save_strategy="steps", save_steps=saved)
    return step, session.workspace / "output" / name


def _check_training(session: Session, name: str, lines: Sequence[str], steps: int) -> str:
    _check_record(session, name, steps)
    losses = _read_values(lines, "loss")
    text = f"loss {losses[0]:.2f} to {losses[-1]:.2f} in {steps} steps"
    check(losses[-1] < 0.8 * losses[0], text)
    return text


def _check_record(session: Session, name: str, steps: int) -> None:
    record = json.loads((session.workspace / "output" / name / "trainjob_run.json").read_text())
    check(record.get("complete") is True, "the record says that the run is not complete")
    check(record.get("step") == steps, f"the record has step {record.get('step')} of {steps}")


def _check_resumption(session: Session, step: FineTune, name: str, saved: int, last: int) -> str:
    lines = session.run(step, f"{name}-2")
    continued = [int(found[1]) for line in lines if (found := re.match(r"continues from step (\d+)", line))]
    check(continued == [saved], f"the last complete checkpoint has step {saved}, and the log says {continued}")
    first = int(_read_values(lines, "step")[0])
    check(first == saved + 1, f"the first step of the next attempt is {first}")
    _check_record(session, name, 3 * session.sizes.saved)
    loaded = session.check_model("load", folder=str(session.workspace / "output" / name))
    check(loaded == {"finite": True, "device": session.device}, f"the trained model: {loaded}")
    losses = _read_values(lines, "loss")
    return f"ended at step {last}; continued from step {saved} to {3 * session.sizes.saved}, loss {losses[-1]:.2f}"


def _read_values(lines: Sequence[str], name: str) -> list[float]:
    """Return the values of a metric, one for each line with a loss."""
    values = [each[name] for each in read_metrics(lines) if name in each and "train_runtime" not in each]
    check(bool(values), f"the log has no {name}")
    return values


def _compute_speed(lines: Sequence[str]) -> float:
    """Return the tokens per second of a training, from the values in its log."""
    metrics = read_metrics(lines)
    seconds = [each["train_runtime"] for each in metrics if "train_runtime" in each]
    check(len(seconds) == 1, "the log has no train_runtime")
    return max(_read_values(lines, "num_tokens")) / seconds[0]


def _last_step(pod: Pod) -> int:
    """Return the last step in a pod's log."""
    with contextlib.suppress(CheckFailed):
        return int(_read_values(pod.read_lines(), "step")[-1])
    return 0


def _find_complete(output: Path) -> int:
    """Return the step of the last complete checkpoint; 0 if there is none."""
    marks = output.glob("checkpoint-*/trainjob_complete")
    return max((int(mark.parent.name.removeprefix("checkpoint-")) for mark in marks), default=0)
