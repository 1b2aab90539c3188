"""Servers for the demonstration and the examples."""
