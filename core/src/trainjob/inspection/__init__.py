"""Reports for users: describe a TrainJob, list or watch TrainJobs, check a namespace."""
