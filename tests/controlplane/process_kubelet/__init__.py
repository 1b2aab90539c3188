"""The parts of a kubelet that only a real control plane needs.

These are its HTTP client, its endpoint for logs and exec, and the isolation of containers. The kubelet itself is that
of the laptop cluster (`trainjob_local.kubelet`).
"""
