//! Bytes that lie, or are cut off, or too large: an error with its place, never a panic.

use std::error::Error;
use std::fmt::Write;
use std::path::Path;

use bytes::Bytes;
use expect_test::expect_file;
use headwater_records::fuzzing::read_everything;
use headwater_records::{Batches, RecordsError};

/// Every file of the corpus, and what comes of reading it.
#[test]
fn the_corpus_is_read_without_harm() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let files = corpus.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files.collect();
    files.sort();
    assert!(files.len() > 30, "only {} files", files.len());
    let mut table = String::new();
    for file in files {
        let name = file.file_name().unwrap().to_str().unwrap();
        let outcome = read_everything(&std::fs::read(&file).unwrap());
        if outcome.is_empty() {
            writeln!(table, "{name}: no whole batch").unwrap();
        }
        for batch in outcome {
            match batch {
                Ok(count) => writeln!(table, "{name}: {count} records").unwrap(),
                Err(error) => {
                    let source = error.source().map(|source| format!(": {source}"));
                    writeln!(table, "{name}: {error}{}", source.unwrap_or_default()).unwrap();
                }
            }
        }
    }
    expect_file!["corpus.txt"].assert_eq(&table);
}

/// Every file of the corpus cut at every byte, and with every byte changed.
#[test]
fn no_damage_does_harm() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut damaged = 0;
    for entry in corpus.read_dir().unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        for (at, flip) in (0..bytes.len()).zip([0x01, 0x80, 0xff].into_iter().cycle()) {
            read_everything(&bytes[..at]);
            let mut bytes = bytes.clone();
            bytes[at] ^= flip;
            read_everything(&bytes);
            damaged += 1;
        }
    }
    assert!(damaged > 5000, "only {damaged} cases");
}

/// Damage on the way is noticed before anything is read.
#[test]
fn a_wrong_checksum_is_an_error() {
    let bytes = include_bytes!("corpus/batch-checksum-wrong");
    let batch = Batches::new(Bytes::from_static(bytes)).next().unwrap().unwrap();
    let error = batch.decompress(1000).unwrap_err();
    let RecordsError::Checksum { position: 0, stored, computed } = error else {
        panic!("another error: {error}");
    };
    assert_eq!(stored, computed ^ 1, "the file has the lowest bit wrong");
}
