"""Program of the pod: `program.py STEPS LEARNING_RATE OUTPUT` writes the line's slope and intercept as JSON."""

import json
import pathlib
import sys

POINTS = [(x / 4, 2 * x / 4 + 1) for x in range(8)]


def main(steps: int, learning_rate: float, output: pathlib.Path) -> None:
    """Write the line, and print the loss in the format of transformers' Trainer."""
    slope = intercept = 0.0
    for step in range(1, steps + 1):
        errors = [(slope * x + intercept - y, x) for x, y in POINTS]
        loss = sum(error**2 for error, _ in errors) / len(errors)
        slope -= learning_rate * 2 * sum(error * x for error, x in errors) / len(errors)
        intercept -= learning_rate * 2 * sum(error for error, _ in errors) / len(errors)
        if step % 50 == 0:
            values = {"loss": f"{loss:.6f}", "epoch": f"{step / steps:.4f}", "step": str(step), "max_steps": str(steps)}
            print(values, flush=True)
    output.mkdir(parents=True, exist_ok=True)
    (output / "line.json").write_text(json.dumps({"slope": slope, "intercept": intercept}))
    print(f"y = {slope:.3f} x + {intercept:.3f}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), pathlib.Path(sys.argv[3]))
