"""Program of a step that loads the code of the components from a ConfigMap.

A component's command contains the text of this function, and Argo stores a command about ten times. So it is short, and
uses only the standard library.
"""


def load_code(name: str) -> None:
    """Add the code in a ConfigMap of the pod's own namespace to `sys.path`.

    Outside of a pod, for example under `kfp.local`, nothing is loaded, and the installed packages are used. While the
    API server does not respond, the request is repeated every 2 s for about a minute.

    Args:
        name: name of the ConfigMap, which ends with the SHA-256 of the code.

    Raises:
        SystemExit: the ConfigMap cannot be read, or has other code; the message says what to do.
    """
    import base64
    import hashlib
    import json
    import lzma
    import os
    import ssl
    import sys
    import tempfile
    import time
    from http.client import HTTPException, HTTPSConnection
    from pathlib import Path

    account = Path("/var/run/secrets/kubernetes.io/serviceaccount")
    if not account.exists():
        return
    token, namespace = ((account / file).read_text() for file in ("token", "namespace"))
    headers = {"Authorization": "Bearer " + token}
    tls = ssl.create_default_context(cafile=str(account / "ca.crt"))
    server = os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"])
    found = {}
    for pause in [2] * 30 + [0]:
        try:
            api = HTTPSConnection(*server, context=tls, timeout=20)
            api.request("GET", f"/api/v1/namespaces/{namespace}/configmaps/{name}", headers=headers)
            reply = api.getresponse()
            found = json.load(reply)
            if reply.status < 500 and reply.status != 429:
                break
        except (OSError, HTTPException, ValueError) as error:  # ValueError: no JSON, but the page of a proxy
            found = {"message": str(error)}
        time.sleep(pause)
    data = found.get("binaryData")
    code = lzma.decompress(base64.b64decode(data["code.zip.xz"])) if data else b""
    if not name.endswith(hashlib.sha256(code).hexdigest()):
        raise SystemExit(
            f"The step has no code of trainjob: {found.get('message', 'changed')}\n"
            f"Hint: python -m trainjob_kfp.code_configmap | kubectl apply --server-side -n {namespace} -f -"
        )
    archive = Path(tempfile.mkdtemp(), "trainjob.zip")
    archive.write_bytes(code)
    sys.path.insert(0, str(archive))
