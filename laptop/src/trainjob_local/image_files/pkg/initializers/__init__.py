"""Initializers that download a dataset or a model into the workspace, like the Trainer's.

Module names, environment variables, addresses, folders and downloaded files are those of Trainer 2.3
`pkg/initializers`. There are three differences. The step logs its progress. A failure prints one sentence instead of
a traceback. It is a failure if no file is to be downloaded.
"""
