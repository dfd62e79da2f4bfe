"""Three secrets, a runbook that takes them everywhere, and a search for what got out."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import threading
from pathlib import Path
from urllib.parse import quote, quote_plus

from tests.runbooks.worlds import Said, World

MASK = "[secret]"
# Every encoding changes the first one; the second one holds a newline.
AWKWARD = "p@ss \"w'ör\\d/+ 100%&<x>"
LINES = 'first+li/ne=ü 50%\nsecond "line" & <more>'
TOKEN = "tok-5f0c1e77b29d4e"
SECRETS = {"awkward": AWKWARD, "lines": LINES, "token": TOKEN}


# What a program can make of a secret. It also notes which arguments its ancestors have.
SAY = r"""
import base64, json, os, sys, urllib.parse
from pathlib import Path

def forms(text):
    raw = text.encode()
    yield "raw", text
    for shift in range(3):
        yield f"base64+{shift}", base64.b64encode(b"x" * shift + raw + b"yz").decode()
    yield "base64url", base64.urlsafe_b64encode(raw).decode()
    yield "wrapped", base64.encodebytes(b"x" * 45 + raw + b"y" * 60).decode()
    yield "url", urllib.parse.quote(text, safe="")
    yield "url path", urllib.parse.quote(text)
    yield "form", urllib.parse.quote_plus(text)
    yield "json", json.dumps(text)
    yield "json, UTF-8", json.dumps(text, ensure_ascii=False)
    yield "hex", raw.hex()
    yield "HEX", raw.hex().upper()
    yield "hex dump", raw.hex(" ", 2)
    yield "repr", repr(text)
    yield "bytes", repr(raw)

secrets = [os.environ[name] for name in ("AWKWARD", "LINES", "TOKEN")]
secrets.append(sys.stdin.read())
for stream in (sys.stdout, sys.stderr):
    stream.reconfigure(encoding="utf-8")
    for secret in secrets:
        for name, form in forms(secret):
            print(f"{name}: {form} .", file=stream)
pid = os.getpid()
with open(os.environ["EAGLE3_ROOT_DATA"] + "/cmdlines", "ab") as noted:
    while pid > 1:
        noted.write(Path(f"/proc/{pid}/cmdline").read_bytes() + b"\n")
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
"""

ENV = 'env: {AWKWARD: "${{ secrets.awkward }}", LINES: "${{ secrets.lines }}", TOKEN: "${{ secrets.token }}"}'
BOOK = f"""\
runbook: leaky
plugins: ["leaks:register"]
secrets:
  awkward: {{env: SECRET_AWKWARD}}
  lines: {{file: secret.txt}}
  token: {{command: [sh, -c, "cat token.txt"]}}
