"""Program that checks the input, starts sentence-transformers under torchrun, and resumes an earlier attempt.

By default it is packed into the pod's command. The module `training`, which torchrun's processes load, also imports
torch, transformers and sentence-transformers; all others import the standard library, modules of `trainjob` and, to
check the dataset's rows, `datasets`.
"""
