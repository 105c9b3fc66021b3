"""From a document's text to plain values: JSON or YAML 1.2, bounded in size, nesting and alias expansion.

YAML is built from the parser's events without recursion: aliases are shared, not copied, and their expanded
size and depth are counted, so neither a "billion laughs" document nor a deep one costs more than its text.
"""

import json
import math
import re
from collections.abc import Iterator
from typing import Any, Final

import yaml

from runs.tools.base import JSON
from runs.tools.bounds import MAX_DOCUMENT_BYTES, MAX_DOCUMENT_DEPTH, MAX_DOCUMENT_NODES, MAX_INT_DIGITS
from runs.tools.errors import DocumentError

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
"""NUL and lone surrogates: PostgreSQL stores neither."""
_SUSPECT = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_WORDS: Final[dict[str, JSON]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
"""The core schema of YAML 1.2: `no` and `on` are text, and dates stay text."""


def parse_document(text: bytes) -> dict[str, JSON]:
    """The document's root object. Of a key given twice the last one counts. Raises DocumentError."""
    if len(text) > MAX_DOCUMENT_BYTES:
        raise DocumentError("spec_too_large", f"the document is larger than {MAX_DOCUMENT_BYTES} bytes")
    root = _load(text)
    if not isinstance(root, dict):
        raise DocumentError("spec_invalid", "the document is not an object with keys")
    return root


def clean_text(text: str) -> str:
    """The text with U+FFFD for what cannot be stored (NUL, lone surrogates)."""
    return _UNSTORABLE.sub("\ufffd", text)


def _load(text: bytes) -> JSON:
    json_error: DocumentError | None = None
    if text.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"["):
        try:
            return _load_json(text)
        except DocumentError as exc:
            json_error = exc
    try:
        return _load_yaml(text)
    except DocumentError as exc:
        # Flow-style YAML also begins with a brace; where it is neither, JSON's message is the useful one.
        if json_error is not None and exc.code == "spec_invalid":
            raise json_error from exc
        raise


def _load_json(text: bytes) -> JSON:
    try:
        root = json.loads(text.removeprefix(b"\xef\xbb\xbf"), parse_constant=_refuse_constant, parse_float=_finite)
    except RecursionError:
        raise DocumentError("spec_invalid", "the document is nested too deep") from None
    except ValueError as exc:
        raise DocumentError("spec_invalid", f"the document is not valid JSON: {str(exc)[:200]}") from None
    return _clean_tree(root) if _SUSPECT.search(text) or b"\x00" in text else root


def _refuse_constant(name: str) -> JSON:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number out of range")
    return number


def _clean_tree(root: JSON) -> JSON:
    """Cleans every text and key in place, without recursion."""
    holder: list[JSON] = [root]
    todo: list[dict[str, JSON] | list[JSON]] = [holder]
    while todo:
        node = todo.pop()
        if isinstance(node, dict):
            items = [(clean_text(key), value) for key, value in node.items()]
            node.clear()
            node.update((k, clean_text(v) if isinstance(v, str) else v) for k, v in items)
            todo.extend(value for value in node.values() if isinstance(value, (dict, list)))
        else:
            node[:] = [clean_text(value) if isinstance(value, str) else value for value in node]
            todo.extend(value for value in node if isinstance(value, (dict, list)))
    return holder[0]


def _load_yaml(text: bytes) -> JSON:
    builder = _Builder()
    try:
        for event in _events(text):
            builder.take(event)
    except yaml.YAMLError as exc:
        raise DocumentError("spec_invalid", f"the document is not valid YAML: {_first_line(exc)}") from None
    except (UnicodeError, ValueError) as exc:
        raise DocumentError("spec_invalid", f"the document cannot be read: {type(exc).__name__}") from None
    return builder.root


def _events(text: bytes) -> Iterator[Any]:
    yield from yaml.parse(text, Loader=_LOADER)


def _first_line(exc: yaml.YAMLError) -> str:
    mark = getattr(exc, "problem_mark", None)
    place = f" (line {mark.line + 1}, column {mark.column + 1})" if mark is not None else ""
    problem = getattr(exc, "problem", None) or str(exc).splitlines()[0]
    return f"{str(problem)[:200]}{place}"


