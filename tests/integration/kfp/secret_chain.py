"""A chain with credentials: secret_chain.py FOLDER SECRET CLAIM HUB.

The first step gets them with `secret=`, and the second step in its environment.
"""

import sys

from kfp import compiler, components, dsl, local

from trainjob_kfp import initialize_dataset, train


@dsl.pipeline
def secret_chain(secret: str, claim: str, hub: str):
    dataset = initialize_dataset(
        storage_uri="hf://demo/gated", secret=secret, workspace=claim, env={"HF_ENDPOINT": hub}
    )
    script = 'test -n "$TOKEN"; cat /workspace/dataset/rows.txt; printf "%s" "$TOKEN" | sha256sum'
    train(
        image="busybox",
        command=["sh", "-ec", script],
        workspace=claim,
        env={"TOKEN": {"name": secret, "key": "HF_TOKEN"}},
    ).after(dataset)


if __name__ == "__main__":
    folder, secret, claim, hub = sys.argv[1:]
    compiler.Compiler().compile(secret_chain, f"{folder}/secret_chain.yaml")
    local.init(local.SubprocessRunner(use_venv=False), pipeline_root=f"{folder}/outputs", raise_on_error=True)
    components.load_component_from_file(f"{folder}/secret_chain.yaml")(secret=secret, claim=claim, hub=hub)
