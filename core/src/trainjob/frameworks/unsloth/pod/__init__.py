"""Program that checks the input, starts Unsloth under torchrun, and resumes an earlier attempt.

By default it is packed into the pod's command. The modules that torchrun's processes load also import torch, TRL and
Unsloth; all others import the standard library and, to check the dataset's rows, `datasets`.
"""
