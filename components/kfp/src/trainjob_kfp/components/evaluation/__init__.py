"""Components that evaluate models."""
