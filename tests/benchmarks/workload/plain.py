"""What a careful plain pyinfra deploy does: facts read around each command, when it runs.

Each step reads a folder (what it needs) and a file (what it makes), runs its command where the
file is not there, and reads the file again. BENCHMARK_WORK is the folder on the host,
BENCHMARK_STEPS the number of steps.
"""

import os
import shlex
import socket

from pyinfra import host
from pyinfra.facts.files import Directory, File
from pyinfra.operations import python, server

work = os.environ["BENCHMARK_WORK"]
steps = int(os.environ["BENCHMARK_STEPS"])


def step(number: int) -> None:
    made = f"{work}/{number:04}"
    if not host.get_fact(Directory, path=work):
        raise RuntimeError(f"{work} is no folder")
    if host.get_fact(File, path=made):
        return
    server.shell(commands=[f"touch {shlex.quote(made)}"])
    if not host.get_fact(File, path=made):
        raise RuntimeError(f"{made} is no file after the command")


transport = host.connector.client.get_transport()
transport.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
for number in range(steps):
    python.call(name=f"step {number}", function=step, number=number)
