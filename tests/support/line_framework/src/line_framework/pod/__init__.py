"""Program of the pod. It needs only Python, because the pod's image has no other package."""
