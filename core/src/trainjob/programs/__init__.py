"""Programs that run in pods, packed into the container's command or from their image: fetch and export.

They need the standard library, `trainjob.errors` and the packages in the Trainer's images. They import neither pydantic
nor `trainjob.spec`.
"""
