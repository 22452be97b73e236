"""Write plain tables as TOML; the standard library only reads it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any


def toml_text(document: Mapping[str, Any]) -> str:
    """Return a document of plain tables as TOML.

    Tables nest at most one array of tables deep, which is all that a profile needs.
    """
    return "\n".join(_table_lines(document, ())).lstrip("\n") + "\n"


def _table_lines(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    values = {key: value for key, value in table.items() if not _is_table(value)}
    if path and (values or not table):
        yield ""
        yield f"[{'.'.join(path)}]"
    for key, value in values.items():
        yield f"{_key(key)} = {_value(value)}"
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _table_lines(value, (*path, _key(key)))
        elif _is_table(value):
            for item in value:
                yield ""
                yield f"[[{'.'.join((*path, _key(key)))}]]"
                for inner, content in item.items():
                    yield f"{_key(inner)} = {_value(content)}"


def _is_table(value: Any) -> bool:
    if isinstance(value, Mapping):
        return True
    return isinstance(value, list) and bool(value) and isinstance(value[0], Mapping)


def _key(key: str) -> str:
    return key if key.replace("_", "").replace("-", "").isalnum() and key.isascii() else _text(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list):
        items = [_value(item) for item in value]
        if any(isinstance(item, list | str) for item in value):
            return "[\n" + "".join(f"  {item},\n" for item in items) + "]"
        return f"[{', '.join(items)}]"
    return repr(value)


def _text(text: str) -> str:
    # JSON escapes are TOML escapes, but for DEL, which JSON leaves as it is.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
