"""Promote the model that a person has approved by starting this pipeline.

    promote_approved.py compile OUT.yaml
    promote_approved.py run proposal='{"model": "/workspace/candidate", "report": {"passed": true}}'

`proposal` is the output of the step `propose` of `evaluate_candidate.py`, whose page `summary` the person has read. A
model whose gates have failed is refused. The run shows who has approved what. With KServe, give `service` without
`function`.
"""

from kfp import dsl
from tickets_llm import main

from trainjob_kfp import promote_model, source
from trainjob_kfp.image import BASE_IMAGE


def link_champion(uri):
    """Make `champion` a link to a model such as `pvc://tickets/candidate`, or remove it."""
    import os
    from pathlib import Path

    champion = Path(os.environ["FOLDER"], "champion")
    if not uri:
        champion.unlink(missing_ok=True)
        return
    new = champion.with_name("champion.new")
    new.unlink(missing_ok=True)
    new.symlink_to(uri.split("/", 3)[3])
    new.replace(champion)


@dsl.component(base_image=BASE_IMAGE, install_kfp_package=False)
def read_proposal(proposal: dict) -> str:
    """Return the address of the model if its gates have passed."""
    if not proposal["report"]["passed"]:
        raise SystemExit(f"{proposal['model']} is not promoted: a gate of its evaluation has failed")
    return proposal["model"]


@dsl.pipeline(name="promote-approved")
def promote_approved(proposal: dict, workspace: str = "tickets"):
    promote_model(
        model=read_proposal(proposal=proposal).output,
        workspace=workspace,
        service="tickets",
        function=source(link_champion),
        env={"FOLDER": "/workspace"},
    )


if __name__ == "__main__":
    main(promote_approved, __doc__)
