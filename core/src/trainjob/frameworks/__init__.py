"""Training frameworks, one package each; the rest of the core knows them as `trainjob.spec.framework.Framework`."""
