"""Tables as LaTeX, close to the paper's: booktabs, methods over several rows, ✓ columns, the best in bold."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from .tables import Label, Table, TableRow, Value

SUFFIX = "tex"

_HEAD = "% Needs \\usepackage{booktabs,multirow,amssymb}. Made by `harness report`; do not edit.\n"
_GREEK = "αβγδεηθλμπρστφω"
_GREEK_NAMES = "alpha beta gamma delta epsilon eta theta lambda mu pi rho sigma tau phi omega"
_SPECIAL = {
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    "\\": "\\textbackslash{}",
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
    "<": "\\textless{}",
    ">": "\\textgreater{}",
    "|": "\\textbar{}",
    '"': "\\textquotedbl{}",
    "`": "\\textasciigrave{}",
    "✓": "\\checkmark{}",
    "–": "--",
    "—": "---",
    "…": "\\dots{}",
    **{sign: f"$\\{name}$" for sign, name in {"±": "pm", "×": "times", "≤": "leq", "≥": "geq", "∝": "propto"}.items()},
    **{sign: f"${text}$" for sign, text in {"′": "'", "²": "^2", "³": "^3", "−": "-"}.items()},
    **{letter: f"$\\{name}$" for letter, name in zip(_GREEK, _GREEK_NAMES.split(), strict=True)},
}


def render(tables: Sequence[Table]) -> str:
    """All tables as floats, to be input into a document."""
    return _HEAD + "\n".join(_float(table) for table in tables)


def escape(text: str) -> str:
    """Plain text as LaTeX."""
    return "".join(_SPECIAL.get(letter, letter) for letter in " ".join(text.split()))


def _float(table: Table) -> str:
    kinds = ["l" if table.has_text(place) else "c" for place in range(len(table.labels))]
    body = "\n    \\midrule\n".join(
        "\n".join(_row(table, block, number) for number in range(len(block))) for block in table.blocks if block
    )
    lines = [
        "\\begin{table}[t]",
        "  \\centering",
        f"  \\caption{{{escape(table.caption)}}}",
        f"  \\label{{tab:{table.study}}}",
        f"  \\begin{{tabular}}{{{''.join(kinds)}{'c' * len(table.columns)}}}",
        "    \\toprule",
        *_header(table),
        "    \\midrule",
        *([body] if body else []),
        "    \\bottomrule",
        "  \\end{tabular}",
        *_notes(table),
        "\\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _header(table: Table) -> list[str]:
    lines = []
    if len(table.datasets) > 1:
        above = ["" for _ in table.labels]
        rules = []
        place = len(table.labels) + 1
        for dataset, columns in groupby(table.columns, lambda column: column.dataset):
            width = len(list(columns))
            above.append(f"\\multicolumn{{{width}}}{{c}}{{{escape(dataset)}}}")
            rules.append(f"\\cmidrule(lr){{{place}-{place + width - 1}}}")
            place += width
        lines = [_line(above), f"    {' '.join(rules)}"]
    return [*lines, _line([escape(text) for text in (*table.labels, *(column.label for column in table.columns))])]


def _row(table: Table, block: Sequence[TableRow], number: int) -> str:
    row = block[number]
    cells = []
    for place, label in enumerate(row.labels):
        if place != table.group or row.name is not None or len(block) == 1:
            cells.append(_label(label))
        else:
            cells.append(f"\\multirow{{{len(block)}}}{{*}}{{{_label(label)}}}" if number == 0 else "")
    return _line([*cells, *map(_value, row.values)])


def _line(cells: Sequence[str]) -> str:
    return f"    {' & '.join(cells)} \\\\".replace("     &", "    &")


def _label(label: Label) -> str:
    if label is None:
        return ""
    return escape(label) if isinstance(label, str) else "\\checkmark" if label else "--"


def _value(value: Value) -> str:
    count = f" ({escape(value.count)})" if value.count else ""
    if not value.mean:
        return f"---{count}"
    mean = f"$-${value.mean[1:]}" if value.mean.startswith("-") else value.mean
    mean = f"\\textbf{{{mean}}}" if value.best else mean
    return mean + (f" $\\pm$ {value.deviation}" if value.deviation else "") + count


def _notes(table: Table) -> list[str]:
    if not table.notes:
        return []
    lines = [f"    {escape(note)}\\par" for note in table.notes]
    return [
        "  \\par\\smallskip",
        "  \\begin{minipage}{\\linewidth}\\footnotesize\\raggedright",
        *lines,
        "  \\end{minipage}",
    ]
