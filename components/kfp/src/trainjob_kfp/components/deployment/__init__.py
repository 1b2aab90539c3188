"""Components that hand a model on."""
