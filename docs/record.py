"""Record a terminal as an animated SVG: `python docs/record.py docs/run.svg COMMAND…` (needs tmux).

Each command is typed into a shell of the current folder. Its screen is read until it ends, five times per second of the
drawing.
"""

from __future__ import annotations

import html
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

COLUMNS, LINES = 100, 26
WIDTH, HEIGHT = 7.2, 15.0
"""Of a letter, in pixels."""
BACKGROUND, FOREGROUND = "#1e2128", "#d7dae0"
PAUSE = 3.0
"""Seconds that the screen stays after a command."""
SPEED = 4
"""How much faster the drawing is than the recording, so that a recording of minutes is short."""


def record(commands: Sequence[str]) -> list[tuple[float, list[str]]]:
    """The different screens, each with the second at which it appeared; lines with their escape sequences."""
    session = "record"
    screens: list[tuple[float, list[str]]] = []
    _tmux("new-session", "-d", "-s", session, "-x", str(COLUMNS), "-y", str(LINES), "env PS1='$ ' bash --norc")
    try:
        start = time.monotonic()
        for number, command in enumerate(commands):
            _tmux("send-keys", "-t", session, f"{command}; tmux wait-for -S done{number}", "Enter")
            waiting = subprocess.Popen(["tmux", "wait-for", f"done{number}"])
            last = None
            while last is None or time.monotonic() < last + PAUSE * SPEED:
                lines = _tmux("capture-pane", "-e", "-p", "-t", session).split("\n")[:LINES]
                lines = [line.replace(f"; tmux wait-for -S done{number}", "") for line in lines]
                if not screens or screens[-1][1] != lines:
                    screens.append((time.monotonic() - start, lines))
                if last is None and waiting.poll() is not None:
                    last = time.monotonic()
                time.sleep(0.2 * SPEED)
    finally:
        _tmux("kill-session", "-t", session)
    return screens


def _tmux(*words: str) -> str:
    return subprocess.run(["tmux", *words], check=True, capture_output=True, text=True).stdout


def drawing(screens: Sequence[tuple[float, list[str]]]) -> str:
    """All screens, of which an animation shows one at a time, repeatedly; without animation the last one is visible."""
    begins = [begin / SPEED for begin, _ in screens]
    end = begins[-1] + 2 * PAUSE
    width, height = COLUMNS * WIDTH + 20, LINES * HEIGHT + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" font-family="monospace" '
        f'font-size="12"><rect width="100%" height="100%" rx="6" fill="{BACKGROUND}"/>'
    ]
    for number, (begin, (_, lines)) in enumerate(zip(begins, screens, strict=True)):
        until = begins[number + 1] if number + 1 < len(screens) else end
        times = f"0;{begin / end:.4f};{until / end:.4f}" if number else f"0;{until / end:.4f}"
        values = ("none;inline;none" if number else "inline;none") if until < end else "none;inline;inline"
        shown = "inline" if number == len(screens) - 1 else "none"
        parts.append(
            f'<g display="{shown}"><animate attributeName="display" dur="{end:.1f}s" repeatCount="indefinite" '
            f'calcMode="discrete" keyTimes="{times}" values="{values}"/>'
        )
        parts += [_line(text, row) for row, text in enumerate(lines) if text.strip()]
        parts.append("</g>")
    return "\n".join([*parts, "</svg>\n"])


def _line(text: str, row: int) -> str:
    """A line of the terminal; every run of letters of one colour is placed by its column."""
    spans, column = [], 0
    for segment in Text.from_ansi(text).render(Console(color_system="truecolor")):
        style = segment.style
        colour = style.color.get_truecolor().hex if style and style.color and not style.color.is_default else FOREGROUND
        weight = ' font-weight="bold"' if style and style.bold else ""
        if segment.text.strip():
            inner = html.escape(segment.text.rstrip("\n")).replace(" ", "\u00a0")  # else several are drawn as one
            spans.append(f'<tspan x="{10 + column * WIDTH:g}" fill="{colour}"{weight}>{inner}</tspan>')
        column += segment.cell_length
    return f'<text y="{10 + (row + 0.8) * HEIGHT:g}">{"".join(spans)}</text>'


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(drawing(record(sys.argv[2:])))
