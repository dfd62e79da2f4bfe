"""What checking costs: 200 checked steps on one SSH host, beside pyinfra and ansible-core.

    python -m tests.benchmarks.overhead [--pairs 7] [--ansible 3] [--steps 200] [--only NAME ...]

Whole processes are measured, from start to exit, on a real sshd of this machine's loopback with
TCP_NODELAY on every connection where it can be set (OpenSSH's own client, which ansible uses,
has no option for it). Programs are byte-compiled beforehand, as installed ones are: one run of
two steps each is not counted. Every run begins with an empty folder on the host, so every
command acts. Contenders take turns, in an order that rotates, so that a busy machine is busy
for all; a ratio is the median over the rounds of (engine ÷ contender) of one round. The CPU
seconds, of the tool and of all that it starts on the host, hardly depend on how busy the
machine is. Results: tests/benchmarks/results/overhead.json.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.benchmarks.contenders import CONTENDERS, PROJECT, Job, install_ansible
from tests.benchmarks.measuring import (
    RESULTS,
    HostMeter,
    machine,
    median,
    timed,
    versions,
    write_result,
)
from tests.e2e.loopback import Server, loopback_sshd

# engine ÷ contender at most this.
TARGETS = {"plain": 1.05, "bare": 3.0, "ansible": 1 / 15}


@contextmanager
def host(folder: Path) -> Iterator[Server]:
    """An sshd whose sessions have an empty HOME: no start-up file of this machine's user runs,
    and nothing is left in it."""
    (folder / "home").mkdir(parents=True)
    with loopback_sshd(folder) as server:
        with open(folder / "sshd_config", "a") as config:
            config.write(f"SetEnv HOME={folder}/home\nMaxStartups 100\n")
        server.process.send_signal(signal.SIGHUP)
        time.sleep(0.5)
        end = time.monotonic() + 10
        while time.monotonic() < end:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", server.port)) == 0:
                    break
            time.sleep(0.05)
        yield server


def measure(name: str, job: Job, meter: HostMeter) -> dict[str, Any]:
    """One run of one contender, checked: it ended well and every command acted."""
    contender = CONTENDERS[name]
    job.work.mkdir(parents=True)
    argv = contender.prepare(job)
    log = job.folder / "log"
    before = meter.read()
    run = timed(argv, job.folder, contender.environment(job), log)
    made = len(list(job.work.iterdir()))
    if run["exit"] != 0 or made != job.steps:
        tail = log.read_text(errors="replace")[-2000:]
        raise SystemExit(f"{name}: exit {run['exit']}, {made} of {job.steps} made\n{tail}")
    if name != "ansible":  # its control process lives on for a while
        run["host_cpu"] = round(meter.read() - before, 2)
    return run | {"argv": shlex.join(argv)}


def rounds(
    names: Sequence[str], pairs: int, ansible_pairs: int, steps: int, folder: Path, ansible: Path
) -> dict[str, list[dict[str, Any]]]:
    """All runs by contender; each run says its round and its place in it."""
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    with host(folder / "sshd") as server:
        meter = HostMeter(server.process.pid)
        for name in names:  # not counted: compiles, and wakes the disk's cache
            own = folder / f"warm-{name}"
            measure(name, Job(own, own / "work", 2, server, ansible), meter)
            shutil.rmtree(own)
        for number in range(pairs):
            turn = [name for name in names if name != "ansible" or number < ansible_pairs]
            shift = number % len(turn)
            for place, name in enumerate(turn[shift:] + turn[:shift]):
                own = folder / f"{number}-{name}"
                run = measure(name, Job(own, own / "work", steps, server, ansible), meter)
                run["argv"] = _general(run["argv"], folder)
                runs[name].append({"round": number, "place": place, **run})
                print(f"round {number}: {name:8} {run['seconds']:8.2f} s", file=sys.stderr)
                shutil.rmtree(own)
    return runs


def _general(text: str, folder: Path) -> str:
    """A command line without the folders of this machine."""
    return text.replace(str(folder), "$FOLDER").replace(str(PROJECT), ".")


def summary(runs: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Medians by contender, and the ratios of each round with their median and target."""
    medians = {
        name: {
            key: median([run[key] for run in own if key in run])
            for key in ("seconds", "cpu", "host_cpu")
            if any(key in run for run in own)
        }
        for name, own in runs.items()
        if own
    }
    ratios = {}
    for name, own in runs.items():
        if name == "engine" or not own or "engine" not in runs:
            continue
        engine = {run["round"]: run["seconds"] for run in runs["engine"]}
        each = [round(engine[run["round"]] / run["seconds"], 4) for run in own]
        middle = sorted(each)[len(each) // 2] if len(each) % 2 else median(each)
        ratios[name] = {
            "each": each,
            "median": middle,
            "target": round(TARGETS[name], 4),
            "met": middle <= TARGETS[name],
        }
    return {"medians": medians, "ratios": ratios, "cpu_ratios": _cpu_ratios(medians)}


def _cpu_ratios(medians: dict[str, dict[str, float]]) -> dict[str, float]:
    """Engine ÷ contender of the CPU seconds on both sides."""
    both = {
        name: found["cpu"] + found["host_cpu"]
        for name, found in medians.items()
        if "host_cpu" in found
    }
    return {
        name: round(both["engine"] / seconds, 3)
        for name, seconds in both.items()
        if name != "engine" and "engine" in both
    }


def table(result: dict[str, Any]) -> str:
    """The result as text."""
    lines = [f"{'':10}{'seconds':>9}{'CPU s':>9}{'host CPU s':>12}   engine is"]
    for name, found in result["medians"].items():
        host_cpu = f"{found['host_cpu']:12.2f}" if "host_cpu" in found else " " * 12
        ratio = result["ratios"].get(name)
        said = ""
        if ratio is not None:
            word = "met" if ratio["met"] else "NOT met"
            said = f"{ratio['median']:.3f} × this; at most {ratio['target']:.3f}: {word}"
        if name in result["cpu_ratios"]:
            said += f" (CPU: {result['cpu_ratios'][name]:.3f} ×)"
        lines.append(f"{name:10}{found['seconds']:9.2f}{found['cpu']:9.2f}{host_cpu}   {said}")
    return "\n".join(lines)


def _ansible_version(venv: Path) -> str:
    say = [str(venv / "bin" / "ansible"), "--version"]
    return subprocess.run(say, capture_output=True, text=True, check=True).stdout.splitlines()[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=7, help="rounds; default: %(default)s")
    parser.add_argument("--ansible", type=int, default=3, help="rounds that run ansible too")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--only", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of overhead.json")
    arguments = parser.parse_args()
    names = [name for name in CONTENDERS if name in arguments.only]
    if not arguments.ansible:
        names = [name for name in names if name != "ansible"]
    base = PROJECT / "var" / "benchmarks"
    base.mkdir(parents=True, exist_ok=True)
    ansible = base / "ansible"
    if "ansible" in names:
        install_ansible(ansible)
    before = machine()
    folder = Path(tempfile.mkdtemp(prefix="overhead-", dir=base))
    try:
        runs = rounds(names, arguments.pairs, arguments.ansible, arguments.steps, folder, ansible)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    result = {
        "what": f"{arguments.steps} steps on one SSH host, whole processes, fresh state each run",
        "when": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "steps": arguments.steps,
        "machine": before | {"load_after": machine()["load"]},
        "versions": versions("pyinfra", "paramiko", "gevent", "eagle3-runbooks")
        | ({"ansible": _ansible_version(ansible)} if "ansible" in names else {}),
        "contenders": {name: CONTENDERS[name].about for name in names},
        **summary(runs),
        "runs": runs,
    }
    print(table(result))
    print(f"\n{write_result('overhead', result, arguments.results)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
