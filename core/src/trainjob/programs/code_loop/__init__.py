"""The program of the pods of `trainjob dev`: it runs a training again after each change of its project.

It needs only the standard library of Python 3.8 or later, and travels inside the container's command, together with
`trainjob.programs.code`.
"""
