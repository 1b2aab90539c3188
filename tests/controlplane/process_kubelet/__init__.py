"""The parts of a kubelet that only a real control plane needs.

These are its HTTP client, its endpoint for logs and exec, and isolation. The kubelet itself is the laptop cluster's
(`trainjob_local.kubelet`).
"""
