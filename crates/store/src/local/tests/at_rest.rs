//! Reading the file of a store that nobody has open.

use std::fs;

use super::{
    super::{database::beside, migration::back_to_format_1, read_at_rest},
    Scratch,
    children::everything,
    open, write,
};
use crate::{Precondition, Store as _, StoreError};

#[tokio::test]
async fn a_closed_store_is_read_and_not_changed() {
    let scratch = Scratch::new();
    let file = scratch.file();
    assert!(read_at_rest(&file).unwrap().is_none());
    assert!(!scratch.0.exists(), "nothing is made");

    let store = open(&file).unwrap();
    for n in 0..50 {
        let key = format!("/g/a/{n}");
        write(&store, &key, Precondition::Absent, b"some value")
            .await
            .unwrap();
    }
    let (entries, revision) = (everything(&store).await, store.revision().await.unwrap());
    let live = fs::read(&file).unwrap();
    assert!(matches!(
        read_at_rest(&file),
        Err(StoreError::Locked { .. })
    ));
    drop(store);

    let closed = fs::read(&file).unwrap();
    // As a gateway leaves it that is killed.
    for bytes in [&closed, &live] {
        fs::write(&file, bytes).unwrap();
        let read = read_at_rest(&file).unwrap().unwrap();
        assert_eq!(read.revision, revision);
        let found = read.entries.iter();
        let found: Vec<_> = found
            .map(|e| (e.key.clone(), e.revision, e.bytes()))
            .collect();
        assert_eq!(found, entries);
        assert_eq!(&fs::read(&file).unwrap(), bytes);
    }
    back_to_format_1(&file);
    let old = read_at_rest(&file).unwrap().unwrap();
    assert_eq!((old.revision, old.entries.len()), (revision, entries.len()));
    assert!(!beside(&file, ".format-1").exists());
}

#[tokio::test]
async fn a_file_that_is_no_store_is_reported() {
    let scratch = Scratch::new();
    let file = scratch.file();
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    for bytes in [&b""[..], b"no store", &[0; 8192]] {
        fs::write(&file, bytes).unwrap();
        let error = read_at_rest(&file).unwrap_err();
        assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
    }
}
