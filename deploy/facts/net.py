"""What answers at an address, asked from the host itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from deploy.shell import begin, fields, number
from runbooks.engine.model.fact import Argument, Fact, Field
from runbooks.engine.model.host import Context
from runbooks.engine.model.probe import Asking, Output, Shell, Unknown
from runbooks.engine.model.values import ABSENT, Duration, Integer, Text

# `get` asks once and sets `code` (0 answered, 7 refused, else unknown), `status`, `body`, `said`.
# curl 8 says "Could not connect to server" for a refusal as for no route, so a second, verbose
# look tells them apart. curl -q reads no ~/.curlrc. Redirects are not followed: the status is
# that of this very address.
GET = r"""newline='
'
get() {
  status=; body=; said=
  if command -v curl >/dev/null 2>&1; then
    set -- "$1" "$2" -q -g -s --max-time "$2" -w '\n%{http_code}'
    [ -z "$direct" ] || set -- "$@" --noproxy '*'
    url=$1; shift 2
    answer=$(curl "$@" "$url" 2>/dev/null | tr -d '\000'; ) ; code=0
    status=${answer##*"$newline"}; body=${answer%"$newline"*}
    case $status in
      [1-9][0-9][0-9]) ;;
      *)
        said=$(curl "$@" -v -o /dev/null "$url" 2>&1 >/dev/null); code=$?
        case $code:$said in
          0:*) code=1; said='it began to answer meanwhile';;
          7:*'onnection refused'*) said='connection refused';;
          7:*) code=1; said='no connection';;
          6:*) said='the name cannot be resolved';;
          28:*) said='timed out';;
          *) said="curl exit $code";;
        esac;;
    esac
  elif command -v python3 >/dev/null 2>&1; then
    answer=$(python3 -I -c "$python" "$1" "$2" "$direct" 2>&1); code=$?
    status=${answer%%"$newline"*}; body=${answer#*"$newline"}; said=$status
  elif command -v wget >/dev/null 2>&1; then
    url=$1; limit=$2
    # Not every busybox has -T.
    if wget --version 2>/dev/null | grep -q GNU; then
      set -- wget -S -O - -T "$limit" -nv -t 1 --max-redirect=0
    elif command -v timeout >/dev/null 2>&1; then set -- timeout "$limit" wget -S -O -
    else unknown 'wget has no time limit, and the host has no timeout(1)'; fi
    # Headers and messages come on standard error: marked, to tell them from the body.
    [ -z "$direct" ] || unset http_proxy HTTP_PROXY https_proxy HTTPS_PROXY
    answer=$({ { "$@" "$url" || echo "exit $?" >&2; } 2>&1 >&3 | sed 's/^/header:/' >&4; } 3>&1 4>&1 | tr -d '\000'); code=0
    status=$(printf '%s\n' "$answer" | sed -n 's/^header:.*HTTP\/[0-9.]* \([0-9][0-9][0-9]\).*/\1/p' | head -n 1)
    body=$(printf '%s\n' "$answer" | sed '/^header:/d')
    if [ -z "$status" ]; then
      said=$(printf '%s\n' "$answer" | sed -n 's/^header://p' | grep -v '^exit ' | tail -n 1); code=1
      case $answer in *'onnection refused'*) code=7;; *'timed out'*) said='timed out';; esac
      case $answer in *'header:exit 124'*|*'header:exit 143'*) said='timed out';; esac
    fi
  else
    unknown 'the host has no curl, no python3 and no wget'
  fi
}
tell() {
  case $code in
    0) printf 'status\t%s\nbody\t' "$status"; printf '%s' "$body" | head -c 262144;;
    7) printf 'refused\t%s\n' "$said";;
    *) printf 'unknown\t%s\n' "$(line "$said")";;
  esac
}
"""

_PYTHON = """import socket, sys, urllib.error, urllib.request
class Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None
url, limit, direct = sys.argv[1:4]
handlers = [Stay] + ([urllib.request.ProxyHandler({})] if direct else [])
def tell(answer):
    sys.stdout.buffer.write(b"%d\\n" % answer.status + answer.read(262144).replace(b"\\0", b""))
try:
    tell(urllib.request.build_opener(*handlers).open(url, timeout=float(limit)))
except urllib.error.HTTPError as error:
    tell(error)
except OSError as error:
    reason = getattr(error, "reason", error)
    print("timed out" if isinstance(reason, (TimeoutError, socket.timeout)) else reason)
    sys.exit(7 if isinstance(reason, ConnectionRefusedError) else 1)
except Exception as error:
    print(error)
    sys.exit(1)
"""

_WAIT = r"""since=$(date +%s)
while :; do
  get "$url_wanted" "$limit_wanted"
  case $code:$status in 0:2??) break;; esac
  [ $(($(date +%s) - since)) -lt "$wait" ] || break
  sleep 2
done
tell
"""
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


def get_script(url: str, timeout: int, wait: int = 0) -> str:
    """A script that asks `url` and tells status and body; for `answer_of`."""
    host = re.split(r"[/?#]", url.partition("://")[2], maxsplit=1)[0]
    name = host if host.endswith("]") else re.sub(r":[0-9]*$", "", host)
    # A proxy is for the world outside; the host's own ports are asked directly.
    direct = "yes" if name in _LOOPBACK or name.startswith("127.") else ""
    variables = {"url_wanted": url, "limit_wanted": str(timeout), "wait": str(wait)}
    return begin(python=_PYTHON, direct=direct, **variables) + GET + _WAIT


def answer_of(output: Output) -> tuple[int, str] | None:
    """Status and text; None where the connection is refused; Unknown otherwise."""
    if output.exit != 0:
        output.expect()
    head, _, body = output.stdout.partition(b"\nbody\t")
    found = fields(head.decode(errors="replace"))
    if "unknown" in found:
        raise Unknown(found["unknown"] or "no answer")
    if "refused" in found:
        return None
    status = number(found.get("status"), "the status")
    return status, body.decode(errors="replace")


class Http(Fact):
    """`http: {url: "http://localhost:30000/health", status: 200, wait: 10m}`."""

    name = "http"
    about = "The answer to an HTTP GET, sent from the host."
    arguments: ClassVar[Mapping[str, Argument]] = {
        "url": Argument(
            Text(r"https?://[^\s/?#@]+(?:[/?#]\S*)?", "http://localhost:30000/health"),
            "The address; it may hold no password.",
            required=True,
        ),
        "wait": Argument(
            Duration(), "How long to ask again while it does not answer with 2xx.", default=0
        ),
        "timeout": Argument(Duration(), "How long one request may take.", default=25),
    }
    fields: ClassVar[Mapping[str, Field]] = {
        "status": Field(
            Integer(100), "The status; absent where the connection is refused.", volatile=True
        ),
        "body": Field(Text(empty=True), "The beginning of the answer's text.", volatile=True),
    }
    value = "status"

    def for_plan(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        """A plan does not wait."""
        return dict(args) | {"wait": 0}

    def read(self, args: Mapping[str, Any], context: Context) -> Asking:
        """Ask with curl, python3 or wget. A refused connection is absent, no answer unknown."""
        wait, timeout = args.get("wait") or 0, args.get("timeout") or 25
        shell = Shell(
            f"http {args['url']}",
            get_script(args["url"], timeout, wait),
            timeout=wait + 2 * timeout + 30,
        )
        answer = answer_of((yield shell))
        if answer is None:
            return {"status": ABSENT, "body": ABSENT}
        return {"status": answer[0], "body": answer[1].strip()}
