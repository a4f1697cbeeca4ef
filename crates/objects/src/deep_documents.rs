//! Documents that nest as deep as the server lets them, and deeper: read, patched, written, compared and dropped.
//!
//! All on half of the stack that a gateway's threads have (`fairgate_base::stack`).

use std::thread;

use fairgate_base::stack::STACK_BYTES;
use proptest::prelude::*;
use serde_json::json;

use crate::{
    codec::{
        BodyFormat, EmptyValues, ExpectedType, FieldValidation,
        json::{self, MAX_DEPTH},
        request_document::{self, DocumentType},
    },
    custom::{self, CustomSchema},
    patch,
    schema::core_v1,
};

const MAP: ExpectedType<'_> = ExpectedType {
    group: "",
    version: "v1",
    kind: "ConfigMap",
    shape: &core_v1::CONFIG_MAP,
    scheme: &[],
    empty: EmptyValues::Null,
};
const OBJECT: DocumentType<'_> = DocumentType::Object(MAP);
const WIDGET: DocumentType<'_> = DocumentType::Unstructured {
    version: "v1",
    kind: "Widget",
};

/// How deep YAML may nest.
const YAML_DEPTH: usize = 128;

/// Runs a test on half of the stack.
pub(crate) fn on_half_of_the_stack(test: impl FnOnce() + Send + 'static) {
    let thread = thread::Builder::new().stack_size(STACK_BYTES / 2);
    let run = thread.spawn(test).unwrap();
    if let Err(panic) = run.join() {
        std::panic::resume_unwind(panic);
    }
}

/// How each level of a value is written: what comes before and after the next one.
type NestedLevel = (&'static str, &'static str);

