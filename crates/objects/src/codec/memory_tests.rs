//! How much memory bodies of the maximum length take while they are read.

use std::thread;

use super::{json, yaml};

/// The longest body that is read, in bytes.
const BODY: usize = 3 << 20;

/// `part` again and again between `before` and `after`, in so many bytes.
fn body((before, part, after): (&str, &str, &str), bytes: usize) -> Vec<u8> {
    let count = (bytes - before.len() - after.len()) / part.len();
    [before, &part.repeat(count), after].concat().into_bytes()
}

/// The most bytes in use at a time while `read` runs.
fn most(read: impl FnOnce()) -> u64 {
    allocation_counter::measure(read).bytes_max
}

/// The most memory that a body in JSON takes, some 114 MiB: it has no part that is shorter than these.
fn most_of_json() -> u64 {
    let parts = [
        ("[1", ",1", "]"),
        ("[[]", ",[]", "]"),
        ("[\"\"", ",\"\"", "]"),
        ("{\"a\":1", ",\"a\":1", "}"),
    ];
    let each = parts.map(|parts| {
        let text = body(parts, BODY);
        most(|| drop(json::parse(&text)))
    });
    each.into_iter().max().unwrap()
}

#[test]
fn a_body_in_yaml_takes_no_more_memory_than_one_in_json() {
    let bound = most_of_json();
    assert!(bound < 120 << 20, "{bound}");
    let all_parts = [
        ("a: [1", ",1", "]"),
        ("a: [[]", ",[]", "]"),
        ("a: {a", ",a", "}"),
        ("a: [a: b", ",a: b", "]"),
        ("a: [:", ",:", "]"),
        ("a:\n", "- 1\n", ""),
        ("a:\n", "-\n", ""),
        ("", "a:\n", ""),
        ("", "a: 1\n", ""),
        ("", "? a\n", ""),
        ("a: [{a}", ",{a}", "]"),
        ("a:\n", "- - 1\n", ""),
        ("a:\n", "- - - - - - 1\n", ""),
        ("a:\n", "- a:\n", ""),
        ("a: [!a 1", ",!a 1", "]"),
        ("a: &a 1\nb: [*a", ",*a", "]"),
        ("a: &a 1\nb: [*a:b", ",*a:b", "]"),
        ("{\"a\":[1", ",1", "]}"),
        ("{\"a\":[{\"a\":1}", ",{\"a\":1}", "]}"),
    ];
    // The longest body, and ones that have about as many parts as may be. Memory is counted for each thread.
    thread::scope(|scope| {
        for bytes in [BODY, 1_300 << 10, 780 << 10, 520 << 10] {
            scope.spawn(move || {
                for parts in all_parts {
                    let text = body(parts, bytes);
                    let took = most(|| drop(yaml::parse(&text)));
                    assert!(
                        took <= bound,
                        "{parts:?} in {bytes} bytes: {took} of {bound}"
                    );
                }
            });
        }
    });
}

#[test]
fn ordinary_yaml_of_the_longest_length_is_read() {
    let line =
        "  - name: SOME_VARIABLE\n    value: \"2026-01-02T03:04:05Z, or so\"\n    port: 8080\n";
    let text = body(("spec:\n", line, ""), BODY);
    assert!(yaml::parse(&text).is_ok());
    let pairs = body(
        ("{\"spec\":[1", ",{\"name\":\"x\",\"value\":\"y\"}", "]}"),
        3 << 19,
    );
    assert!(yaml::parse(&pairs).is_ok());
    let dense = body(("a: [1", ",1", "]"), BODY);
    let error = yaml::parse(&dense).unwrap_err().to_string();
    assert_eq!(
        error,
        "yaml: more than 524288 scalars, lists and mappings; send it as JSON"
    );
}
