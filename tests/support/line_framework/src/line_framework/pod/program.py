"""Fit of a line, whose slope and intercept are the model.

It saves a checkpoint every 50 steps. A later attempt of the same run continues from the newest one.
"""

import argparse
import json
import pathlib
import struct

from line_framework.pod.record import write_record

CHECKPOINTS = "checkpoints"  # the export ignores folders
POINTS = [(x / 4, 2 * x / 4 + 1) for x in range(8)]


def main() -> None:
    """Run the training that the command's arguments describe."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--learning-rate", type=float, required=True)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--run", default="", help="owner of the checkpoints; if it is empty, none is continued")
    given = parser.parse_args()
    (given.output / CHECKPOINTS).mkdir(parents=True, exist_ok=True)
    write_record(given.output, complete=False)
    loss = fit(given.steps, given.learning_rate, given.output, given.run)
    write_record(given.output, complete=True, adapter=False, step=given.steps, epoch=1, metrics={"loss": loss})


def fit(steps: int, learning_rate: float, output: pathlib.Path, run: str) -> float:
    """Write the line, print the progress, and return the loss."""
    resumed, slope, intercept = load_checkpoint(output, run) if run else (0, 0.0, 0.0)
    if resumed:
        print(f"resumed from step {resumed}", flush=True)
    loss = 0.0
    for step in range(resumed + 1, steps + 1):
        errors = [(slope * x + intercept - y, x) for x, y in POINTS]
        loss = sum(error**2 for error, _ in errors) / len(errors)
        slope -= learning_rate * 2 * sum(error * x for error, x in errors) / len(errors)
        intercept -= learning_rate * 2 * sum(error for error, _ in errors) / len(errors)
        if step % 50 == 0:
            checkpoint = {"run": run, "step": step, "slope": slope, "intercept": intercept}
            write(output / CHECKPOINTS / f"checkpoint-{step}.json", json.dumps(checkpoint).encode())
            print(f"line: step {step} of {steps}, loss {loss:.6f}", flush=True)
    write_model(output, slope, intercept)
    print(f"y = {slope:.3f} x + {intercept:.3f}", flush=True)
    return loss


def load_checkpoint(output: pathlib.Path, run: str) -> tuple[int, float, float]:
    """Return step, slope and intercept of a run's newest checkpoint; zeros if it has none."""
    saved = [json.loads(path.read_text()) for path in output.glob(f"{CHECKPOINTS}/*.json")]
    own = [(one["step"], one["slope"], one["intercept"]) for one in saved if one["run"] == run]
    return max(own, default=(0, 0.0, 0.0))


def write_model(output: pathlib.Path, slope: float, intercept: float) -> None:
    """Write the model as Hugging Face's libraries do: configuration and safetensors."""
    write(output / "line.json", json.dumps({"slope": slope, "intercept": intercept}).encode())
    write(output / "config.json", json.dumps({"model_type": "line"}).encode())
    header = json.dumps({"line": {"dtype": "F64", "shape": [2], "data_offsets": [0, 16]}}).encode()
    weights = struct.pack("<Q", len(header)) + header + struct.pack("<2d", slope, intercept)
    write(output / "model.safetensors", weights)


def write(path: pathlib.Path, content: bytes) -> None:
    """Write a file that is complete under its name, even if this process is killed meanwhile."""
    new = path.with_name(f"{path.name}.new")
    new.write_bytes(content)
    new.replace(path)
