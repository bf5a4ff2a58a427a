"""Job records: what users write, checked once, at the edge.

Does: turns YAML, JSON and plain values into a ``JobSpec``, or names every problem at once. It
guesses no value, runs nothing, and reads no script; it only checks that the script is there.
docs/jobs.md has every field.
"""

from __future__ import annotations

from reshape_controller.records.errors import RecordInvalid, printable
from reshape_controller.records.parse import from_json, from_yaml, parse_record
from reshape_controller.records.rules import check_against_hosts
from reshape_controller.records.schema import record_schema
from reshape_controller.records.text import load_json, load_yaml

__all__ = [
    "RecordInvalid",
    "check_against_hosts",
    "from_json",
    "from_yaml",
    "load_json",
    "load_yaml",
    "parse_record",
    "printable",
    "record_schema",
]
