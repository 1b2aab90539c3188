"""Components that bring in datasets and models."""
