//! Discovery documents as protobuf.
//!
//! Source: `meta/v1/generated.proto` of apimachinery.

use serde_json::Value;

use super::plain::shape;
use fairgate_objects::codec::envelope;

/// Encodes a document; `None` if it has no protobuf form.
pub(super) fn encode(document: &Value) -> Option<Vec<u8>> {
    Some(envelope::seal_object(shape(document)?, document))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Documents of kube-apiserver 1.36, each in both formats.
    const GOLDENS: [(&[u8], &[u8]); 4] = [
        (
            include_bytes!("goldens/versions.json"),
            include_bytes!("goldens/versions.pb"),
        ),
        (
            include_bytes!("goldens/group_list.json"),
            include_bytes!("goldens/group_list.pb"),
        ),
        (
            include_bytes!("goldens/group.json"),
            include_bytes!("goldens/group.pb"),
        ),
        (
            include_bytes!("goldens/resource_list.json"),
            include_bytes!("goldens/resource_list.pb"),
        ),
    ];

    #[test]
    fn every_document_is_written_as_the_real_server_writes_it() {
        for (json, protobuf) in GOLDENS {
            let document: Value = serde_json::from_slice(json).unwrap();
            let encoded = encode(&document).unwrap();
            assert_eq!(encoded, protobuf, "{}", document["kind"]);
        }
    }

    #[test]
    fn fields_unknown_to_protobuf_are_not_written() {
        assert_eq!(encode(&json!({"paths": []})), None);
        assert_eq!(encode(&json!({"kind": "Table"})), None);
    }
}
