"""Amounts as people write and read them: counts, rates, sizes, durations, shares."""

from __future__ import annotations

import difflib
import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable
from decimal import Decimal, InvalidOperation

__all__ = [
    "count_up_to",
    "counted",
    "did_you_mean",
    "parse_count",
    "parse_share",
    "show_duration",
    "show_gb",
    "show_gib",
]

_COUNT = re.compile(r"([0-9][0-9_,]*(?:\.[0-9]+)?) ?([kKMGBT]?)")
_COUNT_UNITS = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "B": 10**9, "T": 10**12}
_SHARE = re.compile(r"([0-9]+(?:\.[0-9]+)?)(%?)")


def parse_count(text: str) -> int:
    """`87.8M`, `37_312`, `37,312` or `1200` as a whole number; ValueError says what to write.

    Decimal arithmetic: 87.8M is 87,800,000 exactly.
    """
    match = _COUNT.fullmatch(text.strip())
    if not match:
        raise ValueError(f"{text!r} is not a count; write for example 37_312, 850k or 87.8M")
    try:
        amount = Decimal(re.sub("[_,]", "", match[1])) * _COUNT_UNITS[match[2]]
    except InvalidOperation:
        raise ValueError(f"{text!r} is not a count; write for example 87.8M") from None
    if amount != amount.to_integral_value():
        raise ValueError(f"{text!r} is not a whole number")
    return int(amount)


def count_up_to(most: int) -> Callable[[str], int]:
    """A converter for a command line: whole numbers from 1 to `most`.

    A number that no machine has (a hundred million threads) must not reach a library.
    """

    def convert(text: str) -> int:
        try:
            number = parse_count(text)
        except ValueError as error:
            raise ArgumentTypeError(str(error)) from None
        if not 1 <= number <= most:
            raise ArgumentTypeError(f"{number:,} is not from 1 to {most:,}")
        return number

    return convert


def parse_share(text: str) -> float:
    """`0.7` or `70%` as a fraction from 0 to 1; ValueError says what to write."""
    match = _SHARE.fullmatch(text.strip())
    share = float(match[1]) / (100 if match[2] else 1) if match else -1.0
    if not 0 <= share <= 1:
        raise ValueError(f"{text!r} is not a share; write for example 0.7 or 70%")
    return share


def show_gib(count_bytes: float) -> str:
    """Bytes in GiB, or in MiB, KiB or B below 1 GiB: `3,517 GiB`, `924.6 MiB`."""
    if count_bytes >= 2**30:
        return _scaled(count_bytes / 2**30, "GiB")
    for size, unit in ((2**20, "MiB"), (2**10, "KiB")):
        if count_bytes >= size:
            return _scaled(count_bytes / size, unit)
    return f"{count_bytes:.0f} B"


def show_gb(count_bytes: float) -> str:
    """Bytes in GB, or in MB, kB or B below 1 GB: `3,776 GB`."""
    for size, unit in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if count_bytes >= size:
            return _scaled(count_bytes / size, unit)
    return f"{count_bytes:.0f} B"


def _scaled(amount: float, unit: str) -> str:
    return f"{amount:,.0f} {unit}" if amount >= 100 else f"{amount:,.1f} {unit}"


def show_duration(seconds: float) -> str:
    """Seconds as hours from two hours on (`72 h`), else minutes or seconds."""
    if seconds >= 7200:
        return f"{seconds / 3600:,.0f} h"
    if seconds >= 120:
        return f"{seconds / 60:.0f} min"
    return f"{seconds:.0f} s"


def counted(number: int, word: str) -> str:
    """`1 shard`, `1,024 shards`."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """`did you mean 'seed'?`, or the words there are, or None where there is none."""
    words = sorted(known)
    if close := difflib.get_close_matches(word, words, n=1):
        return f"did you mean {close[0]!r}?"
    return f"known: {', '.join(words)}" if words else None
