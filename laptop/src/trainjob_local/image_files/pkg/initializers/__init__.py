"""Downloads a data set or a model into the workspace, as upstream's initializer images do.

Module names, environment variables, addresses and folders are those of Trainer 2.3 `pkg/initializers`; what is
downloaded is the same. Different: a step says how far it is, and fails with one sentence instead of a traceback;
nothing downloaded is a failure.
"""
