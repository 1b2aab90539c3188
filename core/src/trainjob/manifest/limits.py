"""What the older dialects can't express, and what they need besides.

A request that would be refused, fail in its pod or be silently cut there is refused before anything is sent, with the
version that can.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trainjob.errors import InvalidSpec
from trainjob.frameworks.torchtune import TorchTuneConfig
from trainjob.manifest.dialect import Dialect
from trainjob.spec import BuiltinTrainer, FrameworkConfig, TrainJob, TrainJobManifest
from trainjob.spec.base import refuse
from trainjob.spec.initializers import DEFAULT_MODEL_IGNORE_PATTERNS
from trainjob.spec.resources import gpus

_ORDER = tuple(Dialect)
_STOCK_TORCHTUNE = "torchtune-"
_STOCK_MPI = ("deepspeed-distributed", "mlx-distributed")
_OVER_A_WORKSPACE = "train over a workspace, FineTune(workspace=...), which works with every Trainer"
# The webhook's list has a 7B that does not exist in its place; it looks only when numProcPerNode is set
# (Trainer 2.0.1, pkg/constants/constants.go and plugins/torch/torch.go).
_UNLISTED = "llama3.2-3b"


@dataclass(frozen=True)
class _Limit:
    """Something that came with a dialect.

    Attributes:
        field: where it stands in a request.
        since: the first dialect that has it.
        value: what a request asks of it; None when nothing.
        what: what is missing before.
        instead: what can be done there.
    """

    field: str
    since: Dialect
    value: Callable[[TrainJob], Any]
    what: str
    instead: str


def _config(job: TrainJob) -> FrameworkConfig | None:
    return job.trainer.config if isinstance(job.trainer, BuiltinTrainer) else None


def _store(kind: str) -> Callable[[TrainJob], str | None]:
    def other_than_the_hub(job: TrainJob) -> str | None:
        uri = str(getattr(getattr(job.initializer, kind, None), "storage_uri", ""))
        return uri if uri and not uri.startswith("hf://") else None

    return other_than_the_hub


def _patterns(kind: str, usual: tuple[str, ...] | None) -> Callable[[TrainJob], tuple[str, ...] | None]:
    def other_than_usual(job: TrainJob) -> tuple[str, ...] | None:
        patterns: tuple[str, ...] | None = getattr(getattr(job.initializer, kind, None), "ignore_patterns", None)
        return None if not patterns or patterns == usual else patterns

    return other_than_usual


def _peft(job: TrainJob) -> str | None:
    config = _config(job)
    return "a LoraConfig" if isinstance(config, TorchTuneConfig) and config.peft_config else None


def _unlisted_processes(job: TrainJob) -> int | None:
    config = _config(job)
    return config.num_proc_per_node if config and job.runtime.builtin_model == _UNLISTED else None


def _unshipped(job: TrainJob) -> str | None:
    return job.runtime.name if _config(job) and job.runtime.builtin_model == "qwen2.5-1.5b" else None


def _placed(name: str) -> Callable[[TrainJob], Any]:
    return lambda job: getattr(job.placement, name, None) or None


def _mounted_again(job: TrainJob) -> str | None:
    names = [volume.name for volume in job.volumes]
    again = next((name for name in names if names.count(name) > 1), None)
    return None if again is None else f"{again}, several times"


_STEPS = "run InitializeDataset and InitializeModel as steps of their own over a workspace"
_LIMITS = (
    _Limit(
        "deadline",
        Dialect.V2_2,
        lambda job: str(job.deadline) if job.deadline else None,
        "activeDeadlineSeconds",
        "limit the waiting instead: the step's own limits, or its workflow task's time-out",
    ),
    _Limit("placement.affinity", Dialect.V2_1, _placed("affinity"), "affinity of pods", "use placement.node_selector"),
    _Limit(
        "placement.image_pull_secrets",
        Dialect.V2_1,
        _placed("image_pull_secrets"),
        "imagePullSecrets of pods",
        "name them in a service account and give placement.service_account_name",
    ),
    _Limit(
        "volumes",
        Dialect.V2_1,
        _mounted_again,
        "several mounts of one volume",
        "give each mount a volume with a name of its own",
    ),
    *(
        _Limit(
            f"initializer.{kind}.storage_uri", Dialect.V2_1, _store(kind), f"a {kind} from elsewhere than hf://", _STEPS
        )
        for kind in ("dataset", "model")
    ),
    *(
        _Limit(f"initializer.{kind}.ignore_patterns", Dialect.V2_1, _patterns(kind, usual), "IGNORE_PATTERNS", _STEPS)
        for kind, usual in (("dataset", None), ("model", DEFAULT_MODEL_IGNORE_PATTERNS))
    ),
    _Limit("trainer.config.peft_config", Dialect.V2_1, _peft, "LoRA on a TorchTune runtime", _OVER_A_WORKSPACE),
    _Limit(
        "trainer.config.num_proc_per_node",
        Dialect.V2_1,
        _unlisted_processes,
        f"a number of processes for {_UNLISTED}",
        "leave it out for one on each GPU",
    ),
    _Limit("runtime", Dialect.V2_1, _unshipped, "Qwen on a TorchTune runtime", _OVER_A_WORKSPACE),
)
"""Sources: Trainer v2.0.1 and v2.1.0, pkg/apis/trainer/v1alpha1/trainjob_types.go, pkg/initializers,
pkg/runtime/framework/plugins/torch and pkg/constants/constants.go."""


def check_expressible(job: TrainJob, dialect: Dialect) -> None:
    """Refuse what a dialect can't express.

    Raises:
        InvalidSpec: naming each field, the dialect, the version that can, and what can be done without it.
    """
    missing = [limit for limit in _LIMITS if _ORDER.index(dialect) < _ORDER.index(limit.since)]
    refusals = [
        refuse(
            limit.field,
            value,
            f"this cluster's Trainer speaks API {dialect.value}, and {limit.what} needs Trainer {limit.since.value} or "
            f"later: upgrade it, or {limit.instead}",
        )
        for limit in missing
        if (value := limit.value(job)) is not None
    ]
    if refusals:
        raise InvalidSpec([problem for refusal in refusals for problem in refusal.problems])


def missing_from(dialect: Dialect) -> list[str]:
    """What a dialect can't express, for people: `deadline (activeDeadlineSeconds): 2.2`, with the version that can."""
    return [
        f"{limit.field} ({limit.what}): {limit.since.value}"
        for limit in _LIMITS
        if _ORDER.index(dialect) < _ORDER.index(limit.since)
    ]


