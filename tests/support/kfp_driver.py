"""Stand-in for KFP's driver: kfp_driver.py --type TYPE [--task INPUT --container JSON] --OUTPUT_path FILE...

It writes the outputs of KFP 2.17's driver (backend/src/v2/cmd/driver, backend/src/v2/driver). For a container, the
patch of the pod's spec starts KFP's launcher with the component's command. The task's settings and the cache need KFP's
own server, so the complete input of the component is given, and no step is cached.
"""

import argparse
import json
from pathlib import Path

LAUNCH = "/kfp-launcher/launch"

parser = argparse.ArgumentParser()
for option in ("type", "task", "container"):
    parser.add_argument(f"--{option}", default="")
for output in ("execution_id", "iteration_count", "condition", "cached_decision", "pod_spec_patch"):
    parser.add_argument(f"--{output}_path", type=Path)
options = parser.parse_args()

outputs = {options.execution_id_path: "1", options.iteration_count_path: "0", options.condition_path: "true"}
if options.type == "CONTAINER":
    component = json.loads(options.container)
    words = [options.task if word == "{{$}}" else word for word in component["command"] + component["args"]]
    main = {
        "name": "main",
        "image": component["image"],
        "command": ["python3", LAUNCH, *words],
        "env": component["env"],
        "resources": {},
    }
    outputs[options.pod_spec_patch_path] = json.dumps({"containers": [main]})
    outputs[options.cached_decision_path] = "false"
for path, value in outputs.items():
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(value)
