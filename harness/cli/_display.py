"""What commands show while trials run: a live view on a terminal, plain lines elsewhere.

The view is one for the whole request: the running trials, a bar with the time left, and the counts. No line of it is
wider than the terminal; labels are shortened in the middle.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group
from rich.text import Text

from harness.cli._tally import Item, Running, Tally, items_of
from harness.stores.stored import final_values
from harness.work.jobs import Answered

if TYPE_CHECKING:
    from harness.study.study import Study
    from harness.work.states import Work

COLOURS = {Answered.DONE: "green", Answered.FAILED: "red", Answered.LOST: "red", Answered.INTERRUPTED: "yellow"}

ERRORS = (Answered.FAILED, Answered.LOST)
"""How jobs end that have an error to tell."""

COLUMNS = {"stage": 10, "step": 13, "loss": 6, "τ": 6, "time": 10, "left": 10}
"""The columns beside the labels of running trials, and their widths."""

WIDE = {"step": 25}
"""The width of columns that are wider on a wide terminal."""

UNITS = {"train": ("epoch {}",), "retrain": ("epoch {}",), "rank": ("{} architectures", "{} arch.")}
"""By stage, the number of steps with its unit, the longest text first."""

LABEL, SHORTEST, STUDY, ROOMY = 21, 16, 4, 32
"""The fewest characters of a label: of a running trial, in a line that tells of its end, of its study, and beside
columns that are wider on a wide terminal."""

TIME, BESIDE = 9, 40
"""The width of a time, and of what stands beside the bar at most: the bar keeps its length."""

STOPPING = "stopping cleanly; Ctrl-C again ends trials at once"


def duration(seconds: float) -> str:
    """Format a duration for readers: "0.4 s", "12 s", "3 min 20 s", "2 h 05 min"."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def shortened(text: str, width: int) -> str:
    """The text in at most so many columns. The study is cut first, or left out: rows and seeds tell trials apart.

    Where that is not enough, the middle is left out, because both ends tell rows apart.
    """
    if cell_len(text) <= width:
        return text
    study, slash, row = text.partition("/")
    if slash and row:
        room = width - 1 - cell_len(row)
        return f"{set_cell_size(study, room - 1)}…/{row}" if room >= STUDY else shortened(row, width)
    behind = max(0, (width - 1) // 2)
    end = text[len(text) - behind :] if behind else ""
    return set_cell_size(text, max(0, width - 1 - cell_len(end))) + "…" + end


@dataclass
class Display:
    """Shows the jobs of a worker on `console`. A context manager, and a `harness.work.worker.Screen`."""

    studies: Sequence[Study] = ()
    """Where the columns are looked up whose numbers are shown."""
    console: Console = field(default_factory=lambda: Console(highlight=False))
    quiet: bool = False
    """Whether only failures and what `say` is told are shown."""
    asked_to_stop: Callable[[], object] = lambda: False
    tally: Tally = field(default_factory=Tally)
    stopping: bool = False

    def __post_init__(self) -> None:
        self._live: Any = None
        self._items: list[Item] = []

    def __enter__(self) -> Display:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()
            self._live = None

    @property
    def is_live(self) -> bool:
        return self._live is not None

    @property
    def _study(self) -> str:
        """The name of the study if there is but one, and its name is over the view: labels do not repeat it."""
        return self.studies[0].name if len(self.studies) == 1 and self.is_live else ""

    @contextlib.contextmanager
    def show(self, todo: Sequence[Work], parallel: int) -> Iterator[Display]:
        """A round of a worker. A `harness.work.worker.Show`."""
        with self.round(items_of(todo, self.studies)):
            yield self

    @contextlib.contextmanager
    def round(self, items: Sequence[Item]) -> Iterator[Display]:
        """A round of jobs: their numbers are those of these items. The view stays until the display is left."""
        self._items = list(items)
        self.tally.add(self._items)
        if self._live is None and self.console.is_interactive and not self.quiet:
            from rich.live import Live

            self._live = Live(get_renderable=self.view, console=self.console, refresh_per_second=4, transient=True)
            self._live.start()
        yield self

    def say(self, line: str) -> None:
        """Print a line that stays on the screen."""
        self._print(Text(line))

    def started(self, number: int, label: str) -> None:
        self.tally.start(number, self._items[number])
        if not self.is_live and not self.quiet:
            self.say(f"{label}: started")

    def progress(self, number: int, report: Mapping[str, Any]) -> None:
        self.tally.progress(number, report)

    def finished(self, number: int, answer: Mapping[str, Any]) -> None:
        if number not in self.tally.running:  # its process died before it could say that it had begun
            self.tally.start(number, self._items[number])
        job, status = self.tally.running[number], answer["status"]
        took = duration(time.monotonic() - job.began)
        ended = self.tally.finish(number, answer)
        if ended is None:  # another process has it, or its process died: the trial is queued again
            if status == Answered.LOST and not self.quiet:
                self.say(f"{job.item.label}: lost after {took}, {answer['error']}; tried again")
            return
        _, left = ended
        wrong = status in ERRORS or (status == Answered.INTERRUPTED and "error" in answer)
        if self.quiet and not wrong:
            return
        if wrong:
            news = answer["error"]
        elif left:
            one, more = ("search", "searches") if job.item.searches else ("ranking", "rankings")
            news = f"{left} {one if left == 1 else more} to come"
        else:
            news = _outcome(job.item, answer)
        self._report(job.item, status, f" after {took}", f", {news}" if news else "")

    def elsewhere(self, work: Work) -> None:
        """Count a trial that another process has done meanwhile."""
        (item,) = items_of([work], self.studies)
        self.tally.elsewhere(item)
        if not self.quiet:
            self._report(item, Answered.DONE, " by another process")

    def _report(self, item: Item, status: str, how: str, news: str = "") -> None:
        """Print how an item ended. On a narrow terminal, the label and the number come first."""
        over, total = map(sum, zip(self.tally.trials, self.tally.references, strict=True))
        before = f"[{over:{len(str(total))}}/{total}] "
        room = self.console.width - cell_len(f"{before}: {status}{how}{news}")
        label = item.label.removeprefix(f"{self._study}/")
        if status not in ERRORS and self.console.is_interactive:  # an error is told in full
            if news and room < min(LABEL, cell_len(label)):
                room, how = room + cell_len(how), ""
            label = shortened(label, max(SHORTEST, room))
        self._print(Text.assemble(before, label, ": ", (status, COLOURS[Answered(status)]), how, news))

    def _print(self, text: Text) -> None:
        self.console.print(text, soft_wrap=True)

    def view(self) -> Group:
        """The live view. Its last line is short: the terminal writes ^C behind it."""
        width = self.console.width
        running = list(self.tally.running.values())
        room = max(1, self.console.height - 5)
        lines = _table(running[:room], width, self._study)
        if not self.tally.has_begun:
            lines.append(Text("starting: the first process imports torch", "dim"))
        if len(running) > room:
            lines.append(Text(f"… and {len(running) - room} more"))
        stopping = self.stopping or self.asked_to_stop()
        last = Text(STOPPING, "yellow") if stopping else self._counts(width - 4)
        last.truncate(max(1, width - 4), overflow="ellipsis")
        return Group(*lines, self._bar(width), last)

    def _counts(self, width: int) -> Text:
        """The trials of the request by what became of them; together they are all of it."""
        tally = self.tally
        words: list[tuple[int, str, str]] = [
            (tally.stored, "stored before", ""),
            (tally.count(Answered.DONE), "done", "green"),
            (tally.count(Answered.FAILED), "failed", "red"),
            (tally.count(Answered.LOST), "lost", "red"),
            (tally.count(Answered.INTERRUPTED), "interrupted", "yellow"),
            (len({job.item.key for job in tally.running.values() if not job.item.references}), "running", ""),
            (tally.waiting, "waiting", ""),
        ]
        shown = [(f"{count} {word}", style) for count, word, style in words if count or word == "done"]
        over, references = tally.references
        told = Text(", ").join(Text(text, style) for text, style in shown)
        further = f", {over} of {references} references"
        return told.append(further) if references and cell_len(told.plain + further) <= width else told

    def _bar(self, width: int) -> Text:
        """One bar for everything, with the time so far and the time left."""
        fraction, left = self.tally.fraction, self.tally.left
        text = f" {fraction:4.0%}  {duration(time.monotonic() - self.tally.began):>{TIME}}"
        if left is not None and fraction < 1:
            text += f", about {duration(left)} left"
        room = max(4, min(40, width - BESIDE))
        full = round(fraction * room)
        bar = Text.assemble(("━" * full, "green"), ("─" * (room - full), "dim"), text)
        bar.truncate(width, overflow="ellipsis")
        return bar


def _table(running: Sequence[Running], width: int, study: str) -> list[Text]:
    """The running jobs under a heading: the name of their study, if there is but one.

    A narrow terminal has fewer columns and shorter labels. Which columns there are, and how wide, depends on the
    terminal alone: the view stays calm.
    """
    if not running:
        return []
    columns = COLUMNS | WIDE if width - _taken(COLUMNS | WIDE) >= ROOMY else dict(COLUMNS)
    for name in ("τ", "loss", "time", "step", "left", "stage"):
        if width - _taken(columns) < LABEL:
            del columns[name]
    labels = [job.item.label.removeprefix(f"{study}/") for job in running]
    heading = study or "trial"
    room = min(width - _taken(columns), max(map(cell_len, [heading, *labels])))
    found = [Text(_line(shortened(heading, room), {name: name for name in columns}, columns, room), "dim")]
    for label, job in zip(labels, running, strict=True):
        cells = {
            "stage": job.stage,
            "step": _step(job, columns.get("step", 0)),
            "loss": "" if job.loss is None else f"{job.loss:.3f}",
            "τ": "" if job.tau is None else f"{job.tau:.3f}",
            "time": duration(time.monotonic() - job.began),
            "left": "" if job.left is None else duration(job.left),
        }
        found.append(Text(_line(shortened(label, room), cells, columns, room)))
    for line in found:
        line.truncate(width, overflow="ellipsis")
    return found


def _line(label: str, cells: Mapping[str, str], columns: Mapping[str, int], room: int) -> str:
    text = set_cell_size(label, room)
    for name, width in columns.items():
        space = " " * (width - cell_len(cells[name]))
        text += "  " + (cells[name] + space if name == "stage" else space + cells[name])
    return text


def _step(job: Running, width: int) -> str:
    """How far the stage is, with a unit as far as there is room."""
    if job.stage == "search":  # how many it will ask for is not known
        return job.generation or f"{job.step} done"
    if not job.steps:
        return ""
    count = f"{job.step}/{job.steps}"
    texts = (unit.format(count) for unit in UNITS.get(job.stage, ()))
    return next((text for text in texts if cell_len(text) <= width), count)


def _taken(columns: Mapping[str, int]) -> int:
    return sum(2 + width for width in columns.values())


def _outcome(item: Item, answer: Mapping[str, Any]) -> str:
    """The result in a few words: the first column of the study that has a number, else τ."""
    result = answer.get("result") or {}
    if result.get("diverged"):
        return "training diverged"
    values = final_values(result, answer.get("cost") or {})
    for column in item.columns:
        if isinstance(value := values.get(column.metric), int | float):
            return f"{column.label} {value * column.scale:.{column.digits}f}"
    tau = result.get("kendall_tau")
    return "" if tau is None else f"τ {tau:.3f}"
