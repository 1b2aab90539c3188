"""TRL's implementation of `trainjob.spec.framework.Framework`."""

from __future__ import annotations

from trainjob.frameworks.trl.arguments import build_program_arguments
from trainjob.frameworks.trl.config import TRLConfig
from trainjob.frameworks.workspace_framework import WorkspaceFramework
from trainjob.spec.framework import Framework

FRAMEWORK: Framework = WorkspaceFramework("TRL", TRLConfig, "trainjob.frameworks.trl.pod", build_program_arguments)
