"""Parts of the programs that train a model of a workspace with transformers' Trainer, for several frameworks.

They check the model and the rows, decide from which checkpoint a run resumes, and record the final model. TRL,
LLaMA-Factory and Unsloth use them. A Python function does not, so they are not in `trainjob.frameworks.transformers`,
which is packed with each function that resumes.
"""
