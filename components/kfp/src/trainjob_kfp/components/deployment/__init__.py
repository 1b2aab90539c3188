"""Components that export models."""