defaults: {{timeout: 5m}}
steps:
  say:
    needs: []
    hosts: [local]
    do:
      command:
        argv: [python3, "data:say.py"]
        {ENV}
        stdin: "before ${{{{ secrets.awkward }}}} after"
    ensures: [path: {{path: "data:cmdlines", is: file}}]
    undo: {{command: {{argv: [rm, "data:cmdlines"], {ENV}}}}}
  deliver:
    needs: [say]
    hosts: [local]
    do:
      command:
        argv: [sh, -c, "umask 077; cat > $EAGLE3_ROOT_DATA/conf"]
        stdin: "user: me\\nawkward: ${{{{ secrets.awkward }}}}\\ntoken: ${{{{ secrets.token }}}}\\n${{{{ secrets.lines }}}}\\n"
    ensures: [path: {{path: "data:conf", is: file}}]
  render:
    needs: [deliver]
    hosts: [local]
    do: {{template: {{src: conf.j2, dest: "data:other", mode: 0600}}}}
    ensures: [path: {{path: "data:other", template: conf.j2, same: true}}]
  hide:
    needs: [deliver]
    hosts: [local]
    do: {{template: {{src: conf.j2, dest: "data:hidden", mode: 0600, secret: true}}}}
    ensures: [path: {{path: "data:hidden", template: conf.j2, same: true}}]
  work:
    needs: [deliver]
    hosts: [local]
    do:
      job:
        argv: [sh, -c, "python3 $EAGLE3_ROOT_DATA/say.py </dev/null; echo last words of $TOKEN; sleep 1; touch $EAGLE3_ROOT_DATA/worked"]
        {ENV}
    ensures: [path: {{path: "data:worked", is: file}}]
  read:
    needs: [deliver]
    hosts: [local]
    do: {{command: {{argv: [touch, "data:read"]}}}}
    ensures:
      - path: {{path: "data:read", is: file}}
      - content: {{path: "data:other", matches: awkward}}
  serve:
    needs: [deliver]
    hosts: [local]
    transient: true
    do: {{command: {{argv: [sh, -c, "echo serving $TOKEN; touch $EAGLE3_ROOT_DATA/serving"], {ENV}}}}}
    ensures: [path: {{path: "data:serving", is: file}}]
    release: {{command: {{argv: [sh, -c, "echo releasing $TOKEN; rm $EAGLE3_ROOT_DATA/serving"], {ENV}}}}}
  use:
    needs: [serve]
    hosts: [local]
    do: {{command: {{argv: [touch, "data:used"]}}}}
    ensures: [path: {{path: "data:used", is: file}}]
  delegate:
    needs: [deliver]
    hosts: [local]
    do: {{pyinfra_file: {{path: "data:delegated", {ENV}}}}}
    ensures: [path: {{path: "data:delegated", is: file}}]
  fails:
    needs: [use]
    hosts: [local]
    do: {{command: {{argv: [sh, -c, "echo the login $AWKWARD / $TOKEN was refused >&2; exit 3"], {ENV}}}}}
    ensures: [path: {{path: "data:failed", is: file}}]
  raises:
    needs: [use]
    hosts: [local]
    do: {{raises: {{{ENV}}}}}
    ensures: [path: {{path: "data:raised", is: file}}]
  job-fails:
    needs: [use]
    hosts: [local]
    do: {{job: {{argv: [sh, -c, "echo $AWKWARD; echo $LINES; echo $TOKEN; exit 4"], {ENV}}}}}
    ensures: [path: {{path: "data:job-failed", is: file}}]
  mistaken:
    needs: []
    hosts: [local]
    requires: [content: {{path: "data:other", mistake: true, matches: awkward}}]
  wrong:
    needs: []
    hosts: [local]
    requires: [content: {{path: "data:other", eq: something else}}]
"""

PLUGIN = r"""
from io import StringIO

from pyinfra.operations import files

from runbooks.engine import Fact, Field, Shell
from runbooks.engine.model.fact import Argument
from runbooks.engine.model.operation import Delegate, Operation, OperationFailed, Preview
from runbooks.engine.model.values import Boolean, HostPath, MapOf, Text

ENV = {"env": Argument(MapOf(Text(empty=True)), "Secrets.")}


class Content(Fact):
    name = "content"
    about = "The text of a file."
    arguments = {
        "path": Argument(HostPath(), "The file.", required=True),
        "mistake": Argument(Boolean(), "Whether to fail on it.", default=False),
    }
    fields = {"text": Field(Text(empty=True), "Its text.")}
    value = "text"

    def read(self, args, context):
        output = yield Shell("content", f"cat {context.host.resolve(args['path'])}")
        if args.get("mistake"):
            raise ValueError(f"cannot make sense of {output.text!r}")
        return {"text": output.text}


class Raises(Operation):
    name = "raises"
    about = "Has a fault that quotes its arguments."
    arguments = ENV

    def preview(self, args, context):
        yield Shell("nothing", "true")
        return Preview(summary="raise")

    def act(self, args, context):
        yield Shell("nothing", "true")
        raise RuntimeError("; ".join(f"{name} is {value} or {value!r}" for name, value in args["env"].items()))


class PyinfraFile(Operation):
    name = "pyinfra_file"
    about = "A file put by pyinfra's own operation."
    arguments = {"path": Argument(HostPath(), "The file.", required=True), **ENV}

    def preview(self, args, context):
        yield Shell("nothing", "true")
        return Preview(summary="put a file")

    def act(self, args, context):
        content = "\n".join(args["env"].values()) + "\n"
        path = context.host.resolve(args["path"])
        for mode in ("600", "640"):
            output = yield Delegate(
                files.put, {"src": StringIO(content + mode), "dest": path, "mode": mode}
            )
            if output.exit:
                raise OperationFailed(output.stderr)
        return "put"


def register(registry):
    registry.add_fact(Content())
    registry.add_operation(Raises())
    registry.add_operation(PyinfraFile())
"""


# pyinfra writes its debug log where code of somebody's own fails while it executes.
CRASH = """\
from pathlib import Path

from pyinfra.api import operation
from runbooks.engine import run_runbook


@operation()
def fail():
    raise RuntimeError("a fault beside the runbook")
    yield


