"""Option values with units: durations and sizes."""

from __future__ import annotations

import re
from typing import Any

import click


class _Quantity(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # generic from click 8.4 on
    """A number with an optional unit, converted to the base unit (seconds or bytes)."""

    units: dict[str, float]

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, int | float):
            return float(value)
        match = re.fullmatch(r"(\d+(?:\.\d+)?|\.\d+)\s*([a-zA-Z]*)", value.strip())
        if not match or match[2].lower() not in self.units:
            known = ", ".join(unit for unit in self.units if unit)
            self.fail(f"{value!r} is not a {self.name}: give a number, alone or with one of {known}", param, ctx)
        return float(match[1]) * self.units[match[2].lower()]


class Duration(_Quantity):
    """Seconds, or a number with s, m or h."""

    name = "duration"
    units = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


class Size(_Quantity):
    """Megabytes, or a number with kB, MB or GB (units of 1024)."""

    name = "size"
    units = {"": 1024.0**2, "kb": 1024.0, "mb": 1024.0**2, "gb": 1024.0**3}