class _Frame:
    """A list or object under construction, with its expanded size and height."""

    __slots__ = ("anchor", "container", "height", "key", "merges", "size")

    def __init__(self, container: dict[str, JSON] | list[JSON], anchor: str | None) -> None:
        self.container = container
        self.anchor = anchor
        self.key: str | None = None
        self.merges: list[JSON] = []
        self.size = 1
        self.height = 1


class _Builder:
    """Takes YAML events, in order; `root` is the first document's value."""

    def __init__(self) -> None:
        self.root: JSON = None
        self.documents = 0
        self.stack: list[_Frame] = []
        self.anchors: dict[str, tuple[JSON, int, int]] = {}

    def take(self, event: Any) -> None:
        match event:
            case yaml.ScalarEvent():
                value = self._scalar(event)
                if event.anchor:
                    self.anchors[event.anchor] = (value, 1, 0)
                self._add(value, 1, 0)
            case yaml.MappingStartEvent():
                self._open({}, event.anchor)
            case yaml.SequenceStartEvent():
                self._open([], event.anchor)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self._close()
            case yaml.AliasEvent():
                if event.anchor not in self.anchors:
                    raise DocumentError("spec_invalid", f"the alias *{event.anchor} leads nowhere or to itself")
                self._add(*self.anchors[event.anchor])
            case yaml.DocumentStartEvent():
                self.documents += 1
                if self.documents > 1:
                    raise DocumentError("spec_invalid", "the text holds more than one YAML document")

    def _scalar(self, event: Any) -> JSON:
        text = clean_text(event.value)
        waits_for_key = self.stack and isinstance(self.stack[-1].container, dict) and self.stack[-1].key is None
        if waits_for_key or event.style not in ("", None):
            return text
        if event.tag and event.tag.rpartition(":")[2] not in ("int", "float", "bool", "null"):
            return text
        return _plain(text)

    def _open(self, container: dict[str, JSON] | list[JSON], anchor: str | None) -> None:
        if len(self.stack) >= MAX_DOCUMENT_DEPTH:
            raise DocumentError("spec_invalid", "the document is nested too deep")
        if self.stack and isinstance(self.stack[-1].container, dict) and self.stack[-1].key is None:
            raise DocumentError("spec_invalid", "a key of the document is not a text")
        self.stack.append(_Frame(container, anchor))

    def _close(self) -> None:
        frame = self.stack.pop()
        for merged in frame.merges:
            for source in merged if isinstance(merged, list) else [merged]:
                if isinstance(source, dict) and isinstance(frame.container, dict):
                    for key, value in source.items():
                        frame.container.setdefault(key, value)
        if frame.anchor:
            self.anchors[frame.anchor] = (frame.container, frame.size, frame.height)
        self._add(frame.container, frame.size, frame.height)

    def _add(self, value: JSON, size: int, height: int) -> None:
        if not self.stack:
            self.root = value
            return
        top = self.stack[-1]
        top.size += size
        top.height = max(top.height, height + 1)
        if top.size > MAX_DOCUMENT_NODES:
            raise DocumentError("spec_too_large", f"the document unfolds to more than {MAX_DOCUMENT_NODES} values")
        if len(self.stack) + height > MAX_DOCUMENT_DEPTH:
            raise DocumentError("spec_invalid", "the document is nested too deep")
        if isinstance(top.container, list):
            top.container.append(value)
        elif top.key is None:
            if not isinstance(value, str):
                raise DocumentError("spec_invalid", "a key of the document is not a text")
            top.key = value
        else:
            if top.key == "<<" and isinstance(value, (dict, list)):
                top.merges.append(value)
            else:
                top.container[top.key] = value
            top.key = None


def _plain(text: str) -> JSON:
    if text in _WORDS:
        return _WORDS[text]
    if len(text) <= MAX_INT_DIGITS and _INT.fullmatch(text):
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    if len(text) <= MAX_INT_DIGITS and _FLOAT.fullmatch(text) and math.isfinite(float(text)):
        return float(text)
    return text
