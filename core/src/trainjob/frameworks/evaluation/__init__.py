"""Program that scores models, compares them row by row, and applies gates.

Scores are those of tasks of lm-evaluation-harness, of held-out rows, and of a function.

It runs in the pod of the step [trainjob.spec.Evaluate][].
"""
