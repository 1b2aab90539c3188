"""kfp's own warnings at import, which are not ours to mend, and nothing else."""

from __future__ import annotations
