"""Copies of complete checkpoints in an object store, for a training whose volume is lost.

The copy of a checkpoint is below `PREFIX/OWNER/checkpoint-N/`. Its mark `trainjob_complete` is written last and deleted
first, so a copy with a mark has all its files. The mark has the SHA-256 of each file as it was sent.
"""
