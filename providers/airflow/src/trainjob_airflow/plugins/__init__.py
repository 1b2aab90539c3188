"""Page in the Airflow UI that shows the TrainJobs of its DAGs."""
