"""A lock on its host: how it is named, taken, given up, read and checked.

    ${EAGLE3_STATE}/locks/
        7.lock       symbolic link whose text is the owner (`Owner.encode`)
        7.by-RUN     the run that made it
        7.acting     `pid start boot` of the shell that runs this owner's latest command
        7.released   given up, by its owner or by an operator (`runbook unlock`)
        7.left       its owner ended and left a job behind

The number is the generation; the newest lock counts. Making a symbolic link is one atomic
operation that fails where the name is taken, and the lock carries its owner from its first
moment. A takeover makes the next number, so whoever held the one before is refused from then
on: every command that changes the host runs `fence_script` first, in the same shell. That needs no
clock, no lease and no program beyond a POSIX shell, `ln`, `readlink` and /proc.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from shlex import quote

from runbooks.engine.lock.owner import Owner
from runbooks.engine.model.probe import Unknown

__all__ = [
    "LockState",
    "fence_script",
    "lock_state",
    "read_script",
    "release_script",
    "take_script",
]

# Script variables begin with `k_` and are not exported.
_NEWEST = r"""k_folder="${EAGLE3_STATE:?}"/locks
k_find() {
  k_newest=0
  for k_one in "$k_folder"/*.lock; do
    [ -L "$k_one" ] || continue
    k_one=${k_one##*/}; k_one=${k_one%.lock}
    case $k_one in ''|*[!0-9]*) continue;; esac
    [ "$k_one" -gt "$k_newest" ] && k_newest=$k_one
  done
  return 0
}
"""

# `k_begun PID` sets `k_born` to its start time; empty for one that is gone or dead.
_BEGUN = r"""k_begun() {
  k_born=
  { IFS= read -r k_line < "/proc/$1/stat"; } 2>/dev/null || return 0
  k_split ${k_line##*) }
}
k_split() { case $1 in Z|X) ;; *) k_born=${20};; esac; }
"""

_TELL = r"""k_tell() {
  printf 'newest\t%s\n' "$k_newest"
  [ "$k_newest" -gt 0 ] || return 0
  printf 'owner\t%s\n' "$(readlink "$k_folder/$k_newest.lock" | tr '\n' ' ')"
  for k_end in released left; do
    [ -e "$k_folder/$k_newest.$k_end" ] && printf 'ended\t%s\n' "$k_end"
  done
  if [ -s "$k_folder/$k_newest.acting" ]; then
    read -r k_pid k_start k_booted < "$k_folder/$k_newest.acting"
    read -r k_boot < /proc/sys/kernel/random/boot_id
    k_begun "$k_pid"
    if [ "$k_booted" = "$k_boot" ] && [ -n "$k_born" ] && [ "$k_born" = "$k_start" ]; then
      printf 'acting\t%s\n' "$k_pid"
    fi
  fi
  return 0
}
"""

_TAKE = r"""mkdir -p "$k_folder" || exit 1
k_find
if [ "$k_newest" -gt 0 ] && ! [ -e "$k_folder/$k_newest.released" ]; then
  if [ -e "$k_folder/$k_newest.by-$k_run" ]; then printf 'held\t%s\n' "$k_newest"; exit 0; fi
  if [ "$k_newest" != "$k_over" ]; then k_tell; exit 0; fi
fi
k_mine=$((k_newest + 1))
if ! k_said=$(ln -s "$k_owner" "$k_folder/$k_mine.lock" 2>&1); then
  k_find
  [ "$k_newest" -ge "$k_mine" ] || { printf '%s\n' "$k_said" >&2; exit 1; }
  k_tell; exit 0
fi
k_find
# A taker that slept through another's whole run made a number that is no longer the newest.
if [ "$k_newest" != "$k_mine" ]; then rm -f "$k_folder/$k_mine.lock"; k_tell; exit 0; fi
: > "$k_folder/$k_mine.by-$k_run" || exit 1
for k_one in "$k_folder"/*; do
  k_name=${k_one##*/}; k_number=${k_name%%.*}
  case $k_number in ''|*[!0-9]*) continue;; esac
  [ "$k_number" -lt $((k_mine - 1)) ] && rm -f "$k_one"
done
printf 'held\t%s\n' "$k_mine"
"""

_FENCE = r"""k_find
if [ "$k_newest" != "$k_mine" ] || ! [ -e "$k_folder/$k_mine.by-$k_run" ] ||
  [ -e "$k_folder/$k_mine.released" ] || [ -e "$k_folder/$k_mine.left" ]; then
  k_tell; exit 1
fi
k_begun $$
{ read -r k_boot < /proc/sys/kernel/random/boot_id
  printf '%s %s %s\n' "$$" "$k_born" "$k_boot" > "$k_folder/$k_mine.acting"; } 2>/dev/null
"""


@dataclass(frozen=True, slots=True)
class LockState:
    """The newest lock of a host.

    `generation` 0: there never was one. `held` says that it was taken by this very question.
    `ended` is `released`, `left` or empty; `acting` the pid of a command of it that still runs.
    `owner` is None where the lock cannot be read, which proves nothing.
    """

    generation: int = 0
    owner: Owner | None = None
    ended: str = ""
    acting: int | None = None
    held: bool = False

    @property
    def free(self) -> bool:
        """Whether anybody may take it without a proof."""
        return not self.generation or self.ended == "released"


def take_script(run: str, owner: Owner, over: int = 0) -> str:
    """Take the lock where it is free, or over generation `over`; else tell who has it."""
    return (
        _NEWEST
        + _BEGUN
        + _TELL
        + f"k_run={_word(run)}\nk_over={over}\nk_owner={quote(owner.encode())}\n"
        + _TAKE
    )


def read_script() -> str:
    """Tell the newest lock, and change nothing."""
    return _NEWEST + _BEGUN + _TELL + "k_find\nk_tell\n"


def fence_script(run: str, generation: int) -> str:
    """Refuse (exit 1, with the lock as it is) unless the lock is still this run's."""
    named = f"k_run={_word(run)}\nk_mine={generation}\n"
    return _NEWEST + _BEGUN + _TELL + named + _FENCE


def release_script(generation: int, end: str, by: str) -> str:
    """Give a lock up: `released`, or `left` where a job stays behind; `by` says who."""
    if end not in ("released", "left"):
        raise ValueError(end)
    return (
        f'k_folder="${{EAGLE3_STATE:?}}"/locks\n'
        f'[ -L "$k_folder/{generation}.lock" ] || exit 0\n'
        f"printf '%s\\n' {quote(by)} > \"$k_folder/{generation}.{end}\"\n"
    )


def _word(run: str) -> str:
    """A run's id as part of a file name."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", run)


def lock_state(text: str) -> LockState:
    """What `take_script`, `read_script` or a refusing fence told; raises Unknown."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        key, tab, value = line.partition("\t")
        if tab:
            found.setdefault(key, value)
    try:
        if "held" in found:
            return LockState(int(found["held"]), held=True)
        generation = int(found["newest"])
        acting = int(found["acting"]) if "acting" in found else None
    except (KeyError, ValueError):
        raise Unknown(f"the lock cannot be read: {text[-300:]!r}") from None
    try:
        owner = Owner.decode(found["owner"]) if generation else None
    except (KeyError, ValueError):
        owner = None
    return LockState(generation, owner, found.get("ended", ""), acting)
