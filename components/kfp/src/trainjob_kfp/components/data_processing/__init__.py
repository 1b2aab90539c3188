"""Components that fetch datasets and models."""
