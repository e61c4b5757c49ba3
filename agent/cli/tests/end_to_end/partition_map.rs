//! `plimsoll partition` as people and scripts call it.

use std::{fmt::Write, fs, path::Path, process::Command};

use serde_json::Value;
use tempfile::TempDir;

/// Runs it in a directory: what it prints, and whether all was well.
fn partition(directory: &Path, arguments: &str) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.current_dir(directory).arg("partition");
    let out = command.args(arguments.split(' ')).output().unwrap();
    let said = [out.stdout, out.stderr].concat();
    (out.status.success(), String::from_utf8(said).unwrap())
}

/// 400 rows around (0, 0), 80 around (50, 0).
fn directory() -> TempDir {
    let directory = TempDir::new().unwrap();
    let mut text = "id,x,y\n".to_owned();
    for row in 0..480 {
        let x = if row < 400 { 0 } else { 50 };
        writeln!(text, "k{row},{}.{},{}", x, row % 10, row % 7).unwrap();
    }
    fs::write(directory.path().join("rows.csv"), text).unwrap();
    directory
}

fn map(directory: &Path) -> Value {
    serde_json::from_slice(&fs::read(directory.join("map.json")).unwrap()).unwrap()
}

fn rows(map: &Value) -> Vec<u64> {
    let parts = map["parts"].as_array().unwrap().iter();
    parts.map(|part| part["rows"].as_u64().unwrap()).collect()
}

const MAKE: &str = "make --input rows.csv --key id --output map.json";

#[test]
fn maps_by_rows_clusters_and_both_are_in_order() {
    let place = directory();
    let at = place.path();
    for (by, wanted) in [
        ("--by rows --parts 4", vec![120; 4]),
        ("--by clusters --parts 2 --columns x,y", vec![400, 80]),
        (
            "--by both --parts 5 --clusters 2 --columns x,y --nodes a,b",
            vec![100, 100, 100, 100, 80],
        ),
    ] {
        let (fine, said) = partition(at, &format!("{MAKE} {by}"));
        assert!(fine, "{said}");
        assert!(said.contains("balance"), "{said}");
        let mut found = rows(&map(at));
        found.sort_unstable_by(|x, y| y.cmp(x));
        let close = |(found, wanted): (&u64, &u64)| found.abs_diff(*wanted) <= 1;
        assert!(found.iter().zip(&wanted).all(close), "{found:?}");
        let (fine, said) = partition(at, "check map.json --input rows.csv");
        assert!(fine, "{said}");
    }
    let parts = &map(at)["parts"];
    assert_eq!(
        (&parts[0]["node"], &parts[1]["node"]),
        (&"a".into(), &"b".into())
    );
    let (fine, said) = partition(at, "check map.json --nodes a,c");
    assert!(!fine && said.contains("\"b\""), "{said}");
}

#[test]
fn new_rows_go_to_the_nearest_cluster() {
    let place = directory();
    let at = place.path();
    assert!(partition(at, &format!("{MAKE} --by clusters --parts 2 --columns x,y")).0);
    let before = map(at);
    fs::write(at.join("new.csv"), "y,id,x\n0,n1,1\n0,n2,49\n1,n3,1000\n").unwrap();
    let (fine, said) = partition(at, "extend map.json --input new.csv");
    assert!(fine, "{said}");
    let after = map(at);
    let mut found = rows(&after);
    found.sort_unstable();
    assert_eq!(found, [82, 401]);
    assert_eq!(before["clusters"], after["clusters"]);
    fs::write(at.join("new.csv"), "id,x,y\nn1,1,0\nn2,,0\n").unwrap();
    let (fine, said) = partition(at, "extend map.json --input new.csv");
    assert!(
        !fine && said.contains("new.csv: line 3: column \"x\": the value is missing"),
        "{said}"
    );
    assert_eq!(map(at), after);
}

#[test]
fn gaps_overlaps_and_rows_that_belong_nowhere_are_named() {
    let place = directory();
    let at = place.path();
    assert!(partition(at, &format!("{MAKE} --by rows --parts 2")).0);
    let whole = map(at);
    let check = |first: u64, what: &str| {
        let mut map = whole.clone();
        map["parts"][1]["slots"][0] = first.into();
        fs::write(at.join("map.json"), map.to_string()).unwrap();
        let (fine, said) = partition(at, "check map.json --input rows.csv");
        assert!(!fine && said.contains(what), "{said}");
        said
    };
    check(0, "are in both \"p1\" and \"p2\"");
    let said = check(16_383, "no partition has");
    assert!(
        said.contains("no part takes it") && said.contains("belong nowhere"),
        "{said}"
    );
}

#[test]
fn bad_input_is_named_and_makes_no_map() {
    let place = directory();
    let at = place.path();
    let refused = |text: &str, by: &str, what: &str| {
        fs::write(at.join("bad.csv"), text).unwrap();
        let make = MAKE.replace("rows.csv", "bad.csv");
        let (fine, said) = partition(at, &format!("{make} {by}"));
        assert!(!fine && said.contains(what), "{said}");
        assert!(!at.join("map.json").exists());
    };
    let clusters = "--by clusters --parts 2 --columns x,y";
    refused(
        "id,x,y\na,1,2\nb,NaN,2\n",
        clusters,
        "line 3: column \"x\": \"NaN\" is not a number",
    );
    refused("id,x,y\na,1,2\nb,1\n", clusters, "line: 3");
    refused("id,x,y\na,1,inf\n", clusters, "line 2: column \"y\"");
    refused(
        "id,x,y\na,1,2\nb,1,2\n",
        clusters,
        "of which 1 are distinct",
    );
    refused(
        "id,x,y\n,1,2\n",
        "--by rows --parts 1",
        "line 2: column \"id\": the key is missing",
    );
    refused("id,x\na,1\n", clusters, "no column \"y\"; it has id, x");
    refused(
        "id\na\n",
        "--by rows --parts 2",
        "1 rows are fewer than 2 parts",
    );
    refused("", "--by rows --parts 1", "no column \"id\"");
    refused("id\na\n", "--by clusters --parts 1", "--columns goes with");
}
