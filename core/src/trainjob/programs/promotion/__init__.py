"""The promotion program: it makes a model the served one, or the one before it again.

It runs in the pod of the steps [trainjob.spec.Promote][] and [trainjob.spec.Rollback][], and needs only the standard
library. It is the only program of this project that calls the API server.
"""
