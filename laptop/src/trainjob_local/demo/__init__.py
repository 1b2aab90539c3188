"""Data and servers of the demonstration and the examples."""
