"""Program of the pod: `program.py STEPS LEARNING_RATE OUTPUT RUN` writes the line's slope and intercept as JSON.

It saves a checkpoint every 50 steps. A later attempt of the same run continues from the newest one.
"""

import json
import pathlib
import sys

POINTS = [(x / 4, 2 * x / 4 + 1) for x in range(8)]


def main(steps: int, learning_rate: float, output: pathlib.Path, run: str) -> None:
    """Write the line, and print the loss in the format of transformers' Trainer.

    Without a run, the training starts from the beginning.
    """
    output.mkdir(parents=True, exist_ok=True)
    resumed, slope, intercept = load_checkpoint(output, run) if run else (0, 0.0, 0.0)
    if resumed:
        print(f"resumed from step {resumed}", flush=True)
    for step in range(resumed + 1, steps + 1):
        errors = [(slope * x + intercept - y, x) for x, y in POINTS]
        loss = sum(error**2 for error, _ in errors) / len(errors)
        slope -= learning_rate * 2 * sum(error * x for error, x in errors) / len(errors)
        intercept -= learning_rate * 2 * sum(error for error, _ in errors) / len(errors)
        if step % 50 == 0:
            checkpoint = {"run": run, "step": step, "slope": slope, "intercept": intercept}
            write_json(output / f"checkpoint-{step}.json", checkpoint)
            values = {"loss": f"{loss:.6f}", "epoch": f"{step / steps:.4f}", "step": str(step), "max_steps": str(steps)}
            print(values, flush=True)
    write_json(output / "line.json", {"slope": slope, "intercept": intercept})
    print(f"y = {slope:.3f} x + {intercept:.3f}", flush=True)


def load_checkpoint(output: pathlib.Path, run: str) -> tuple[int, float, float]:
    """Return step, slope and intercept of a run's newest checkpoint; zeros if it has none."""
    saved = [json.loads(path.read_text()) for path in output.glob("checkpoint-*.json")]
    own = [(one["step"], one["slope"], one["intercept"]) for one in saved if one["run"] == run]
    return max(own, default=(0, 0.0, 0.0))


def write_json(path: pathlib.Path, content: object) -> None:
    """Write a file that is complete under its name, even if this process is killed meanwhile."""
    new = path.with_name(f"{path.name}.new")
    new.write_text(json.dumps(content))
    new.replace(path)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), pathlib.Path(sys.argv[3]), sys.argv[4])
