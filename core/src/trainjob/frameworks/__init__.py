"""Training frameworks, one package each.

The rest of the core uses them through the interface `trainjob.spec.framework.Framework`.
"""
