"""CPU time for reading a large YAML file, compared with PyYAML's own loaders."""

import time

import yaml

from tests.support.markdown import table
from tools.bench.sizes import size
from trainjob.spec.yaml_documents import parse_yaml

_CHARACTERS = size(900_000, 9_000)
_MAX_SECONDS = 2.0
_RUNS = size(3, 1)
READERS = {
    "trainjob": ("the reader of all commands", parse_yaml),
    "libyaml": ("`yaml.CSafeLoader`", lambda text: yaml.load(text, yaml.CSafeLoader)),
    "python": ("`yaml.SafeLoader`", lambda text: yaml.load(text, yaml.SafeLoader)),
}


def measure():
    """Return the seconds of each reader, the best of three, and the size of the text."""
    text = _text()
    return {
        "characters": len(text),
        "seconds": {name: min(_time(read, text) for _ in range(_RUNS)) for name, (_, read) in READERS.items()},
    }


def section(found):
    """Return the section of the page."""
    rows = [(READERS[name][0], f"{seconds:.2f}") for name, seconds in found["seconds"].items()]
    return (
        "## Reading YAML\n\n"
        f"One document of {found['characters']:,} characters with environment variables of many containers; the best "
        f"of {_RUNS}.\n\n{table(('Reader', 'CPU s'), rows)}"
    )


def goals(found):
    """Yield the goals, whether each is met, and the measured values."""
    seconds = found["seconds"]["trainjob"]
    goal = f"reading 900 KB of YAML takes at most {_MAX_SECONDS:g} s of CPU time"
    yield goal, seconds <= _MAX_SECONDS, f"{seconds:.2f} s"


def _text():
    env = [{"name": f"VARIABLE_{number}", "value": f"value {number}"} for number in range(20)]
    container = {"name": "node", "image": "example.com/train:1", "env": env, "resources": {"limits": {"cpu": 4}}}
    one = yaml.dump([container], Dumper=yaml.CSafeDumper)
    return "containers:\n" + one * (_CHARACTERS // len(one) + 1)


def _time(read, text):
    begin = time.process_time()
    read(text)
    return time.process_time() - begin
