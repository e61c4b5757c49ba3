"""The JSON schema of summary.json, which conftest.py holds every summary of these tests against."""

import json
import subprocess
import sys

import pytest
from pydantic import ValidationError

from compose.lab.topology import ROOT
from loadtests.report.tests.conftest import SCHEMA, steady


def test_command_prints_a_schema_describing_every_key():
    command = [sys.executable, "-m", "loadtests.report.schema"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    schema = json.loads(done.stdout)
    records = [schema, *schema["$defs"].values()]
    assert all(record["description"] for record in records)
    for record in records:
        assert record["additionalProperties"] is False
        assert set(record["required"]) == set(record["properties"])
        for name, one in record["properties"].items():
            assert "description" in one or "#/$defs/" in json.dumps(one), name


@pytest.mark.parametrize("changes", [{"more": 1}, {"seed": -1}, {"nodes": 1.5}, {"quick": "yes"}])
def test_a_summary_that_breaks_it_is_refused(run, changes):
    run.add("rr", steady(10, 30))
    with pytest.raises(ValidationError, match=next(iter(changes))):
        SCHEMA.validate_json(json.dumps(run.summary() | changes), strict=True)
