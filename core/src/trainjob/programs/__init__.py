"""Programs that run in pods, packed into the container's command: fetch and export.

They need the standard library, `trainjob.errors` and what upstream's images hold; no pydantic and no `trainjob.spec`.
"""
