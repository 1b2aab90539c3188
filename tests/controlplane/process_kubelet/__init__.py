"""The parts of a kubelet that only a real control plane needs: its HTTP client, its log and exec endpoint, isolation.

The kubelet itself is the laptop cluster's (`trainjob_local.kubelet`).
"""
