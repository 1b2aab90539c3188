"""Components that score models."""
