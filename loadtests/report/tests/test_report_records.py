"""Damaged records: a message that names file and line, status 1, and nothing written."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from loadtests.report.tests.conftest import NODES, REQUESTS, request, sample, steady
from loadtests.report.tests.told import complaint

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def folder(run) -> Path:
    return run.add("rr", steady(10, 30), [sample(t, capacity=1000) for t in range(3)])


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize("name", ["meta.json", "requests.csv.gz", "nodes.csv"])
def test_missing_file(run, folder, capsys, name):
    (folder / name).unlink()
    assert complaint(run, capsys) == f"{folder / name}: No such file or directory"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("12.0,0.5,200,query,ok,80", "expected 8 fields, found 6"),
        ("", "expected 8 fields, found 0"),
        ("nan,0.5,200,query,ok,80,node1,", "t_s is 'nan', expected a number of at least 0"),
        ("12.0,-0.5,200,query,ok,80,node1,", "delay_s is '-0.5', expected a number of at least 0"),
        ("12.0,inf,200,query,ok,80,node1,", "delay_s is 'inf', expected a number of at least 0"),
        ("12.0,0.5,200,query,ok,,node1,", "items is '', expected a number of at least 0"),
        ("12.0,0.5,200,query,ok,many,node1,", "items is 'many', expected a number of at least 0"),
        ("12.0,0.5,200,query,ok,80,node1,old", "age_s is 'old', expected a number of at least 0"),
        ("12.0,0.5,200,quarry,ok,80,node1,", "class is 'quarry', expected query, important or transaction"),
        ("12.0,0.5,200,query,late,80,node1,", "outcome is 'late', expected ok, refused, error or timeout"),
    ],
)
def test_bad_request_line(run, folder, capsys, line, message):
    path = folder / "requests.csv.gz"
    with gzip.open(path, "wt") as file:
        file.write("\n".join([REQUESTS, request(11, 0.5), line, request(12, 0.5)]) + "\n")
    assert complaint(run, capsys) == f"{path}:3: {message}"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1.0,node1", "expected 19 fields, found 2"),
        (sample(2, "node9"), "node is 'node9', which meta.json does not have"),
        (sample(2, capacity="nan"), "capacity_items_per_s is 'nan', expected a number of at least 0"),
        (sample(2, bound=-1), "bound is '-1', expected a number of at least 0"),
        (sample("x"), "t_s is 'x', expected a number of at least 0"),
        (sample(""), "t_s must not be empty"),
        ("1.0,node1,yes,,,,,,,,,,,,,,,,", "up is 'yes', expected a number of at least 0"),
    ],
)
def test_bad_node_line(run, folder, capsys, line, message):
    path = folder / "nodes.csv"
    path.write_text("\n".join([NODES, sample(1), line]) + "\n")
    assert complaint(run, capsys) == f"{path}:3: {message}"


def test_lines_are_counted_as_an_editor_does(run, folder, capsys):
    path = folder / "nodes.csv"
    path.write_text(f'{NODES}\n1.0,node1,1,,,"two\nlines",,,,,,,,,,,,,\n1.0\n')
    assert complaint(run, capsys) == f"{path}:4: expected 19 fields, found 1"


@pytest.mark.parametrize(("name", "columns"), [("requests.csv.gz", REQUESTS), ("nodes.csv", NODES)])
def test_bad_header_and_empty_file(run, folder, capsys, name, columns):
    path = folder / name
    opener = gzip.open if name.endswith(".gz") else open
    with opener(path, "wt") as file:
        file.write(columns.replace("t_s", "time") + "\n")
    assert complaint(run, capsys) == f"{path}:1: expected the header {columns}"
    with opener(path, "wt") as file:
        file.write("")
    assert complaint(run, capsys) == f"{path}:1: the file is empty"


def test_truncated_gzip(run, folder, capsys):
    path = folder / "requests.csv.gz"
    path.write_bytes(path.read_bytes()[:-12])
    message = complaint(run, capsys)
    assert message.startswith(f"{path}:")
    assert "truncated or damaged" in message


def test_text_instead_of_gzip(run, folder, capsys):
    path = folder / "requests.csv.gz"
    path.write_text(REQUESTS)
    assert complaint(run, capsys).startswith(f"{path}:1: truncated or damaged: Not a gzipped file")


def test_bytes_that_are_no_text(run, folder, capsys):
    (folder / "nodes.csv").write_bytes(NODES.encode() + b"\n1.0,\xff\xfe\n")
    assert complaint(run, capsys).startswith(f"{folder / 'nodes.csv'}:")
    (folder / "nodes.csv").write_text(NODES + "\n")
    (folder / "meta.json").write_bytes(b'{"policy": "\xff"}')
    assert complaint(run, capsys).startswith(f"{folder / 'meta.json'}: damaged: ")


def test_json_that_does_not_parse(run, folder, capsys):
    path = folder / "meta.json"
    path.write_text('{\n "policy": "rr",\n "proxy": \n}')
    assert complaint(run, capsys).startswith(f"{path}:4: Expecting value")
    path.write_text("[]")
    assert complaint(run, capsys) == f"{path}: the file: expected an object"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"policies": []},
            "policies is [], expected a list of at least one name, each once and fit for a folder",
        ),
        (
            {"policies": ["../rr"]},
            'policies is ["../rr"], expected a list of at least one name, each once and fit for a folder',
        ),
        (
            {"policies": "rr"},
            'policies is "rr", expected a list of at least one name, each once and fit for a folder',
        ),
        ({"sla_seconds": 0}, "sla_seconds is 0, expected a number above 0"),
        ({"sla_seconds": float("nan")}, "sla_seconds is NaN, expected a number above 0"),
        ({"seed": "one"}, 'seed is "one", expected a whole number of at least 0'),
        ({"quick": 1}, "quick is 1, expected true or false"),
        ({"machine": "mine"}, "machine: expected an object"),
        ({"machine": {"cpu": "abacus"}}, "key 'machine.cores' is missing"),
    ],
)
def test_bad_run_facts(run, folder, capsys, changes, message):
    edit(run.directory / "run.json", **changes)
    assert complaint(run, capsys) == f"{run.directory / 'run.json'}: {message}"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"policy": "prop"}, 'policy is "prop", expected that of the folder'),
        ({"measured_to_s": "30"}, 'measured_to_s is "30", expected seconds within 0..86400'),
        ({"measured_to_s": 1e12}, "measured_to_s is 1000000000000.0, expected seconds within 0..86400"),
        ({"measured_to_s": 10.0}, "no whole second between measured_from_s and measured_to_s"),
        (
            {"measured_from_s": 28.5, "measured_to_s": 29.5},
            "no whole second between measured_from_s and measured_to_s",
        ),
        ({"event_s": 31}, "event_s is 31, expected a time between measured_from_s and -_to_s"),
        ({"event_s": -1}, "event_s is -1, expected seconds within 0..86400 or null"),
        (
            {"node_capacity_items_per_s": {"node1": -5}},
            'node_capacity_items_per_s is {"node1": -5}, expected an object of at least one node, '
            "each with a number of at least 0",
        ),
        ({"generator": []}, "generator: expected an object"),
        (
            {"generator": {"cpu_share": 0.1, "lag_p99_s": float("inf")}},
            "generator.lag_p99_s is Infinity, expected a number of at least 0",
        ),
    ],
)
def test_bad_policy_facts(run, folder, capsys, changes, message):
    edit(folder / "meta.json", **changes)
    assert complaint(run, capsys) == f"{folder / 'meta.json'}: {message}"


@pytest.mark.parametrize("key", ["scenario", "sla_seconds", "seed", "machine", "policies", "command"])
def test_missing_key(run, folder, capsys, key):
    path = run.directory / "run.json"
    facts = json.loads(path.read_text())
    del facts[key]
    path.write_text(json.dumps(facts))
    assert complaint(run, capsys) == f"{path}: key '{key}' is missing"


def test_unwritable_summary_is_reported(run, folder, capsys):
    (run.directory / "summary.json").mkdir()
    assert run.report() == 1
    assert capsys.readouterr().err == f"report: {run.directory / 'summary.json'}: Is a directory\n"


def test_the_command_fails_without_a_traceback(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "loadtests.report", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == f"report: {tmp_path / 'run.json'}: No such file or directory\n"
