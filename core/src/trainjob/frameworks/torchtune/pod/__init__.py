"""Program that starts or resumes TorchTune in the training's pod.

It resumes after the last complete epoch of an earlier attempt. It runs in the pod, packed into its command or from its
image, because the workspace is only mounted there. It imports the standard library only. TorchTune loads the
checkpointer and the schedule, which also import TorchTune.
"""
