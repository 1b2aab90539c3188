"""Features that older dialects of the TrainJob API lack, and values that they need.

On an older Trainer, such a request would be refused, fail in its pod or lose a field silently. The checks here refuse
it before anything is sent, and name the version that supports it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trainjob.errors import InvalidSpec
from trainjob.manifest.dialect import Dialect
from trainjob.spec import BuiltinTrainer, FrameworkConfig, TrainJob, TrainJobManifest
from trainjob.spec.base import invalid_field
from trainjob.spec.initializers import DEFAULT_MODEL_IGNORE_PATTERNS
from trainjob.spec.queue import PODSET_PREFIX
from trainjob.spec.resources import count_gpus, is_stock_builtin
from trainjob.spec.volumes import WORKSPACE_VOLUME

_DIALECTS = tuple(Dialect)
_STOCK_MPI = ("deepspeed-distributed", "mlx-distributed")
_USE_WORKSPACE = "use FineTune(workspace=...), which works with every Trainer"
# The webhook's list of models lacks this one and has a 7B that does not exist instead. The webhook reads the list only
# if numProcPerNode is set (Trainer 2.0.1, pkg/constants/constants.go and plugins/torch/torch.go).
_UNLISTED_MODEL = "llama3.2-3b"


@dataclass(frozen=True)
class _Feature:
    """A feature that a dialect introduced.

    Attributes:
        field: name of the field in a request.
        since: the first dialect that has the feature.
        get_value: function that returns the value in a request that needs the feature; None if the request does not
            need it.
        name: name of the feature that older dialects lack, for the error.
        alternative: an alternative on older dialects, for the error.
    """

    field: str
    since: Dialect
    get_value: Callable[[TrainJob], Any]
    name: str
    alternative: str


def _config(job: TrainJob) -> FrameworkConfig | None:
    return job.trainer.config if isinstance(job.trainer, BuiltinTrainer) else None


def _store(kind: str) -> Callable[[TrainJob], str | None]:
    def get_uri(job: TrainJob) -> str | None:
        uri = str(getattr(getattr(job.initializer, kind, None), "storage_uri", ""))
        return uri if uri and not uri.startswith("hf://") else None

    return get_uri


def _patterns(kind: str, usual: tuple[str, ...] | None) -> Callable[[TrainJob], tuple[str, ...] | None]:
    def get_patterns(job: TrainJob) -> tuple[str, ...] | None:
        patterns: tuple[str, ...] | None = getattr(getattr(job.initializer, kind, None), "ignore_patterns", None)
        return None if not patterns or patterns == usual else patterns

    return get_patterns


def _peft(job: TrainJob) -> str | None:
    config = _config(job)
    return "a LoraConfig" if getattr(config, "peft_config", None) else None


def _unlisted_processes(job: TrainJob) -> int | None:
    config = _config(job)
    return config.num_proc_per_node if config and job.runtime.builtin_model == _UNLISTED_MODEL else None


def _unshipped_runtime(job: TrainJob) -> str | None:
    return job.runtime.name if _config(job) and job.runtime.builtin_model == "qwen2.5-1.5b" else None


def _placement_field(name: str) -> Callable[[TrainJob], Any]:
    return lambda job: getattr(job.placement, name, None) or None


def _pod_annotations(job: TrainJob) -> str | None:
    given = [key for key in job.annotations if key.startswith(PODSET_PREFIX)]
    return next(iter([*given, *(job.queue.pod_annotations if job.queue else ())]), None)


def _repeated_volume(job: TrainJob) -> str | None:
    names = [*([WORKSPACE_VOLUME] if job.workspace else []), *(volume.name for volume in job.volumes)]
    again = next((name for name in names if names.count(name) > 1), None)
    return None if again is None else f"{again}, several times"


_USE_STEPS = "run InitializeDataset and InitializeModel as separate steps with a workspace"
_FEATURES = (
    _Feature(
        "deadline",
        Dialect.V2_2,
        lambda job: str(job.deadline) if job.deadline else None,
        "activeDeadlineSeconds",
        "limit the wait instead: set the step's own limits, or the time-out of its workflow task",
    ),
    _Feature(
        "placement.affinity",
        Dialect.V2_1,
        _placement_field("affinity"),
        "affinity of pods",
        "use placement.node_selector",
    ),
    _Feature(
        "watchdog.avoid_nodes",
        Dialect.V2_1,
        lambda job: (job.watchdog and job.watchdog.avoid_nodes) or None,
        "affinity of pods",
        "leave it out",
    ),
    _Feature(
        "placement.image_pull_secrets",
        Dialect.V2_1,
        _placement_field("image_pull_secrets"),
        "imagePullSecrets of pods",
        "name them in a service account and give placement.service_account_name",
    ),
    *(
        _Feature(
            f"placement.{name}",
            Dialect.V2_2,
            _placement_field(name),
            f"a security context of {owner}",
            "set it in a training runtime",
        )
        for name, owner in (("security_context", "pods"), ("container_security_context", "containers"))
    ),
    _Feature(
        "queue.topology",
        Dialect.V2_1,
        _pod_annotations,
        "an annotation of pods, which Kueue reads for their topology",
        "set it in a training runtime",
    ),
    _Feature(
        "runtime_patches",
        Dialect.V2_2,
        lambda job: f"{len(job.runtime_patches)} patches" if job.runtime_patches else None,
        "runtimePatches",
        "set it in a training runtime",
    ),
    _Feature(
        "volumes",
        Dialect.V2_1,
        _repeated_volume,
        "several mounts of one volume",
        "give each mount its own volume name",
    ),
    *(
        _Feature(
            f"initializer.{kind}.storage_uri",
            Dialect.V2_1,
            _store(kind),
            f"a {kind} from a store other than hf://",
            _USE_STEPS,
        )
        for kind in ("dataset", "model")
    ),
    *(
        _Feature(
            f"initializer.{kind}.ignore_patterns", Dialect.V2_1, _patterns(kind, usual), "IGNORE_PATTERNS", _USE_STEPS
        )
        for kind, usual in (("dataset", None), ("model", DEFAULT_MODEL_IGNORE_PATTERNS))
    ),
    _Feature("trainer.config.peft_config", Dialect.V2_1, _peft, "LoRA in a built-in trainer", _USE_WORKSPACE),
    _Feature(
        "trainer.config.num_proc_per_node",
        Dialect.V2_1,
        _unlisted_processes,
        f"a number of processes for {_UNLISTED_MODEL}",
        "omit it to run one process on each GPU",
    ),
    _Feature("runtime", Dialect.V2_1, _unshipped_runtime, "Qwen in a built-in trainer", _USE_WORKSPACE),
)
"""Sources: Trainer v2.0.1 and v2.1.0, pkg/apis/trainer/v1alpha1/trainjob_types.go, pkg/initializers,
pkg/runtime/framework/plugins/torch and pkg/constants/constants.go."""


def check_dialect_support(job: TrainJob, dialect: Dialect) -> None:
    """Refuse a request with fields that the dialect cannot express.

    Raises:
        InvalidSpec: the error names each such field, the dialect, the version that supports the field, and an
            alternative.
    """
    missing = [feature for feature in _FEATURES if _DIALECTS.index(dialect) < _DIALECTS.index(feature.since)]
    refusals = [
        invalid_field(
            feature.field,
            value,
            f"the Trainer of this cluster has API {dialect.value}, and {feature.name} needs Trainer "
            f"{feature.since.value} or later: upgrade it, or {feature.alternative}",
        )
        for feature in missing
        if (value := feature.get_value(job)) is not None
    ]
    if refusals:
        raise InvalidSpec([problem for refusal in refusals for problem in refusal.problems])


def list_unsupported_features(dialect: Dialect) -> list[str]:
    """Return one line for each feature that a dialect lacks, to be read by people.

    Each line ends with the version that has the feature: `deadline (activeDeadlineSeconds): 2.2`.
    """
    return [
        f"{feature.field} ({feature.name}): {feature.since.value}"
        for feature in _FEATURES
        if _DIALECTS.index(dialect) < _DIALECTS.index(feature.since)
    ]


def requires_newest_dialect(job: TrainJob | TrainJobManifest) -> bool:
    """Return whether an older cluster might accept the newest dialect and run it differently.

    This is so if the job uses a built-in trainer or inline initializers. The newest dialect's other additions are
    fields that an older cluster does not know. Strict field validation refuses those by name.
    """
    if isinstance(job, TrainJobManifest):
        return bool(get_required_claim(job, Dialect.V2_1))
    return isinstance(job.trainer, BuiltinTrainer) or job.initializer is not None


def resolve_node_counts(config: FrameworkConfig, model: str, dialect: Dialect) -> tuple[int | None, int | str | None]:
    """Return the nodes, and the processes on each node, that a built-in trainer needs.

    Up to 2.1 the webhook checks nothing unless numProcPerNode is set. If it is set, the webhook reads numNodes without
    checking that it exists (Trainer 2.0.1 and 2.1.0, plugins/torch). The value `auto` means the same as no value.
    Trainer 2.0 takes `auto` for several processes even on one GPU, so the number of GPUs is returned if it is known.
    """
    if dialect is Dialect.V2_2:
        return config.max_nodes, config.num_proc_per_node
    processes: int | str | None = config.num_proc_per_node or count_gpus(config.resources_per_node) or "auto"
    if dialect is Dialect.V2_0 and model == _UNLISTED_MODEL:
        processes = None
    return config.max_nodes or 1, processes


def get_required_claim(job: TrainJob | TrainJobManifest, dialect: Dialect) -> str:
    """Return the PersistentVolumeClaim that the user must create for this TrainJob.

    A workspace's claim is not included. Up to 2.1 the stock runtimes with a built-in trainer keep dataset, model and
    output on a claim with the runtime's own name. Nothing creates that claim, and without it the pods stay pending
    forever. From 2.2 on, JobSet creates a claim for each TrainJob (manifests/base/runtimes).

    Returns:
        The claim's name; empty if no claim is needed.
    """
    needs_claim = dialect is not Dialect.V2_2 and is_stock_builtin(job.runtime.name, job.runtime.kind)
    return job.runtime.name if needs_claim else ""


def uses_stock_mpi(job: TrainJob) -> bool:
    """Return whether the runtime is one that the Trainer ships for MPI.

    On these runtimes the pod of the `launcher` job starts the training.
    """
    return job.runtime.name in _STOCK_MPI and job.runtime.kind == "ClusterTrainingRuntime"