const LIST: NestedLevel = ("[", "]");
const MEMBER: NestedLevel = (r#"{"a":"#, "}");
const LEVELS: [NestedLevel; 5] = [
    LIST,
    MEMBER,
    ("[0,", r#",{"b":[]}]"#),
    (r#"{"b":[1],"a":"#, r#","c":{"d":null}}"#),
    (r#"{"a":{},"a":"#, "}"),
];

/// A value of so many levels, which take turns.
fn nested(levels: &[NestedLevel], count: usize) -> String {
    let of = |at: usize| levels[at % levels.len()];
    let before: String = (0..count).map(|at| of(at).0).collect();
    let after: String = (0..count).rev().map(|at| of(at).1).collect();
    format!("{before}0{after}")
}

/// How many brackets are open at once, in a text without any in its strings.
fn brackets(text: &str) -> usize {
    let (mut open, mut most) = (0_usize, 0);
    for byte in text.bytes() {
        match byte {
            b'[' | b'{' => open += 1,
            b']' | b'}' => open -= 1,
            _ => {}
        }
        most = most.max(open);
    }
    most
}

fn read(ty: DocumentType<'_>, body: &str) -> Result<String, String> {
    read_as(BodyFormat::Json, ty, body)
}

fn read_yaml(body: &str) -> Result<String, String> {
    read_as(BodyFormat::Yaml, DocumentType::Apply, body)
}

fn read_as(format: BodyFormat, ty: DocumentType<'_>, body: &str) -> Result<String, String> {
    let read = request_document::read(&ty, format, body.as_bytes(), FieldValidation::Warn);
    let read = read.map_err(|error| error.to_string())?;
    Ok(String::from_utf8(read.text.into_owned()).unwrap())
}

/// What becomes of a document in all that it may describe.
fn check_document(value: &str) {
    let object = format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","unknown":{value}}}"#);
    let patch = format!(r#"[{{"op":"add","path":"/a","value":{value}}}]"#);
    for ty in [
        OBJECT,
        WIDGET,
        DocumentType::MergePatch,
        DocumentType::StrategicPatch,
    ] {
        let read = read(ty, &object);
        assert_eq!(
            read.is_ok(),
            brackets(&object) <= MAX_DEPTH,
            "{ty:?}: {read:.200?}"
        );
    }
    let options = object.replace("ConfigMap", "DeleteOptions");
    let read_options = read(DocumentType::DeleteOptions, &options);
    assert_eq!(read_options.is_ok(), brackets(&options) <= MAX_DEPTH);
    // A value that has a key twice is refused in a JSON patch.
    let is_ambiguous = value.contains(r#""a":{},"a":"#);
    let read = read(DocumentType::JsonPatch, &patch);
    let is_read = brackets(&patch) <= MAX_DEPTH && !is_ambiguous;
    assert_eq!(read.is_ok(), is_read, "{read:.200?}");

    let parsed = json::parse(value.as_bytes());
    assert_eq!(parsed.is_ok(), brackets(value) <= MAX_DEPTH);
    let Ok(parsed) = parsed else { return };
    assert_eq!(parsed, parsed.clone());
    let written = json::encode_plain(&parsed.value, false);
    assert_eq!(json::parse(&written).unwrap().value, parsed.value);
}

#[test]
fn documents_are_read_as_deep_as_go_reads_them() {
    on_half_of_the_stack(|| {
        for level in LEVELS {
            for count in [MAX_DEPTH - 4, MAX_DEPTH] {
                check_document(&nested(&[level], count));
            }
        }
        check_document(&nested(&LEVELS, MAX_DEPTH - 4));
        check_document(&nested(&LEVELS, MAX_DEPTH * 20));
    });
}

#[test]
fn deeper_documents_are_refused_in_the_words_of_the_server() {
    on_half_of_the_stack(|| {
        for (level, open) in [(LIST, '['), (MEMBER, '{')] {
            let deep = nested(&[level], MAX_DEPTH);
            let why = format!("invalid character '{open}' exceeded max depth");
            let object = format!(r#"{{"kind":"ConfigMap","apiVersion":"v1","data":{deep}}}"#);
            let patch = format!(r#"[{{"op":"add","path":"/a","value":{deep}}}]"#);
            let decoding = format!("error decoding patch: {why}");
            for (ty, body, wanted) in [
                (
                    OBJECT,
                    &object,
                    format!("couldn't get version/kind; json parse error: {why}"),
                ),
                (DocumentType::MergePatch, &object, decoding.clone()),
                (DocumentType::JsonPatch, &patch, decoding),
                (DocumentType::StrategicPatch, &object, why),
            ] {
                let refused = read(ty, body).unwrap_err();
                assert!(refused.contains(&wanted), "{refused}");
            }
        }
    });
}

#[test]
fn patches_make_objects_as_deep_as_go_reads_them_and_no_deeper() {
    on_half_of_the_stack(|| {
        for level in LEVELS {
            let room = MAX_DEPTH - 8;
            let value = nested(&[level], room);
            let object = json!({"metadata": {"name": "x"}, "data": {"a": {"b": {}}}});
            let merge = format!(r#"{{"unknown":{value}}}"#);
            let merged = patch::merge_patch(&object, merge.as_bytes(), FieldValidation::Warn);
            let merged = merged.unwrap().value;
            let again = patch::merge_patch(&merged, merge.as_bytes(), FieldValidation::Warn);
            assert_eq!(again.unwrap().value, merged);
            let strategic = patch::strategic(
                &core_v1::CONFIG_MAP,
                &merged,
                merge.as_bytes(),
                FieldValidation::Warn,
            );
            // It has no field of this name.
            assert!(strategic.is_err());

            // A copy of the deepest value into itself would be deeper than a document may be.
            for (path, fits) in [
                ("/copy", true),
                ("/data/a/b/c", true),
                ("/data/a/b/c/d/e/f/g/h/i/j", false),
            ] {
                let copy = json!([
                    {"op": "add", "path": "/data/a/b/c", "value": {"d": {"e": {"f": {"g": {"h": {"i": {}}}}}}}},
                    {"op": "copy", "from": "/unknown", "path": path},
                    {"op": "test", "path": path, "value": merged["unknown"]},
                ]);
                let copied =
                    patch::json_patch(&merged, copy.to_string().as_bytes(), FieldValidation::Warn);
                assert_eq!(copied.is_ok(), fits, "{path}: {copied:.200?}");
            }
        }
    });
}

/// What a server reads of the text that a patch makes, in Go: 10 000 levels. It writes one more, which it then does not read.
#[test]
fn a_json_patch_makes_as_many_levels_as_can_be_read_again() {
    on_half_of_the_stack(|| {
        let object = json!({"a": {"b": {}}});
        for level in [LIST, MEMBER] {
            for (path, above) in [("/x", 1), ("/a/x", 2), ("/a/b/x", 3)] {
                for levels in [MAX_DEPTH - 4, MAX_DEPTH - 3, MAX_DEPTH - 2] {
                    let value = nested(&[level], levels);
                    for op in ["add", "replace"] {
                        let patch = format!(r#"[{{"op":"{op}","path":"{path}","value":{value}}}]"#);
                        let patched =
                            patch::json_patch(&object, patch.as_bytes(), FieldValidation::Warn);
                        assert_eq!(patched.is_ok(), above + levels <= MAX_DEPTH, "{op} {path}");
                        let Ok(patched) = patched else { continue };
                        let text = json::encode_plain(&patched.value, false);
                        assert!(json::parse(&text).is_ok(), "{op} {path} {levels}");
                    }
                }
            }
        }
    });
}

#[test]
fn yaml_is_read_as_deep_as_its_parser_reads_it_and_refused_beyond() {
    on_half_of_the_stack(|| {
        for level in [LIST, MEMBER] {
            // No JSON.
            let flow = |depth| format!("a: {}", nested(&[level], depth));
            assert!(read_yaml(&flow(YAML_DEPTH - 1)).is_ok());
            for depth in [YAML_DEPTH, 1000, MAX_DEPTH, MAX_DEPTH * 20] {
                let refused = read_yaml(&flow(depth)).unwrap_err();
                assert!(refused.contains("exceeded max depth"), "{refused}");
            }
        }
        for depth in [YAML_DEPTH - 2, YAML_DEPTH * 2, 3000] {
            let mut block = String::new();
            for at in 0..depth {
                block.extend([&" ".repeat(at), "a:\n"]);
            }
            let read = read_yaml(&format!("{block}{}b: 1\n", " ".repeat(depth)));
            assert_eq!(read.is_ok(), depth < YAML_DEPTH, "{read:.200?}");
        }
    });
}

/// `kubectl apply --server-side` sends JSON and calls it YAML.
#[test]
fn json_that_is_called_yaml_is_read_as_deep_as_json() {
    on_half_of_the_stack(|| {
        let applied = |deep: &str, more: &str| format!(r#"{{"kind":"x","spec":{deep}{more}}}"#);
        for level in [LIST, MEMBER, LEVELS[3]] {
            for depth in [1, YAML_DEPTH * 2, MAX_DEPTH - 3] {
                let body = applied(&nested(&[level], depth), "");
                // With the end of a line or without.
                for end in ["", "\n"] {
                    let read = read_yaml(&format!("{body}{end}")).unwrap();
                    let values = [&read, &body].map(|text| json::parse(text.as_bytes()).unwrap());
                    assert_eq!(values[0], values[1]);
                }
            }
        }
        for level in [LIST, MEMBER] {
            let refused = read_yaml(&applied(&nested(&[level], MAX_DEPTH), ""));
            let why = "yaml: exceeded max depth of 10000";
            assert!(refused.unwrap_err().ends_with(why));
        }
        // What YAML may read otherwise.
        let deep = nested(&[LIST], YAML_DEPTH * 2);
        let long = format!(r#","{}":1"#, "k".repeat(1001));
        for more in [
            r#","a":1,"a":2"#,
            r#","spec":1"#,
            r#","a":1e3"#,
            r#","a":1.0"#,
            r#","a":-0"#,
            r#","a":1234567890123456789"#,
            r#","a":"\u0041""#,
            r#","a":"\/""#,
            r#","a":"ä""#,
            r#", "a":1"#,
            ",\t\"a\":1",
            r#","<<":{}"#,
            &long,
            r#","Kind":1"#,
        ] {
            assert!(read_yaml(&applied(&deep, more)).is_err(), "{more:.40}");
        }
        for more in [
            r#","a":-12,"b":0,"c":"yes","":null,"d":[true,{}],"e":"<<: # {} %&*!|>@`""#,
            r#","a":123456789012345678"#,
        ] {
            let body = applied(&deep, more);
            assert_eq!(read_yaml(&body).as_ref(), Ok(&body));
        }
    });
}

#[test]
fn custom_resources_keep_unknown_fields_of_any_depth() {
    on_half_of_the_stack(|| {
        let kept = json!({"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": {
            "type": "object",
            "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
        }}}]}});
        let pruned = json!({"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": {
            "type": "object",
            "properties": {"spec": {"type": "object", "properties": {"a": {"type": "object"}}}},
        }}}]}});
        for level in LEVELS {
            let value = nested(&[level], MAX_DEPTH - 4);
            let text = format!(r#"{{"metadata":{{"name":"x"}},"spec":{{"deep":{value}}}}}"#);
            let object = json::parse(text.as_bytes()).unwrap().value;
            for (definition, keeps) in [(&kept, true), (&pruned, false)] {
                let schema = CustomSchema::of_version(definition, "v1").unwrap();
                let mut read = object.clone();
                custom::as_read(&mut read, Some(&schema)).unwrap();
                assert_eq!(read["spec"]["deep"] == object["spec"]["deep"], keeps);
            }
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn no_mixture_of_levels_is_too_deep_for_the_stack(
        levels in prop::collection::vec(0..LEVELS.len(), 1..12),
        beyond in -6_i32..6,
    ) {
        let levels: Vec<NestedLevel> = levels.into_iter().map(|at| LEVELS[at]).collect();
        let count = MAX_DEPTH.saturating_add_signed(isize::try_from(beyond).unwrap());
        on_half_of_the_stack(move || check_document(&nested(&levels, count)));
    }
}
