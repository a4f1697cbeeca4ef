//! Strategic merge patches: a JSON text `{"object": …, "patch": …}`.
//!
//! Properties: an empty patch changes nothing; equal inputs give equal results; a patch without directives that was applied
//! and is applied again changes nothing; the result is bounded by object and patch.

use fairgate_objects::{codec::FieldValidation, kinds::KINDS, patch::strategic};
use serde_json::{Value, json};

use crate::{Outcome, Target};

/// The target `patches`.
pub const TARGET: Target = Target {
    name: "patches",
    run,
    dictionary: &[
        "{\"object\":",
        "\"patch\":",
        "\"$patch\":\"delete\"",
        "\"$patch\":\"replace\"",
        "\"$patch\":\"merge\"",
        "\"$retainKeys\":[\"a\"]",
        "\"$setElementOrder/rules\":[",
        "\"$deleteFromPrimitiveList/verbs\":[",
        "null",
        "{}",
        "[]",
        "[[]]",
        "\"spec\":{",
        "\"metadata\":{",
        "\"labels\":{\"a\":null}",
        "\"finalizers\":[\"a\",\"b\"]",
        "\"conditions\":[{\"type\":\"a\",\"status\":\"b\"}]",
        "\"ownerReferences\":[{\"uid\":\"u\"}]",
        "\"rules\":[{\"subjects\":[]}]",
        "\"status\":{",
        ",",
        "}",
        "1",
        "\"a\"",
        "true",
    ],
};

fn run(data: &[u8]) -> Outcome {
    let Ok(input) = serde_json::from_slice::<Value>(data) else {
        return Outcome::of("no JSON");
    };
    let object = match &input["object"] {
        Value::Object(_) => input["object"].clone(),
        _ => json!({}),
    };
    let patch = input["patch"].to_string();
    let shape = KINDS[0].stored().shape;
    let apply = |object: &Value, patch: &str| {
        let patched = strategic(shape, object, patch.as_bytes(), FieldValidation::Strict);
        patched
            .map(|patched| patched.value)
            .map_err(|error| error.to_string())
    };
    assert_eq!(apply(&object, "{}"), Ok(object.clone()));
    let patched = apply(&object, &patch);
    assert_eq!(
        apply(&object, &patch),
        patched,
        "equal inputs give equal results"
    );
    if let Ok(patched) = &patched {
        let (before, after) = (
            object.to_string().len() + patch.len(),
            patched.to_string().len(),
        );
        assert!(after <= before + 2, "{after} bytes of {before}");
        // The second time more of the patch meets an existing object, where fields that the kind does not have are errors.
        if !patch.contains('$')
            && let Ok(again) = apply(patched, &patch)
        {
            assert_eq!(again, *patched, "applied again: {patch}");
        }
    }
    let changed = patched.as_ref().map(|patched| *patched != object);
    Outcome::of(changed.map_err(|error| {
        error
            .chars()
            .filter(char::is_ascii_alphabetic)
            .take(30)
            .collect::<String>()
    }))
}
