"""Extra links of the provider."""
