//! Conformance vectors: compared with what the code computes, or written.

use std::path::PathBuf;

use serde_json::{Value, json};

/// Compares or writes the cases, one per line, so that a diff shows the changed ones.
pub fn compare(name: &str, what: &str, cases: Vec<Value>) {
    let lines: Vec<String> = cases.iter().map(|case| format!("  {case}")).collect();
    let text = format!(
        "{{\"what\": {},\n\"cases\": [\n{}\n]}}\n",
        json!(what),
        lines.join(",\n")
    );
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("vectors")
        .join(name);
    if std::env::var_os("PLIMSOLL_WRITE_VECTORS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        return;
    }
    let held = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(
        held == text,
        "{} differs from what the code computes",
        path.display()
    );
}
