"""The controllers of the laptop cluster: TrainJob -> JobSet -> Job -> Pod, the scheduler and the binding of claims.

What each decides is a pure function of the owner and its children (`trainjobs.decide`, `jobsets.decide`, `jobs.decide`,
`scheduling.why_not`, ...); `loop.Loop` asks them and carries out what they decide.
"""
