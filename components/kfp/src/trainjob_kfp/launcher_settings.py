"""Warnings about settings on a task that its TrainJob does not get, when a pipeline is written."""

from __future__ import annotations

import warnings
from typing import Any

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
