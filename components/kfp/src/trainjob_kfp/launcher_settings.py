"""Settings on a task, when a pipeline is written: parameters in them, and warnings about those without effect."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from kfp.dsl.pipeline_channel import extract_pipeline_channels_from_any

# Keys of the task's configuration (kfp 2.17, `kfp.kubernetes`): setting, and the input to use instead. The last
# two are in `podMetadata`.
_MEMORY_VOLUME = '{"name": "shm", "source": {"emptyDir": {"medium": "Memory"}}, "mount_path": "/dev/shm"}'
_SETTINGS = {
    "activeDeadlineSeconds": ("set_timeout", "deadline"),
    "emptyDirMounts": ("empty_dir_mount", f"volumes=[{_MEMORY_VOLUME}]"),
    "fieldPathAsEnv": (
        "use_field_path_as_env",
        'env={"POD_NAME": {"fieldRef": {"fieldPath": "metadata.name"}}}',
    ),
    "genericEphemeralVolume": ("add_ephemeral_volume", "volumes"),
    "imagePullPolicy": ("set_image_pull_policy", "runtime, with a runtime that has imagePullPolicy"),
    "imagePullSecret": ("set_image_pull_secrets", 'placement={"image_pull_secrets": ["registry"]}'),
    "annotations": ("add_pod_annotation", "annotations"),
    "labels": ("add_pod_label", "labels"),
    "securityContext": ("set_security_context", 'placement={"security_context": {"run_as_user": 1000}}'),
}

_RESOURCE_SETTINGS = (
    *("set_cpu_request", "set_cpu_limit", "set_memory_request", "set_memory_limit"),
    *("set_accelerator_type", "set_accelerator_limit", "set_gpu_limit", "add_node_selector_constraint"),
)


def register_parameters(task: Any) -> None:
    """Make the resource settings of a task register the parameters and outputs that they use.

    kfp 2.17 registers only those in settings of `kfp.kubernetes`. In an exit handler, a condition or a loop, the driver
    would not find the others.
    """
    for name in _RESOURCE_SETTINGS:
        setattr(task, name, _registering(task, getattr(task, name)))


def _registering(task: Any, setting: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(setting)
    def call(value: Any) -> Any:
        task.register_pipeline_channels(extract_pipeline_channels_from_any(value))
        return setting(value)

    return call


class LauncherSettings(dict[str, Any]):
    """Platform configuration of a task that warns of settings without effect on the TrainJob.

    Kubeflow Pipelines 2.17 does not pass them to a component: `dsl.TaskConfig` has no field for them.
    """

    def __setitem__(self, platform: str, config: Any) -> None:
        """Store a platform's configuration; `kfp.kubernetes` does so after each setting."""
        known, new = ({**each, **each.get("podMetadata", {})} for each in (self.get(platform, {}), config))
        super().__setitem__(platform, config)
        for key, (setting, advice) in _SETTINGS.items():
            if new.get(key) != known.get(key):
                text = f"{setting} applies to the launcher's pod only, not to the TrainJob: use the input {advice}"
                warnings.warn(text, UserWarning, stacklevel=3)  # the line that calls the setting
