"""TRL as a training framework.

The package `pod` contains the code that runs in the training's pod.
"""

from trainjob.frameworks.trl.config import TRLConfig, TRLLoraConfig

__all__ = ["TRLConfig", "TRLLoraConfig"]
