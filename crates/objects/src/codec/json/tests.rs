//! JSON is read as Go reads it, and no body costs more than its length.

use serde_json::json;

use super::*;
use crate::schema::{
    canonical::{self, MAX_OBJECTS},
    flowcontrol_v1::FLOW_SCHEMA,
    meta_v1::{DELETE_OPTIONS, STATUS},
};

/// Text that is not JSON, and what Go's `encoding/json` says of it.
const BROKEN: &[(&str, &str)] = &[
    ("", "unexpected end of JSON input"),
    (" ", "unexpected end of JSON input"),
    (r#"{"a":1,"#, "unexpected end of JSON input"),
    (r#"{"a":""#, "unexpected end of JSON input"),
    ("x", "invalid character 'x' looking for beginning of value"),
    (
        "'",
        r"invalid character '\'' looking for beginning of value",
    ),
    (
        "\0",
        r"invalid character '\x00' looking for beginning of value",
    ),
    (
        "\u{feff}{}",
        "invalid character 'ï' looking for beginning of value",
    ),
    (
        r#"{"a":1,}"#,
        "invalid character '}' looking for beginning of object key string",
    ),
    (r#"{"a" 1}"#, "invalid character '1' after object key"),
    (
        r#"{"a":01}"#,
        "invalid character '1' after object key:value pair",
    ),
    ("[1 2]", "invalid character '2' after array element"),
    ("{}{}", "invalid character '{' after top-level value"),
    (r#""a\q""#, "invalid character 'q' in string escape code"),
    (r#""\"#, "invalid character ' ' in string escape code"),
    (
        r#""\u12x4""#,
        r"invalid character 'x' in \u hexadecimal character escape",
    ),
    ("\"\n\"", r"invalid character '\n' in string literal"),
    (
        "tru",
        "invalid character ' ' in literal true (expecting 'e')",
    ),
    (
        "falx",
        "invalid character 'x' in literal false (expecting 's')",
    ),
    (
        "nulx",
        "invalid character 'x' in literal null (expecting 'l')",
    ),
    ("-", "invalid character ' ' in numeric literal"),
    (
        "1.x",
        "invalid character 'x' after decimal point in numeric literal",
    ),
    (
        "1e+",
        "invalid character ' ' in exponent of numeric literal",
    ),
];

#[test]
fn malformed_text_is_refused_with_the_message_of_go() {
    for (text, message) in BROKEN {
        let error = parse(text.as_bytes()).unwrap_err().to_string();
        assert_eq!(error, *message, "{text}");
    }
}

#[test]
fn text_is_read_as_go_reads_it() {
    let text = b"{\"a\": \"\\ud83d\\ude00 \\ud800x \\udc00 \\u00e9\\/\xff\xe9\xff\", \"b\": [-0, 1.0, 1e3]}";
    let value = parse(text).unwrap().value;
    let fffd = char::REPLACEMENT_CHARACTER;
    assert_eq!(
        value["a"],
        json!(format!("😀 {fffd}x {fffd} é/{fffd}{fffd}{fffd}"))
    );
    assert_eq!(value["b"], json!([0, 1.0, 1000.0]));
    assert!(value["b"][0].is_i64() && value["b"][1].is_f64() && value["b"][2].is_f64());
}

#[test]
fn numbers_of_any_size_are_numbers() {
    let value = parse(b"[9223372036854775807, 18446744073709551615, 1e400, -1e400, 1e-400]")
        .unwrap()
        .value;
    assert_eq!(value, json!([i64::MAX, u64::MAX, f64::MAX, f64::MIN, 0.0]));
}

#[test]
fn the_last_of_a_repeated_key_wins_and_its_path_is_reported_once() {
    let text = br#"{"spec":{"rules":[{"a":1,"a":2,"a":3}]},"b":0,"b":{"c":1,"c":"x\"y"},"b":{}}"#;
    let parsed = parse(text).unwrap();
    assert_eq!(
        parsed.value,
        json!({"spec": {"rules": [{"a": 3}]}, "b": {}})
    );
    assert_eq!(
        parsed.duplicates,
        [
            r#"duplicate field "spec.rules[0].a""#,
            r#"duplicate field "b""#,
            r#"duplicate field "b.c""#,
        ]
    );
}

#[test]
fn no_more_than_a_hundred_duplicates_are_reported() {
    let members: Vec<_> = (0..200).map(|i| format!(r#""{i}":1,"{i}":2"#)).collect();
    let text = format!("{{{}}}", members.join(","));
    assert_eq!(parse(text.as_bytes()).unwrap().duplicates.len(), 100);
}

#[test]
fn a_long_path_reported_many_times_costs_little() {
    let text = format!(
        r#"{{"{}":{{"x":0{}}}}}"#,
        "p".repeat(1 << 19),
        r#","x":{"a":1,"a":2}"#.repeat(20_000)
    );
    let duplicates = parse(text.as_bytes()).unwrap().duplicates;
    assert!(!duplicates.is_empty() && duplicates.len() < 5);
}

#[test]
fn the_number_of_objects_is_bounded() {
    let many = |count| format!("[{}0]", "{},".repeat(count));
    assert!(parse(many(MAX_OBJECTS).as_bytes()).is_ok());
    assert_eq!(
        parse(many(MAX_OBJECTS + 1).as_bytes()),
        Err(SyntaxError::TooManyObjects)
    );
}

#[test]
fn no_prefix_and_no_flipped_byte_of_a_text_panics() {
    let text = br#"{"a":[1.5e+3,-0,true,false,null,"\u00e9\ud83d\ude00\n"],"b":{"c":"d"}}"#;
    assert!(parse(text).is_ok());
    for end in 0..text.len() {
        assert!(parse(&text[..end]).is_err());
    }
    for at in 0..text.len() {
        for byte in [0, b'"', b'\\', b'{', b'[', b'0', b'-', 0xff] {
            let mut text = text.to_vec();
            text[at] = byte;
            if let Ok(parsed) = parse(&text) {
                parse(&encode_plain(&parsed.value, true)).unwrap();
            }
        }
    }
}

#[test]
fn text_is_escaped_as_go_escapes_it() {
    let value = json!("<>&\u{2028}\u{2029}\u{8}\u{c}\n\r\t\u{7f}\u{1}\"\\é/");
    assert_eq!(
        encode_plain(&value, false),
        "\"\\u003c\\u003e\\u0026\\u2028\\u2029\\b\\f\\n\\r\\t\u{7f}\\u0001\\\"\\\\é/\"\n"
            .as_bytes()
    );
}

#[test]
fn keys_come_in_the_order_of_the_table() {
    let object = canonical::decode(
        &FLOW_SCHEMA,
        &json!({
            "kind": "FlowSchema", "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
            "metadata": {"name": "a", "labels": {"b": "1", "a": "2"}},
            "spec": {"rules": [{"subjects": [{"user": {"name": "u"}, "kind": "User"}]}]},
        }),
    )
    .unwrap()
    .value;
    let text = r#"{"kind":"FlowSchema","apiVersion":"flowcontrol.apiserver.k8s.io/v1","metadata":{"name":"a","labels":{"a":"2","b":"1"}},"spec":{"priorityLevelConfiguration":{"name":""},"matchingPrecedence":0,"rules":[{"subjects":[{"kind":"User","user":{"name":"u"}}]}]},"status":{}}"#;
    assert_eq!(
        String::from_utf8(encode(&FLOW_SCHEMA, &object, false)).unwrap(),
        format!("{text}\n")
    );
}

#[test]
fn pretty_text_is_indented_and_has_no_newline_at_its_end() {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 404,
        "details": {"causes": [{"field": "a"}], "name": "n"},
    });
    assert_eq!(
        String::from_utf8(encode(&STATUS, &status, true)).unwrap(),
        r#"{
  "kind": "Status",
  "apiVersion": "v1",
  "metadata": {},
  "status": "Failure",
  "details": {
    "name": "n",
    "causes": [
      {
        "field": "a"
      }
    ]
  },
  "code": 404
}"#
    );
    assert_eq!(encode_plain(&json!([]), true), b"[]");
}

#[test]
fn a_list_has_items_without_kind() {
    let item = json!({"kind": "FlowSchema", "apiVersion": "x/v1", "metadata": {}, "spec": {}, "status": {}});
    let list = |items: &[Value], pretty| {
        let metadata = json!({"resourceVersion": "7", "continue": "c"});
        let list = encode_list(
            &FLOW_SCHEMA,
            "FlowSchemaList",
            "x/v1",
            &metadata,
            items,
            pretty,
        );
        String::from_utf8(list).unwrap()
    };
    assert_eq!(
        list(&[item.clone(), item], false),
        r#"{"kind":"FlowSchemaList","apiVersion":"x/v1","metadata":{"resourceVersion":"7","continue":"c"},"items":[{"metadata":{},"spec":{},"status":{}},{"metadata":{},"spec":{},"status":{}}]}
"#
    );
    assert!(list(&[], true).ends_with("  },\n  \"items\": []\n}"));
}

#[test]
fn a_table_with_a_kind_of_its_own_writes_it_once() {
    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"]});
    assert_eq!(
        encode(&DELETE_OPTIONS, &options, false),
        b"{\"kind\":\"DeleteOptions\",\"apiVersion\":\"v1\",\"dryRun\":[\"All\"]}\n"
    );
}

#[test]
fn a_plain_document_begins_with_kind_version_and_metadata() {
    let table = json!({"rows": [], "kind": "Table", "metadata": {}, "apiVersion": "v1", "a": 1.0});
    assert_eq!(
        encode_plain(&table, false),
        b"{\"kind\":\"Table\",\"apiVersion\":\"v1\",\"metadata\":{},\"a\":1,\"rows\":[]}\n"
    );
}
