"""Program that generates an answer for each row of a dataset, with shards of the rows divided among nodes.

It runs in the pods of the step [trainjob.spec.Generate][].
"""
