"""The fleet with llm-two alone answering: the others refuse connections on this machine."""

from pathlib import Path
from runpy import run_path

from runbooks.engine.adapter.fake import fake_data as _fake_data

_fake = run_path(str(Path(__file__).with_name("fake.py")))
_down = {"ssh_hostname": "127.0.0.1", "ssh_port": 1}

tank = (["kpro6", "@fake/llm-two", "llm-one"], _fake["tank"][1])
gpu_nodes = (["@fake/llm-two", "llm-one"], _fake["gpu_nodes"][1])
all = (
    [
        ("kpro6", _down),
        ("@fake/llm-two", _fake_data(Path(__file__).with_name("answers.yaml"), "llm-two")),
        ("llm-one", _down),
    ],
    {},
)
