"""The program that starts TorchTune in the training's pod, and resumes after the last epoch of an earlier attempt.

It is packed into the pod's command, because the workspace is only mounted there. It imports the standard library only;
the checkpointer and the schedule, which TorchTune loads, import TorchTune as well.
"""
