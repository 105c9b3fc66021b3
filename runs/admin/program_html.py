"""A program as HTML: highlighted, numbered, the failing line marked. Everything is escaped."""

from functools import lru_cache

from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

HIGHLIGHTED_CHARS = 60_000
"""A longer program is shown plain: highlighting a megabyte takes seconds."""
SHOWN_CHARS = 200_000


@lru_cache(maxsize=64)
def program_html(code: str, failing_line: int | None) -> SafeString:
    """Kept for the last programs looked at: a live page asks again with every event."""
    if len(code) > HIGHLIGHTED_CHARS:
        cut = len(code) - SHOWN_CHARS
        note = f"\n… {cut:,} more characters; the API has the whole program" if cut > 0 else ""
        return format_html('<pre class="x-code">{}{}</pre>', code[:SHOWN_CHARS], note)
    formatter = HtmlFormatter(
        cssclass="x-code",
        linenos="inline",
        linespans="line",
        hl_lines=[failing_line] if failing_line else [],
        wrapcode=True,
    )
    # stripnl=False: line numbers are those of the program, also where it begins with empty lines.
    return mark_safe(highlight(code, PythonLexer(stripnl=False), formatter))
