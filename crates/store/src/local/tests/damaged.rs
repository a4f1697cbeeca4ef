//! Files that were truncated or changed: the damage is reported or harmless.

use std::{fs, path::Path, sync::Arc};

use bytes::Bytes;
use fairgate_testkit::random::Random;

use super::{
    super::database::beside,
    Scratch,
    children::{everything, value_for},
    open, write,
};
use crate::{Precondition, ReadRevision, Store as _, StoreError};

/// A file with some objects and some history, closed.
async fn filled(file: &Path) -> Vec<(Arc<str>, u64, Bytes)> {
    let store = open(file).unwrap();
    let mut random = Random::seeded(3);
    for n in 0..120 {
        let key = format!("/a/{}", random.within(0..40));
        let current = store.get(&key, ReadRevision::Newest).await.unwrap();
        let expected = current
            .as_ref()
            .map_or(Precondition::Absent, |e| Precondition::At(e.revision));
        let value = (current.is_none() || n % 5 > 0).then(|| value_for(&key, n));
        store.write(&key, expected, value).await.unwrap();
    }
    everything(&store).await
}

#[tokio::test]
async fn a_truncated_file_is_reported() {
    let scratch = Scratch::new();
    let file = scratch.file();
    filled(&file).await;
    let whole = fs::read(&file).unwrap();
    let mut random = Random::seeded(5);
    let length = whole.len() as u64;
    let mut lengths = vec![
        0,
        1,
        63,
        64,
        319,
        320,
        4095,
        4096,
        4097,
        length / 2,
        length - 4096,
        length - 1,
    ];
    lengths.extend((0..60).map(|_| random.within(0..length)));
    for cut in lengths {
        fs::write(&file, &whole[..usize::try_from(cut).unwrap()]).unwrap();
        let error = open(&file).err();
        let error = error.unwrap_or_else(|| panic!("{cut} of {length} bytes were opened"));
        assert!(
            matches!(error, StoreError::Corrupt { .. }),
            "{cut}: {error}"
        );
        assert!(
            error.to_string().contains("restore it from a backup"),
            "{error}"
        );
    }
    fs::write(
        &file,
        b"# not a database at all, but long enough to have been one, perhaps\n",
    )
    .unwrap();
    let error = open(&file).unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
    fs::write(&file, &whole).unwrap();
    open(&file).unwrap();
}

#[tokio::test]
async fn a_flipped_bit_is_reported_or_harmless() {
    let scratch = Scratch::new();
    let file = scratch.file();
    let expected = filled(&file).await;
    // The file after it was closed, and as a crash leaves it.
    let closed = fs::read(&file).unwrap();
    let store = open(&file).unwrap();
    let last = write(&store, "/a/last", Precondition::Absent, b"last")
        .await
        .unwrap();
    store
        .write("/a/last", Precondition::At(last), None)
        .await
        .unwrap();
    let crashed = fs::read(&file).unwrap();
    drop(store);
    let mut random = Random::seeded(7);
    for whole in [closed, crashed] {
        flip_bits(&file, &whole, &expected, &mut random).await;
    }
}

async fn flip_bits(
    file: &Path,
    whole: &[u8],
    expected: &[(Arc<str>, u64, Bytes)],
    random: &mut Random,
) {
    fs::write(file, whole).unwrap();
    // The lock file of the previous image.
    fs::remove_file(beside(file, ".lock")).unwrap();
    let before = open(file).unwrap().revision().await.unwrap();
    let (mut reported, mut harmless) = (0, 0);
    for n in 0..500_u64 {
        let (at, bit) = match usize::try_from(n).unwrap() {
            // Every bit of the part that says which of the last two commits is valid, and where it is.
            bit @ ..192 => (bit / 8, bit % 8),
            // Then some of the rest of the header, and then some bytes that are not zero.
            n => loop {
                let end = if n < 300 { 512 } else { whole.len() as u64 };
                let at = usize::try_from(random.within(0..end)).unwrap();
                if n < 300 || whole[at] != 0 {
                    break (at, n % 8);
                }
            },
        };
        let mut damaged = whole.to_vec();
        damaged[at] ^= 1 << bit;
        fs::write(file, &damaged).unwrap();
        match open(file) {
            Ok(store) => {
                let same = everything(&store).await == expected;
                assert!(same, "a bit of byte {at} changed what is read");
                assert_eq!(store.revision().await.unwrap(), before, "bit of byte {at}");
                harmless += 1;
            }
            Err(error) => {
                let clear = matches!(
                    error,
                    StoreError::Corrupt { .. } | StoreError::WentBack { .. }
                );
                assert!(clear, "byte {at}: {error}");
                reported += 1;
            }
        }
    }
    println!("{reported} reported, {harmless} harmless");
    assert!(reported > 30, "{reported} reported, {harmless} harmless");
}
