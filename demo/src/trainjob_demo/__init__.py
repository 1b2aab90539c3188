"""The command `trainjob demo`: a chain of TrainJobs on this machine."""

from importlib.metadata import version

__version__ = version("trainjob-demo")
