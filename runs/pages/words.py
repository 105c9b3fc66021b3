"""How values look on the pages: states as coloured words, ages, durations, JSON. Everything is escaped."""

import json
import unicodedata
from datetime import UTC, datetime
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString

JSON_CHARS = 20_000
"""Of one value on a page; the API has the whole."""

STATE_WORDS = {
    "queued": ("Queued", "idle"),
    "claimed": ("Starting", "busy"),
    "running": ("Running", "busy"),
    "paused": ("Waits for a person", "wait"),
    "suspended": ("Suspended", "wait"),
    "succeeded": ("Succeeded", "good"),
    "failed": ("Failed", "bad"),
    "cancelled": ("Cancelled", "idle"),
    "unconfirmed": ("Unconfirmed", "doubt"),
}
DECISION_WORDS = {
    None: ("Open", "wait"),
    "accept": ("Accepted", "good"),
    "decline": ("Declined", "bad"),
    "cancel": ("Cancelled", "bad"),
    "expired": ("Expired", "idle"),
    "withdrawn": ("Withdrawn", "idle"),
}


def badge(word: str, tone: str) -> SafeString:
    return format_html('<span class="x-badge x-{}">{}</span>', tone, word)


def state_badge(state: str, *, stopping: bool = False) -> SafeString:
    if stopping:
        return badge("Stopping", "doubt")
    word, tone = STATE_WORDS.get(state, (state, "idle"))
    return badge(word, tone)


def decision_badge(decision: str | None) -> SafeString:
    word, tone = DECISION_WORDS.get(decision, (str(decision), "idle"))
    return badge(word, tone)


def effect_badge(state: str, ok: bool | None) -> SafeString:
    """Three-valued: answered, not yet, or nobody knows."""
    match state:
        case "settled":
            return badge("Answered", "good") if ok else badge("Answered: error", "bad")
        case "released":
            return badge("Did not happen; may be sent again", "wait")
        case "unknown":
            return badge("Unknown", "doubt")
        case _:
            return badge("No answer yet", "busy")


def span(seconds: float | None) -> str:
    """A duration as a person says it: two units at most."""
    if seconds is None:
        return "–"
    if seconds < 0:
        return "0 s"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest and minutes < 10 else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes and hours < 10 else f"{hours} h"
    return f"{hours // 24} days"


def between(start: datetime | None, end: datetime | None) -> str:
    return "–" if start is None or end is None else span((end - start).total_seconds())


def utc(moment: datetime | None) -> str:
    return "–" if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def moment_html(moment: datetime | None) -> SafeString:
    if moment is None:
        return SafeString("–")
    return format_html('<time datetime="{}" title="UTC">{}</time>', moment.isoformat(), utc(moment))


def day_html(moment: datetime) -> SafeString:
    """Where the second does not matter."""
    return format_html(
        '<time class="x-nowrap" datetime="{}" title="UTC">{}</time>', moment.isoformat(), utc(moment)[:16]
    )


def pretty(value: Any) -> str:
    """JSON for reading, cut with a note that says so."""
    text = visible(json.dumps(value, indent=2, ensure_ascii=False))
    if len(text) > JSON_CHARS:
        return f"{text[:JSON_CHARS]}\n… cut: {len(text):,} characters in all"
    return text


def brief(value: Any, chars: int = 120) -> str:
    """JSON on one line."""
    text = visible(json.dumps(value, ensure_ascii=False))
    return text if len(text) <= chars else f"{text[: chars - 1]}…"


def visible(text: str) -> str:
    """The text with what would be shown as nothing, or turn the text around it, written out: `\\u202e`."""
    return "".join(
        char if char == "\n" or unicodedata.category(char) not in ("Cc", "Cf", "Zl", "Zp") else f"\\u{ord(char):04x}"
        for char in text
    )
