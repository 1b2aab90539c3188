"""Task decorators of the provider."""
