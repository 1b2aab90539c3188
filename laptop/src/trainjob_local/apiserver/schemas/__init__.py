"""Our short descriptions of what custom resources look like."""
