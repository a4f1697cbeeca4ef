//! Migrates a file of an older format.
//!
//! The keys are rewritten in one transaction, in the state and in the history, so revisions stay the same
//! and watches resume. Before that the file is copied to `<file>.format-1`, which an older fairgate can open.

use std::{
    fs,
    path::{Path, PathBuf},
};

use redb::{Database, ReadableDatabase, ReadableTable};

use super::database::{
    FORMAT, Failure, META, STATE, UNDO, begin, beside, directory, failed, number, sync,
};
use crate::{error::StoreError, migration::key_from_format_1};

/// The format of a database.
pub(super) fn format(database: &Database) -> Result<u64, Failure> {
    let meta = database.begin_read()?.open_table(META)?;
    number(&meta, "format")
}

/// Copies the file at `path`, which is closed, so that an older fairgate can be used again. Returns the path
/// of the copy.
pub(super) fn keep_copy(path: &Path) -> Result<PathBuf, StoreError> {
    let (copy, unfinished) = (beside(path, ".format-1"), beside(path, ".format-1.new"));
    let copied = fs::copy(path, &unfinished)
        .and_then(|_| sync(&unfinished))
        .and_then(|()| fs::rename(&unfinished, &copy))
        .and_then(|()| sync(directory(path)));
    copied.map_err(|error| {
        failed(
            &copy,
            "copying the store before its format is changed",
            error,
        )
    })?;
    Ok(copy)
}

/// Migrates a database of format 1.
pub(super) fn from_format_1(database: &Database) -> Result<(), Failure> {
    rename_keys(database, FORMAT, key_from_format_1)
}

/// Renames all keys and sets the format, in one transaction.
fn rename_keys(
    database: &Database,
    format: u64,
    renamed: impl Fn(&str) -> String,
) -> Result<(), Failure> {
    let transaction = begin(database)?;
    {
        let mut state = transaction.open_table(STATE)?;
        let mut entries = Vec::new();
        for row in state.iter()? {
            let (key, row) = row?;
            let (revision, value) = row.value();
            entries.push((key.value().to_owned(), revision, value.to_vec()));
        }
        state.retain(|_, _| false)?;
        for (key, revision, value) in entries {
            state.insert(&*renamed(&key), (revision, &value[..]))?;
        }
        let mut undo = transaction.open_table(UNDO)?;
        let mut changes = Vec::new();
        for row in undo.iter()? {
            let (revision, row) = row?;
            let (key, before, value) = row.value();
            changes.push((revision.value(), renamed(key), before, value.to_vec()));
        }
        for (revision, key, before, value) in changes {
            undo.insert(revision, (&*key, before, &value[..]))?;
        }
        transaction.open_table(META)?.insert("format", format)?;
    }
    Ok(transaction.commit()?)
}

/// Turns the file of a closed store into one of format 1, by removing the first segment of each key.
#[cfg(test)]
pub(super) fn back_to_format_1(path: &Path) {
    let database = Database::open(path).unwrap();
    let renamed = rename_keys(&database, 1, |key| {
        let slash = key[1..].find('/').unwrap();
        key[slash + 1..].to_owned()
    });
    assert!(renamed.is_ok());
}
