"""Train XGBoost on two nodes: each has its share of the rows, and both get the same trees.

The example uses the stock runtime `xgboost-distributed`. Rank 0 starts the tracker. The Trainer sets variables with the
tracker's address and the number of nodes. For GPUs, set `resources_per_node={"gpu": 1}`, and `"device": "cuda"` in the
parameters.
"""

from __future__ import annotations

from airflow.sdk import dag, task


@dag(schedule=None, default_args={"retries": 2}, doc_md=__doc__)
def boosted_trees():
    @task.trainjob(runtime="xgboost-distributed", num_nodes=2)
    def train(rows, rounds):
        """Learn to separate points inside a circle from points outside of it."""
        import os
        import socket

        import numpy
        import xgboost
        from xgboost import collective
        from xgboost.tracker import RabitTracker

        rank, workers = int(os.environ["DMLC_TASK_ID"]), int(os.environ["DMLC_NUM_WORKER"])
        host, port = os.environ["DMLC_TRACKER_URI"], int(os.environ["DMLC_TRACKER_PORT"])
        points = numpy.random.default_rng(7).uniform(-1, 1, (rows, 2))
        inside = (points**2).sum(axis=1) < 0.5
        train, test = slice(rank, rows // 2, workers), slice(rows // 2, rows)
        tracker = RabitTracker(workers, socket.gethostbyname(host), port) if rank == 0 else None
        if tracker:
            tracker.start()
        with collective.CommunicatorContext(
            dmlc_tracker_uri=host, dmlc_tracker_port=port, dmlc_task_id=str(rank), dmlc_retry=10
        ):
            data = xgboost.DMatrix(points[train], inside[train])
            print(f"worker {collective.get_rank()} of {collective.get_world_size()}: {data.num_row()} rows")
            booster = xgboost.train({"objective": "binary:logistic", "max_depth": 4, "nthread": 1}, data, rounds)
        if tracker:
            tracker.wait_for()
        right = (booster.predict(xgboost.DMatrix(points[test])) > 0.5) == inside[test]
        return {"accuracy": float(right.mean()), "workers": workers}

    @task
    def report(training):
        learned = training["result"]  # the value that rank 0 returned
        print(
            f"{learned['accuracy']:.0%} of the points are classified correctly, learned by {learned['workers']} workers"
        )
        return learned

    report(train(rows=2000, rounds=20))


boosted_trees()
