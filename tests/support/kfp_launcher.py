"""Stands where KFP's launcher does, between emissary and component: kfp_launcher.py COMMAND ARGUMENT...

As KFP 2.17 does (backend/src/v2/component/launcher_v2.go): the command's standard output is a pipe, which is copied to
its own; there is no signal handling, so that SIGTERM ends it at once; and every failure of the command becomes a 1.
"""

import io
import subprocess
import sys

command = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE)
assert isinstance(command.stdout, io.BufferedReader)
while piece := command.stdout.read1(65536):
    sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()
sys.exit(1 if command.wait() else 0)
