"""Commands on a pseudo terminal, to which tests send keys."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import termios
import threading

CTRL_C = b"\x03"
_ROWS, _COLUMNS = 50, 160


class PseudoTerminal:
    """A command that runs on a pseudo terminal; `output` contains its output."""

    def __init__(self, command: list[str], environment: dict[str, str], columns: int = _COLUMNS) -> None:
        self._controller, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, columns, 0, 0))
        environment = {name: value for name, value in environment.items() if name not in ("COLUMNS", "NO_COLOR")}
        # A session of its own with this terminal, so that Ctrl-C is a signal to this command only.
        self.process = subprocess.Popen(
            ["setsid", "--ctty", *command],
            stdin=other,
            stdout=other,
            stderr=other,
            env={**environment, "TERM": "xterm-256color"},
        )
        os.close(other)
        self.output, self._output_changed = "", threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def send_keys(self, keys: bytes) -> None:
        """Send keys to the terminal."""
        os.write(self._controller, keys)

    def wait_for_text(self, text: str, seconds: float = 60.0) -> None:
        """Wait until the output contains a text."""
        with self._output_changed:
            assert self._output_changed.wait_for(lambda: text in self.output, seconds), self.output

    def wait_for_exit(self, seconds: float = 60.0) -> int:
        """Wait until the command has ended, and return its exit code."""
        code = self.process.wait(seconds)
        self._reader.join(60)
        return code

    def close(self) -> None:
        """Kill the command if it still runs, and close the terminal."""
        self.process.kill()
        self.process.wait()
        self._reader.join(60)
        os.close(self._controller)

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._controller, 65536)
            except OSError:  # Linux reports this error when the other side is closed
                return
            with self._output_changed:
                self.output += data.decode(errors="replace")
                self._output_changed.notify_all()
