"""Recorder of a training's metrics, which sends them to an experiment tracker.

It is a process of its own with the tracker's client library. The metrics are those that the training writes to its log,
which `trainjob.frameworks.log_parser` reads. Only the first node of a training is tracked, because rank 0 writes the
metrics.
"""
