"""Tests of all distributions; README.md says what belongs where."""
