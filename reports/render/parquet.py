"""Tables as tidy Parquet: the columns of the tidy CSV, with types. Needs pyarrow, an optional package."""

from __future__ import annotations

import io
from collections.abc import Sequence

from harness.errors import UserError

from ..values import Table
from .csv import records

_KINDS = {"row": "int64", "seed": "int64", "value": "float64", "deviation": "float64", "passes": "int64"}


def encode(tables: Sequence[Table]) -> bytes:
    """All tables in one file. Raises `UserError` without pyarrow."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise UserError("Parquet needs pyarrow: pip install 'nas-harness[parquet]', or use --format csv") from error
    header, rows = records(tables)
    schema = pyarrow.schema([(name, pyarrow.type_for_alias(_KINDS.get(name, "string"))) for name in header])
    columns = [
        pyarrow.array([row[place] for row in rows], type=field.type, from_pandas=False)
        for place, field in enumerate(schema)
    ]
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_arrays(columns, schema=schema), file)
    return file.getvalue()
