"""The code program: it unpacks a project in a pod, installs its packages and starts the command of a step.

It needs only the standard library of Python 3.8 or later, and travels inside the container's command.
"""
