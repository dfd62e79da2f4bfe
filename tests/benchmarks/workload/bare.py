"""The same commands by pyinfra without a look before or after: see plain.py."""

import os
import shlex
import socket

from pyinfra import host
from pyinfra.operations import server

work = os.environ["BENCHMARK_WORK"]
transport = host.connector.client.get_transport()
transport.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
for number in range(int(os.environ["BENCHMARK_STEPS"])):
    server.shell(name=f"step {number}", commands=[f"touch {shlex.quote(f'{work}/{number:04}')}"])
