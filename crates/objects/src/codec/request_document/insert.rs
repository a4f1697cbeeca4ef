//! Changing a document without touching the rest of its text.

use super::write;
use crate::codec::{json, tree::JsonNode};

/// The document with a text at the end of a path of members, which are made where they are missing or null; `None` if
/// one of them is something else.
pub fn insert_text(document: &[u8], path: &[&str], text: &str) -> Option<Vec<u8>> {
    let mut root = json::read(document).ok()?;
    if !matches!(root, JsonNode::Object(_)) {
        return None;
    }
    let mut node = &mut root;
    for name in path {
        if matches!(node, JsonNode::Null) {
            *node = JsonNode::Object(Vec::new());
        }
        let JsonNode::Object(members) = node else {
            return None;
        };
        let at = members.iter().position(|(key, _)| key == name);
        let at = at.unwrap_or_else(|| {
            members.push(((*name).into(), JsonNode::Null));
            members.len() - 1
        });
        node = &mut members[at].1;
    }
    *node = JsonNode::Text(text.into());
    Some(write::text(&root))
}

/// The list with an item before and one after its others; `None` if the document is no list.
pub fn enclose(document: &[u8], first: &str, last: &str) -> Option<Vec<u8>> {
    let JsonNode::List(items) = json::read(document).ok()? else {
        return None;
    };
    let text = write::text(&JsonNode::List(items));
    let others = &text[1..text.len() - 1];
    let comma: &[u8] = if others.is_empty() { b"" } else { b"," };
    let text = [
        b"[",
        first.as_bytes(),
        comma,
        others,
        b",",
        last.as_bytes(),
        b"]",
    ];
    Some(text.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inserted(document: &str) -> Option<String> {
        let text = insert_text(document.as_bytes(), &["metadata", "resourceVersion"], "7");
        text.map(|text| String::from_utf8(text).unwrap())
    }

    #[test]
    fn the_rest_of_a_document_keeps_its_text() {
        for (document, expected) in [
            (
                r#"{"a":1.50}"#,
                r#"{"a":1.50,"metadata":{"resourceVersion":"7"}}"#,
            ),
            (
                r#"{"metadata":null,"b":12345678901234567890}"#,
                r#"{"metadata":{"resourceVersion":"7"},"b":12345678901234567890}"#,
            ),
            (
                r#"{"metadata":{"resourceVersion":"","x":1}}"#,
                r#"{"metadata":{"resourceVersion":"7","x":1}}"#,
            ),
        ] {
            assert_eq!(inserted(document).as_deref(), Some(expected));
        }
        for document in ["[]", "null", r#"{"metadata":1}"#, "{"] {
            assert_eq!(inserted(document), None);
        }
        assert_eq!(enclose(b"[1.50]", "{}", "0").unwrap(), b"[{},1.50,0]");
        assert_eq!(enclose(b"[ ]", "{}", "0").unwrap(), b"[{},0]");
        assert_eq!(enclose(b"{}", "{}", "0"), None);
    }
}
