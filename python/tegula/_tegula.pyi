"""The compiled module; what it gives to users is typed in __init__.pyi."""

from typing import Any

def __getattr__(name: str) -> Any: ...
