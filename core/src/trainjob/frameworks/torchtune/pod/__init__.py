"""Program that starts or resumes TorchTune in the training's pod.

It resumes after the last complete epoch of an earlier attempt. It is packed into the pod's command, because the
workspace is only mounted in the pod. It imports the standard library only. TorchTune loads the checkpointer and the
schedule, which also import TorchTune.
"""
