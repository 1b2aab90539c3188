"""Components that train."""