fail(name="fail")
run_runbook(str(Path(__file__).with_name("book.py")))
"""


def needles(secret: str) -> dict[str, list[str]]:
    """Every text that would give the secret away, by encoding."""
    raw = secret.encode()
    lines = [line for line in secret.splitlines() if len(line) >= 4]
    cores = []
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + raw).decode().rstrip("=")
        end = len(encoded) - (1 if (len(raw) + shift) % 3 else 0)
        core = encoded[(0, 2, 3)[shift] : end]
        cores += [core, core.replace("+", "-").replace("/", "_")]
    return {
        "raw": [secret, *lines],
        "base64": cores,
        "url": [quote(secret, safe=""), quote(secret), quote_plus(secret)],
        "json": [json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]],
        "hex": [raw.hex()],
        "repr": [repr(secret)[1:-1], repr(raw)[2:-1]],
    }


def squeezed(text: str) -> str:
    """Without white space, also where JSON spells it."""
    return re.sub(r"\s|\\n", "", text)


def leaks(text: str) -> list[str]:
    """`token as hex: …` for every secret that is in a text in any encoding."""
    found = []
    plain, tight = text, squeezed(text)
    for name, secret in SECRETS.items():
        for encoding, words in needles(secret).items():
            for word in words:
                for hay, needle in ((plain, word), (tight, squeezed(word))):
                    if encoding in ("hex", "url"):
                        hay, needle = hay.lower(), needle.lower()
                    if (at := hay.find(needle)) >= 0:
                        around = hay[max(0, at - 60) : at + len(needle) + 20]
                        found.append(f"{name} as {encoding}: …{around}…")
                        break
    return found


def text_of(file: Path) -> str:
    return file.read_bytes().decode(errors="replace")


class Watcher(threading.Thread):
    """Reads the arguments of every process, again and again."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.seen: set[bytes] = set()
        self.over = threading.Event()

    def run(self) -> None:
        own = os.getpid()
        while not self.over.wait(0.02):
            for entry in Path("/proc").iterdir():
                if entry.name.isdigit() and int(entry.name) != own:
                    with contextlib.suppress(OSError):
                        self.seen.add((entry / "cmdline").read_bytes())


class Ran:
    """A world in which every command was run once: what each said, and what lies about."""

    def __init__(self, world: World):
        self.world = world
        world.project = world.folder
        world.env |= {"SECRET_AWKWARD": AWKWARD, "PYTHONUTF8": "1"}
        folder = world.folder
        (folder / "secret.txt").write_text(LINES + "\n")
        (folder / "token.txt").write_text(TOKEN + "\n")
        (folder / "leaks.py").write_text(PLUGIN)
        (folder / "config.py").write_text(
            "from runbooks.engine.adapter.command_line import install\n\ninstall()\n"
        )
        (folder / "conf.j2").write_text(
            "\n".join(["# awkward configuration", *SECRETS.values(), ""])
        )
        world.write(BOOK)
        (folder / "crash.py").write_text(CRASH)
        self.said: dict[str, Said] = {}
        watcher = Watcher()
        watcher.start()
        self.go()
        watcher.over.set()
        watcher.join()
        self.cmdlines = b"\n".join(watcher.seen).replace(b"\0", b" ").decode(errors="replace")

    def afresh(self) -> None:
        """The host as before any run, but for what others left: two files with secrets."""
        for path in self.world.data.iterdir():
            path.unlink()
        (self.world.data / "say.py").write_text(SAY)
        text = "\n".join(["# before: awkward", *SECRETS.values(), ""])
        for name in ("other", "hidden"):
            (self.world.data / name).write_text(text)
            (self.world.data / name).chmod(0o600)

    def go(self) -> None:
        world = self.world
        book, hosts = str(world.folder / "book.yaml"), str(world.inventory)
        named, deploy = (book, "-i", hosts), str(world.folder / "book.py")
        self.afresh()
        self.say("plan", "runbook", "plan", *named)
        self.say("plan verbose", "runbook", "plan", *named, "--verbose")
        self.say("plan json", "runbook", "plan", *named, "--json")
        self.say("plan saved", "runbook", "plan", *named, "-o", str(world.folder / "plan.json"))
        self.say("check", "runbook", "check", *named)
        self.say("check json", "runbook", "check", *named, "--json")
        self.say("validate", "runbook", "validate", *named)
        self.say("pyinfra dry", "pyinfra", hosts, deploy, "--dry", "--diff")
        self.say(
            "pyinfra dry debug",
            *("pyinfra", hosts, deploy),
            *("--dry", "--diff", "--debug", "-vvv"),
        )
        self.say("run", "runbook", "run", *named, "-y")
        self.say("drift", "runbook", "drift", *named)
        (world.data / "other").write_text(f"# awkward\n{'x' * 90} {TOKEN}\n{AWKWARD}\n")
        self.say("drift changed", "runbook", "drift", *named)
        self.say("drift json", "runbook", "drift", *named, "--json")
        self.afresh()
        self.say("pyinfra crash", "pyinfra", hosts, str(world.folder / "crash.py"), "-y", "-vvv")
        self.afresh()
        self.say("run verbose", "runbook", "run", *named, "-y", "--verbose")
        self.afresh()
        self.say("run json", "runbook", "run", *named, "-y", "--json")
        for name, words in (
            ("pyinfra", ("-y", "--diff")),
            ("pyinfra vvv", ("-y", "-vvv", "--diff")),
            ("pyinfra debug", ("-y", "--debug", "-vvv", "--diff")),
            ("pyinfra json", ("-y", "--json")),
        ):
            self.afresh()
            self.say(name, "pyinfra", hosts, deploy, *words)
        self.say("report", "runbook", "report", "last", "-o", str(world.folder / "report.html"))
        self.say("show", "runbook", "show", "last")
        for step in ("say", "fails", "raises", "job-fails", "work", "delegate"):
            self.say(f"show {step}", "runbook", "show", f"last/{step}")
        self.say("history", "runbook", "history")

    def say(self, name: str, *words: str) -> None:
        self.said[name] = self.world.say(*words)


