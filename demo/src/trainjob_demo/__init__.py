"""The command `trainjob demo`: a chain of TrainJobs on this machine."""
