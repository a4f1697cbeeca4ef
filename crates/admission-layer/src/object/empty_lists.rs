//! Empty lists that a client has sent, and that the upstream shows as null.
//!
//! Some lists are always there in an API server's JSON, such as the `rules` of a role. An empty one is stored as none, and none is
//! written as null. The policies of a server see what was sent, an empty list, since they come before an object is stored. So an
//! object that the upstream shows gets back the empty lists of the request.

use memchr::memchr_iter;
use serde_json::Value;

/// Whether there may be an empty list in a body of JSON or YAML.
pub(crate) fn may_be_in(body: &[u8]) -> bool {
    let is_closed = |at: usize| {
        let mut rest = body[at + 1..].iter();
        rest.find(|byte| !byte.is_ascii_whitespace()) == Some(&b']')
    };
    memchr_iter(b'[', body).any(is_closed)
}

/// Gives the object that the upstream shows the empty lists of what was sent, where it has null. Lists of objects are left out: which
/// of theirs is which is not known.
pub(crate) fn restore(sent: &Value, shown: &mut Value) {
    let (Value::Object(sent), Value::Object(shown)) = (sent, shown) else {
        return;
    };
    for (name, value) in sent {
        match (value, shown.get_mut(name)) {
            (Value::Array(list), Some(shown @ Value::Null)) if list.is_empty() => {
                *shown = Value::Array(Vec::new());
            }
            (Value::Object(_), Some(shown)) => restore(value, shown),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_null_becomes_the_empty_list_that_was_sent() {
        let sent =
            json!({"rules": [], "spec": {"drivers": [], "names": ["a"], "none": null}, "gone": []});
        let mut shown = json!({"rules": null, "spec": {"drivers": null, "names": null, "none": null, "others": null}});
        restore(&sent, &mut shown);
        let expected = json!({"rules": [], "spec": {"drivers": [], "names": null, "none": null, "others": null}});
        assert_eq!(shown, expected);
        let mut kept = json!({"rules": [{"verbs": null}]});
        restore(&json!({"rules": [{"verbs": []}]}), &mut kept);
        assert_eq!(kept, json!({"rules": [{"verbs": null}]}));
    }

    #[test]
    fn bodies_without_empty_lists_need_not_be_read() {
        for (body, may) in [
            ("{\"rules\":[]}", true),
            ("rules: [ ]", true),
            ("{\"a\":[1],\"b\":[\n]}", true),
            ("{\"rules\":[1]}", false),
            ("[", false),
            ("", false),
        ] {
            assert_eq!(may_be_in(body.as_bytes()), may, "{body}");
        }
    }
}