PLANS = ("render", "raise", "content differs (secret, not shown)", MASK)
RUNS = ("was refused", MASK)
COMMANDS: dict[str, tuple[int, tuple[str, ...]]] = {
    "plan": (6, PLANS),
    "plan verbose": (6, PLANS),
    "plan json": (6, PLANS),
    "plan saved": (6, (*PLANS, "Saved as")),
    "check": (6, ("content", MASK)),
    "check json": (6, ("content", MASK)),
    "validate": (0, ("book.yaml",)),
    "pyinfra dry": (6, PLANS),
    "pyinfra dry debug": (6, PLANS),
    "run": (1, RUNS),
    "drift": (10, ("Drift of leaky",)),
    "drift changed": (10, ("content", MASK)),
    "drift json": (10, ("content", MASK)),
    "run verbose": (1, RUNS),
    "run json": (1, RUNS),
    "pyinfra": (1, RUNS),
    "pyinfra vvv": (1, RUNS),
    "pyinfra debug": (1, RUNS),
    "pyinfra json": (1, RUNS),
    # What pyinfra itself fails by is told; the code is that of the plan, which was stuck.
    "pyinfra crash": (6, ("a fault beside the runbook",)),
    "report": (0, ("report.html",)),
    "show": (0, ("leaky",)),
    "show say": (0, (MASK,)),
    "show fails": (0, (MASK,)),
    "show raises": (0, (MASK,)),
    "show job-fails": (0, (MASK,)),
    "show work": (0, ("work",)),
    "show delegate": (0, ("delegate",)),
    "history": (0, ("leaky",)),
}

# A program's own way to write it, as a file or a terminal would hold it.
FORMS = {
    "raw": lambda raw: raw.decode(),
    "base64": lambda raw: base64.b64encode(raw).decode(),
    "base64 after one byte": lambda raw: base64.b64encode(b"x" + raw + b"yz").decode(),
    "base64 after two bytes": lambda raw: base64.b64encode(b"xx" + raw + b"yz").decode(),
    "base64 over two lines": lambda raw: base64.encodebytes(b"x" * 45 + raw + b"y" * 60).decode(),
    "base64 in JSON": lambda raw: json.dumps(base64.encodebytes(b"x" * 45 + raw).decode()),
    "base64 for URLs": lambda raw: base64.urlsafe_b64encode(raw).decode(),
    "URL": lambda raw: quote(raw, safe=""),
    "form": lambda raw: quote_plus(raw),
    "JSON": lambda raw: json.dumps(raw.decode()),
    "JSON in UTF-8": lambda raw: json.dumps(raw.decode(), ensure_ascii=False),
    "hex": lambda raw: raw.hex(),
    "hex dump": lambda raw: raw.hex(" ", 2).upper(),
    "repr": lambda raw: repr(raw.decode()),
}
