"""Results as Parquet files: one a table, with units, meanings and the manifest inside."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sim.atomic import replacing
from sim.columns import TABLES
from sim.errors import InputError, Problem
from sim.results import Results, Table, typed

METADATA_KEY = b"moesim"

ARROW_TYPES = {"float64": "float64", "int64": "int64", "Int64": "int64", "str": "string"}


def write_parquet(results: Results, folder: Path) -> list[Path]:
    """Write every table of results as ``TABLE.parquet``; each file is whole or not there.

    The manifest, units and meanings are in the metadata of each file.

    Raises
    ------
    InputError
        A file cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return _write_tables(results, folder)
    except OSError as error:
        message = f"cannot be written: {error.strerror or error}"
        raise InputError(Problem(str(folder), "", message)) from error


def _write_tables(results: Results, folder: Path) -> list[Path]:
    written = []
    for name in results.table_names:
        columns = TABLES[name]
        fields, values = [], []
        for column, array in results.table(name).items():
            declared = columns[column]
            is_missing = np.isnan(array) if declared.dtype == "Int64" else None
            values.append(pa.array(array, ARROW_TYPES[declared.dtype], mask=is_missing, safe=False))
            notes = {"unit": declared.unit, "meaning": declared.meaning}
            fields.append(pa.field(column, values[-1].type, metadata=notes))
        schema = pa.schema(fields, metadata={METADATA_KEY: _metadata(results)})
        path = folder / f"{name}.parquet"
        with replacing(path) as part:
            pq.write_table(pa.Table.from_arrays(values, schema=schema), part)
        written.append(path)
    return written


def read_parquet(folder: Path) -> Results:
    """Read what `write_parquet` wrote.

    Raises
    ------
    InputError
        There is no ``requests.parquet``, or a file is not one of ours.
    """
    tables: dict[str, Table | Callable[[], Table]] = {}
    metadata: dict[str, Any] = {}
    for name, columns in TABLES.items():
        path = folder / f"{name}.parquet"
        if not path.exists():
            continue
        try:
            found = pq.read_table(path)
            metadata = json.loads((found.schema.metadata or {})[METADATA_KEY])
            tables[name] = {
                column: typed(found[column].to_numpy(), declared.dtype)
                for column, declared in columns.items()
            }
        except (pa.ArrowInvalid, KeyError, ValueError) as error:
            message = f"not a file that moesim wrote ({error})"
            raise InputError(Problem(str(path), "", message)) from error
    if "requests" not in tables:
        raise InputError(Problem(str(folder), "", "there is no requests.parquet"))
    streams = {int(key): np.array(row) for key, row in metadata.pop("stream_tokens").items()}
    manifest, seed = metadata.pop("manifest"), metadata.pop("seed")
    results = Results(tables, **metadata, stream_tokens=streams)
    results.manifest, results.seed = manifest, seed
    return results


def _metadata(results: Results) -> bytes:
    return json.dumps(
        {
            "manifest": results.manifest,
            "seed": results.seed,
            "end_s": results.end_s,
            "warm_up_s": results.warm_up_s,
            "stall_threshold_s": results.stall_threshold_s,
            "stream_tokens": {key: row.tolist() for key, row in results.stream_tokens.items()},
        },
        sort_keys=True,
    ).encode()
