//! Every input of `fuzz/corpus`, among them those of past crashes, through its target's check.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::{
    collections::BTreeSet,
    fs,
    panic::catch_unwind,
    path::{Path, PathBuf},
};

use fuzz_checks::TARGETS;

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn names(directory: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(fuzz().join(directory)).unwrap();
    let names = entries.map(|entry| entry.unwrap().path());
    let stems = names.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned());
    stems.collect()
}

#[test]
fn every_target_has_a_program_and_a_corpus() {
    let targets: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(names("fuzz_targets"), targets);
    assert_eq!(names("corpus"), targets);
    let dictionaries = names("dictionaries");
    assert!(dictionaries.is_subset(&targets), "{dictionaries:?}");
}

#[test]
fn every_input_of_the_corpus_passes() {
    let mut failed = Vec::new();
    for (name, check) in TARGETS {
        let inputs = fs::read_dir(fuzz().join("corpus").join(name)).unwrap();
        let inputs: Vec<PathBuf> = inputs.map(|entry| entry.unwrap().path()).collect();
        assert!(!inputs.is_empty(), "{name}");
        for path in inputs {
            let data = fs::read(&path).unwrap();
            if catch_unwind(|| check(&data)).is_err() {
                failed.push(path);
            }
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}
