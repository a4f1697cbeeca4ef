//! What is kept and read again, and what is not read.

use std::os::unix::fs::symlink;

use serde_json::json;

use super::*;
use crate::files::tests::Scratch;

const SOURCE: &str = "files /etc/fairgate/policies";

fn documents(number: u32) -> Vec<PolicyDocument> {
    let one = PolicyDocument {
        origin: "a.yaml".to_owned(),
        object: json!({"b": [1.5, -7, null, "ü\u{1}"], "a": {"z": number, "c": 0.1}}),
    };
    vec![one]
}

fn file(scratch: &Scratch, source: &str) -> LastGoodFile {
    let directory = scratch.0.join("a/state");
    LastGoodFile::new(&directory, PolicyArea::FlowControl, source)
}

fn problem(file: &LastGoodFile) -> String {
    file.read().unwrap_err().to_string()
}

#[test]
fn documents_are_read_as_they_were_kept() {
    let scratch = Scratch::new("kept");
    let file = file(&scratch, SOURCE);
    assert_eq!(file.read().unwrap(), None);
    file.write(&documents(1), 1_800_000_000).unwrap();
    let first = file.read().unwrap().unwrap();
    assert_eq!(
        (&first.documents, first.saved_at),
        (&documents(1), 1_800_000_000)
    );
    file.write(&documents(2), 7).unwrap();
    let second = file.read().unwrap().unwrap();
    assert_eq!((second.documents, second.saved_at), (documents(2), 7));
    assert_ne!(first.digest, second.digest);
}

#[test]
fn only_the_owner_can_use_what_is_kept_and_nothing_else_is_left_behind() {
    let scratch = Scratch::new("modes");
    let file = file(&scratch, SOURCE);
    file.write(&documents(1), 7).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!((mode(&file.directory), mode(&file.path)), (0o700, 0o600));
    let left = file.path.with_extension("json.0.tmp");
    let fresh = file.path.with_extension("json.1.tmp");
    for path in [&left, &fresh] {
        fs::write(path, "half").unwrap();
    }
    let written = fs::metadata(&left).unwrap().modified().unwrap();
    let opened = File::options().write(true).open(&left).unwrap();
    opened
        .set_modified(written - ABANDONED - ABANDONED)
        .unwrap();
    file.write(&documents(2), 8).unwrap();
    assert!(!left.exists() && fresh.exists());
    assert_eq!(fs::read_dir(&file.directory).unwrap().count(), 2);
}

/// Two gateways of one machine may have the same source and the same directory.
#[test]
fn gateways_that_write_at_the_same_time_leave_the_whole_set_of_one_of_them() {
    const WRITES: u32 = 60;
    let scratch = Scratch::new("two");
    let many = |number: u32| vec![documents(number).remove(0); 200];
    file(&scratch, SOURCE).write(&many(0), 0).unwrap();
    let reader = file(&scratch, SOURCE);
    let read = std::thread::scope(|scope| {
        let writers = [0, WRITES].map(|first| {
            let (scratch, many) = (&scratch, &many);
            scope.spawn(move || {
                let own = file(scratch, SOURCE);
                for number in first..first + WRITES {
                    own.write(&many(number), number.into()).unwrap();
                }
            })
        });
        let mut read = 0;
        while read == 0
            || !writers
                .iter()
                .all(std::thread::ScopedJoinHandle::is_finished)
        {
            let set = reader.read().unwrap().unwrap();
            let number = u32::try_from(set.saved_at).unwrap();
            assert_eq!(set.documents, many(number));
            read += 1;
        }
        read
    });
    let last = reader.read().unwrap().unwrap().saved_at;
    assert!([WRITES - 1, 2 * WRITES - 1].contains(&u32::try_from(last).unwrap()));
    assert_eq!(fs::read_dir(&reader.directory).unwrap().count(), 1);
    println!("read {read} times");
}

#[test]
fn sources_and_areas_have_files_of_their_own() {
    let scratch = Scratch::new("sources");
    let (one, other) = (file(&scratch, SOURCE), file(&scratch, "files /other"));
    one.write(&documents(1), 7).unwrap();
    assert_eq!(other.read().unwrap(), None);
    let admission = LastGoodFile::new(&one.directory, PolicyArea::Admission, SOURCE);
    assert_eq!(admission.read().unwrap(), None);
    fs::copy(&one.path, &other.path).unwrap();
    assert!(problem(&other).contains("it is of files /etc/fairgate/policies"));
}

#[test]
fn every_beginning_of_a_file_and_every_other_byte_is_noticed() {
    let scratch = Scratch::new("torn");
    let file = file(&scratch, SOURCE);
    file.write(&documents(1), 7).unwrap();
    let whole = fs::read(&file.path).unwrap();
    for length in 0..whole.len() {
        fs::write(&file.path, &whole[..length]).unwrap();
        assert!(problem(&file).contains("it is not complete"), "{length}");
    }
    let good = documents(1);
    for at in 0..whole.len() {
        let mut text = whole.clone();
        text[at] ^= 1;
        fs::write(&file.path, &text).unwrap();
        // The time alone is not part of the digest.
        let is_good = |set: &Option<LastGoodSet>| set.as_ref().is_some_and(|s| s.documents == good);
        assert!(
            file.read().as_ref().is_ok_and(is_good) || file.read().is_err(),
            "{at}"
        );
    }
}

#[test]
fn what_others_could_have_written_is_not_read() {
    let scratch = Scratch::new("forged");
    let file = file(&scratch, SOURCE);
    file.write(&documents(1), 7).unwrap();
    let set =
        |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    for (path, good) in [(&file.path, 0o600), (&file.directory, 0o700)] {
        for bad in [0o020, 0o002] {
            set(path, good | bad);
            assert!(problem(&file).contains("others can write to it"));
        }
        set(path, good);
    }
    set(&file.directory, 0o720);
    let refused = file.write(&documents(2), 8).unwrap_err().to_string();
    assert!(refused.contains("others can write to it"), "{refused}");
    set(&file.directory, 0o700);
    assert_eq!(file.read().unwrap().unwrap().documents, documents(1));

    let elsewhere = scratch.0.join("elsewhere");
    fs::rename(&file.path, &elsewhere).unwrap();
    symlink(&elsewhere, &file.path).unwrap();
    assert!(problem(&file).contains("it is a symbolic link"));
    // Writing replaces the link, not what it points to.
    file.write(&documents(2), 8).unwrap();
    assert_eq!(file.read().unwrap().unwrap().documents, documents(2));
    assert!(fs::read_to_string(elsewhere).unwrap().contains("\"z\":1"));

    fs::remove_file(&file.path).unwrap();
    fs::create_dir(&file.path).unwrap();
    assert!(problem(&file).contains("it is not a file"));
}

#[test]
fn what_belongs_to_another_user_is_not_trusted() {
    let own = fs::metadata(std::env::temp_dir()).unwrap();
    assert_eq!(
        untrusted(&own, &[own.uid() + 1]),
        Some("it belongs to another user")
    );
}

#[test]
fn a_failed_write_leaves_what_was_kept_and_no_other_file() {
    let scratch = Scratch::new("failed");
    let file = file(&scratch, SOURCE);
    file.write(&documents(1), 7).unwrap();
    fs::remove_file(&file.path).unwrap();
    fs::create_dir(&file.path).unwrap();
    assert!(file.write(&documents(2), 8).is_err());
    assert_eq!(fs::read_dir(&file.directory).unwrap().count(), 1);
}
