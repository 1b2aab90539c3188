"""The controllers of the laptop cluster, the scheduler and the binding of claims.

The controllers create TrainJob -> JobSet -> Job -> Pod. Each controller decides in a pure function of the owner and its
children (`trainjobs.decide`, `jobsets.decide`, `jobs.decide`, `scheduling.unschedulable_reason`, ...).
`controller_manager.ControllerManager` calls the reconcilers and applies their decisions.
"""
