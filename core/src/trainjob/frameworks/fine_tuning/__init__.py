"""Parts of the programs that train a model of a workspace with transformers' Trainer, for several frameworks.

They check the model and the rows, decide from which checkpoint a run resumes, and record the final model. A Python
function does not use them, so they are not in `trainjob.frameworks.transformers`, which is packed with each function
that resumes.
"""
