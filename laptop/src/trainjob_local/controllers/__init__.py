"""The controllers of the laptop cluster, the scheduler and the binding of claims.

The controllers create TrainJob -> JobSet -> Job -> Pod. Each one decides in a pure function of the owner and its
children (`trainjobs.decide`, `jobsets.decide`, `jobs.decide`, `scheduling.why_not`, ...). `loop.Loop` calls these
functions and carries out their decisions.
"""
