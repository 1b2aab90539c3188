"""Reports for people: describe a TrainJob, list or watch many, check what works in a namespace."""
