"""Program that starts a training in its pod, and sends its metrics to an experiment tracker.

It starts the training's command as a child process and copies its output. A second child process, the recorder, has the
tracker's client library. So nothing that the tracker does can end or delay the training. The metrics are those that the
training writes to its log, which `trainjob.frameworks.log_parser` reads. Only the first node of a training is tracked,
because rank 0 writes the metrics.
"""
