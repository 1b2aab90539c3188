"""Components that train models, and the component that cleans up."""
