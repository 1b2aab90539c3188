"""Resume: a fine-tuning goes on after the last whole epoch that an earlier attempt of the same run saved.

It runs in the training's own pod, packed into its command, as only there the workspace can be seen; so everything in
this package is the standard library, but the checkpointer, which TorchTune loads.
"""
