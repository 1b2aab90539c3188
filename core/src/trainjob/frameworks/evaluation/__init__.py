"""Program that scores models with lm-evaluation-harness, compares them row by row, and applies gates.

It runs in the pod of the step [trainjob.spec.Evaluate][].
"""
