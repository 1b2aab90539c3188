"""Program that starts a training in its pod, and supervises it: it sends metrics to a tracker, and finds a hang.

It starts the training's command as a child process and copies its output. For tracking, a second child process, the
recorder, has the tracker's client library. So nothing that the tracker does can end or delay the training. The watchdog
reads the heartbeats of the training's processes ([trainjob.heartbeats][]), and looks at a process only if it is silent.
"""
