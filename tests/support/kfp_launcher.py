"""Stand-in for KFP's launcher: kfp_launcher.py COMMAND ARGUMENT...

It runs between Argo's emissary executor and the component, and behaves as in KFP 2.17
(backend/src/v2/component/launcher_v2.go). It reads the command's standard output and standard error from one pipe and
copies them to its own standard output. It handles no signals, so SIGTERM ends it at once. It ends with exit code 1
for every failure of the command. After a success, it copies the executor's output into the folder KFP_OUTPUTS, where
the real one uploads it, because the volumes of a pod end with it.
"""

import io
import os
import shutil
import subprocess
import sys

command = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
assert isinstance(command.stdout, io.BufferedReader)
while piece := command.stdout.read1(65536):
    sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()
if command.wait():
    sys.exit(1)
if folder := os.environ.get("KFP_OUTPUTS"):
    shutil.copyfile("/minio/executor_output.json", f"{folder}/{os.environ['KFP_POD_UID']}.json")
