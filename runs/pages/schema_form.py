"""A Django form from a simple JSON schema; for every other schema one field that takes JSON.

Simple: an object whose properties are strings, numbers, integers, booleans or enums. The service validates the
content against the whole schema in any case: this only spares a person from writing JSON.
"""

import json
from typing import Any

from django import forms

from runs.domain import limits

RAW = "content_json"
_PREFIX = "f_"
_SIMPLE = {"string", "number", "integer", "boolean"}
_KNOWN = {
    *("type", "title", "description", "default", "enum", "examples", "const", "format", "pattern"),
    *("minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
_PROPERTIES = 30
"""More fields than that are not a form that a person fills in."""


def is_simple(schema: Any) -> bool:
    """Whether every property can be a field of its own."""
    if not isinstance(schema, dict) or schema.get("type", "object") != "object":
        return False
    properties = schema.get("properties")
    if not isinstance(properties, dict) or not 0 < len(properties) <= _PROPERTIES:
        return False
    if set(schema) - {"type", "properties", "required", "title", "description", "additionalProperties", "$schema"}:
        return False
    return all(_is_simple_property(value) for value in properties.values())


def _is_simple_property(value: Any) -> bool:
    if not isinstance(value, dict) or set(value) - _KNOWN:
        return False
    if "enum" in value:
        options = value["enum"]
        return isinstance(options, list) and all(not isinstance(option, dict | list) for option in options)
    return value.get("type") in _SIMPLE


class ContentForm(forms.Form):
    """`content()` is the answer as JSON; valid only says that it is JSON, not that it fits."""

    def __init__(self, schema: Any, data: Any = None, *, auto_id: str = "id_%s") -> None:
        super().__init__(data, auto_id=auto_id)
        self.simple = is_simple(schema)
        self._values: dict[str, list[Any]] = {}
        if not self.simple:
            self.fields[RAW] = _raw_field()
            return
        required = schema.get("required") if isinstance(schema.get("required"), list) else []
        for name, spec in schema["properties"].items():
            self.fields[_PREFIX + name] = self._field(name, spec, name in required)

    def content(self) -> Any:
        """Raises KeyError before `is_valid()`."""
        if not self.simple:
            return self.cleaned_data[RAW]
        content = {}
        for key, value in self.cleaned_data.items():
            field = self.fields[key]
            if key in self._values:
                if value != "":
                    content[key.removeprefix(_PREFIX)] = self._values[key][int(value)]
            elif value is not None and (value != "" or field.required):
                content[key.removeprefix(_PREFIX)] = value
        return content

    def _field(self, name: str, spec: dict[str, Any], required: bool) -> forms.Field:
        options: list[Any] | None = spec.get("enum")
        if options is None and spec.get("type") == "boolean":
            options = [True, False]
        common: dict[str, Any] = {
            "label": str(spec.get("title") or name),
            "help_text": str(spec.get("description") or ""),
            "required": required,
            "initial": spec.get("default"),
        }
        if options is not None:
            self._values[_PREFIX + name] = options
            labels = [("", "Choose…" if required else "no answer")]
            labels += [(str(index), _label(option)) for index, option in enumerate(options)]
            if "default" in spec and spec["default"] in options:
                common["initial"] = str(options.index(spec["default"]))
            return forms.ChoiceField(choices=labels, **common)
        if spec["type"] == "integer":
            return forms.IntegerField(min_value=spec.get("minimum"), max_value=spec.get("maximum"), **common)
        if spec["type"] == "number":
            return _NumberField(min_value=spec.get("minimum"), max_value=spec.get("maximum"), **common)
        long = int(spec.get("maxLength") or 0) > 200
        return forms.CharField(
            max_length=min(spec.get("maxLength") or limits.CONTENT_BYTES, limits.CONTENT_BYTES),
            min_length=spec.get("minLength"),
            strip=False,
            widget=forms.Textarea(attrs={"rows": 4}) if long else forms.TextInput(),
            **common,
        )


class _NumberField(forms.FloatField):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.widget.attrs["step"] = "any"


class JSONText(forms.CharField):
    """Strict JSON: no NaN, no NUL (the database cannot keep it), no nesting beyond the border's own bound."""

    def clean(self, value: Any) -> Any:
        text = super().clean(value)
        if not text:
            return None
        try:
            parsed = json.loads(text, parse_constant=_refuse_constant)
        except json.JSONDecodeError as error:
            raise forms.ValidationError(
                f"This is not JSON: {error.msg} (line {error.lineno}, column {error.colno})."
            ) from None
        except (ValueError, RecursionError) as error:
            raise forms.ValidationError(f"This is not JSON that can be taken: {error}.") from None
        if "\\u0000" in json.dumps(parsed):
            raise forms.ValidationError("NUL characters cannot be stored.")
        return parsed


def _raw_field() -> forms.Field:
    return JSONText(
        label="Answer, as JSON",
        help_text="It must fit the schema shown above.",
        max_length=limits.CONTENT_BYTES,
        widget=forms.Textarea(attrs={"rows": 8, "spellcheck": "false", "class": "code"}),
    )


def _label(option: Any) -> str:
    if isinstance(option, bool):
        return "Yes" if option else "No"
    return option if isinstance(option, str) else json.dumps(option)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
