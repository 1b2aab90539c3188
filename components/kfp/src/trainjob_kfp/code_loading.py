"""Program of a step that loads the code of the components from a ConfigMap.

A component's command contains the text of this function, and Argo stores a command about ten times. So it is short, and
uses only the standard library.
"""


def load_code(name: str, key: str) -> None:
    """Add the code in a ConfigMap of the pod's own namespace to `sys.path`.

    Outside of a pod, for example under `kfp.local`, nothing is loaded, and the installed packages are used. While the
    API server does not respond, the request is repeated every 2 s for about a minute.

    Args:
        name: name of the ConfigMap.
        key: key of the code in it: a zip file, compressed with xz, in base64.

    Raises:
        SystemExit: the ConfigMap cannot be read; the message says what to do.
    """
    import base64
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
    tls = ssl.create_default_context(cafile=str(account / "ca.crt"))
    server = os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"])
    path, found = f"/api/v1/namespaces/{namespace}/configmaps/{name}", {}
    for pause in [2] * 30 + [0]:
        try:
            connection = HTTPSConnection(*server, context=tls, timeout=20)
            connection.request("GET", path, headers={"Authorization": "Bearer " + token})
            response = connection.getresponse()
            found = json.load(response)
            if response.status < 500 and response.status != 429:
                break
        except (OSError, HTTPException, ValueError) as error:  # ValueError: no JSON, but the page of a proxy
            found = {"message": str(error)}
        time.sleep(pause)
    if "binaryData" not in found:
        raise SystemExit(
            f"The step has no code of trainjob: {found.get('message')}\nHint: create ConfigMap {name} with the command "
            f"python -m trainjob_kfp.code_configmap | kubectl apply -n {namespace} -f -"
        )
    archive = Path(tempfile.mkdtemp()) / "trainjob.zip"
    archive.write_bytes(lzma.decompress(base64.b64decode(found["binaryData"][key])))
    sys.path.insert(0, str(archive))
