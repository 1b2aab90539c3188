"""Packages of the trackers' libraries, with the hashes of their wheels."""
