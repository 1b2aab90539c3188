"""Function for a late run of `intervals`. The triggerer's PYTHONPATH must have the folder of this file."""

import logging


async def report_late_run(context):
    """Write a line to the triggerer's log; replace it with a message to your team."""
    run = context["dag_run"]
    logging.getLogger(__name__).warning("run %s of %s is late", run["dag_run_id"], run["dag_id"])
