"""Program that checks the input, starts LLaMA-Factory under torchrun, and resumes an earlier attempt.

By default it is packed into the pod's command. The modules that torchrun's processes load also import torch,
transformers and LLaMA-Factory; all others import the standard library and, to check the dataset's rows, `datasets`.
"""