def needs_the_dialect(job: TrainJob | TrainJobManifest) -> bool:
    """Whether an older cluster may take the newest dialect's TrainJob and make something else of it.

    That is so where a TorchTune runtime or inline initializers work. All else that it has not got is a field which it
    does not know, and which strict validation refuses by name.
    """
    if isinstance(job, TrainJobManifest):
        return bool(needed_claim(job, Dialect.V2_1))
    return isinstance(job.trainer, BuiltinTrainer) or job.initializer is not None


def explicit_size(config: FrameworkConfig, model: str, dialect: Dialect) -> tuple[int | None, int | str | None]:
    """Nodes and processes on each for a TorchTune runtime, as the dialect must be told.

    Up to 2.1 the webhook checks nothing unless numProcPerNode is set, and then reads numNodes without looking whether
    it is there (Trainer 2.0.1 and 2.1.0, plugins/torch); `auto` means what leaving it out means. 2.0 takes `auto` for
    several even on one GPU, so the number of GPUs is given where it is known.
    """
    if dialect is Dialect.V2_2:
        return config.num_nodes, config.num_proc_per_node
    processes: int | str | None = config.num_proc_per_node or gpus(config.resources_per_node) or "auto"
    if dialect is Dialect.V2_0 and model == _UNLISTED:
        processes = None
    return config.num_nodes or 1, processes


def needed_claim(job: TrainJob | TrainJobManifest, dialect: Dialect) -> str:
    """The PersistentVolumeClaim that the user must have made for this TrainJob, besides a workspace; empty for none.

    Up to 2.1 the stock TorchTune runtimes keep data set, model and output on a claim of the runtime's own name, which
    nothing creates: pods wait for it for ever. From 2.2 on JobSet makes one for each TrainJob
    (manifests/base/runtimes/torchtune).
    """
    return job.runtime.name if on_stock_torchtune(job) and dialect is not Dialect.V2_2 else ""


def on_stock_torchtune(job: TrainJob | TrainJobManifest) -> bool:
    """Whether the runtime is one that the Trainer ships for TorchTune; all of them run both initializers."""
    return job.runtime.name.startswith(_STOCK_TORCHTUNE) and job.runtime.kind == "ClusterTrainingRuntime"


def on_stock_mpi(job: TrainJob) -> bool:
    """Whether the runtime is one that the Trainer ships for MPI: the training is started in a launcher's pod."""
    return job.runtime.name in _STOCK_MPI and job.runtime.kind == "ClusterTrainingRuntime"
