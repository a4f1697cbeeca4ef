//! Lists in the negotiated format.
//!
//! A list may have as many bytes as the store. So its text is made object by object where that is possible, which is the case in
//! the formats of programs: compact JSON and protobuf, tables and metadata included. Others are first a tree of the whole list.

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Map, Value, json};

use crate::{
    listed_object::ListedObject,
    negotiate::{Media, Representation},
    object_writer::ObjectWriter,
    response::ApiResponse,
    status_error::StatusError,
};
use fairgate_objects::{
    codec, object::Object, schema::meta_v1::PARTIAL_OBJECT_METADATA, table::partial,
};

/// What each object adds to the bytes that are needed for a list, besides its own.
const EACH: usize = 256;
/// What a list needs beside its objects.
const LIST: usize = 4 << 10;
/// How many times the length of its objects a list takes that is first a tree.
const TREE: usize = 12;

/// The objects of a list.
#[derive(Clone, Copy)]
pub(super) struct ListedObjects<'a> {
    pub(super) all: &'a [ListedObject],
    /// The length of all of them, as they are stored.
    pub(super) bytes: usize,
}

impl ListedObjects<'_> {
    /// The bytes of a list of them in compact JSON, or a little more.
    fn needs(&self) -> usize {
        let others = self.all.len().saturating_mul(EACH);
        others.saturating_add(self.bytes).saturating_add(LIST)
    }
}

type Written = Result<Vec<u8>, StatusError>;

impl ObjectWriter {
    /// The bytes in memory that are needed to encode a list of these objects.
    pub(super) fn needs(&self, objects: &ListedObjects<'_>) -> usize {
        let times = match (self.output.media, self.output.pretty) {
            (Media::Json, false) => 1,
            // The message, and its envelope with another copy.
            (Media::Protobuf, _) => 2,
            (Media::Json, true) | (Media::Yaml, _) => TREE,
        };
        objects.needs().saturating_mul(times)
    }

    /// A list of objects; `metadata` is the list's own.
    ///
    /// # Errors
    ///
    /// 406, when the client requested the metadata of a single object; 500, when an object cannot be read.
    pub(super) fn list(
        &self,
        status: StatusCode,
        objects: &ListedObjects<'_>,
        metadata: Map<String, Value>,
    ) -> Result<ApiResponse, StatusError> {
        let metadata = Value::Object(metadata);
        let is_compact = self.output.media == Media::Json && !self.output.pretty;
        let (media, written) = match self.output.form {
            Some(Representation::Partial(_)) => {
                return Err(StatusError::not_acceptable(format!(
                    "you requested PartialObjectMetadata, but the requested object is a list (*{})",
                    self.go_type(self.kind.list_kind)
                )));
            }
            Some(Representation::Table(_)) if is_compact => {
                (Media::Json, self.json_table(objects, &metadata)?)
            }
            Some(Representation::PartialList(meta)) if is_compact => {
                (Media::Json, partial_json(objects, meta, &metadata)?)
            }
            Some(Representation::PartialList(meta)) if self.output.media == Media::Protobuf => {
                (Media::Protobuf, partial_protobuf(objects, meta, &metadata)?)
            }
            None if is_compact => (Media::Json, self.json_list(objects, &metadata)?),
            None if self.output.media == Media::Protobuf => {
                (Media::Protobuf, self.protobuf_list(objects, &metadata)?)
            }
            _ => return self.list_of_tree(status, objects, &metadata),
        };
        Ok(ApiResponse::full(status, media.name(), fitted(written)))
    }

    /// A list that is first made as a tree.
    fn list_of_tree(
        &self,
        status: StatusCode,
        objects: &ListedObjects<'_>,
        metadata: &Value,
    ) -> Result<ApiResponse, StatusError> {
        let objects = objects.all.iter().map(ListedObject::object);
        let objects = objects.collect::<Result<Vec<Arc<Object>>, _>>()?;
        let api_version = self.kind.api_version(self.version.name);
        let list = match (self.output.form, self.output.media) {
            (Some(Representation::Table(_)), _) => self.layout.table(&objects, metadata, true),
            (Some(Representation::PartialList(meta) | Representation::Partial(meta)), _) => {
                let items = objects.iter().map(|object| partial(object.stored(), meta));
                let items: Vec<Value> = items.collect();
                // As in kube-apiserver, null if there are none.
                json!({
                    "kind": PARTIAL_LIST,
                    "apiVersion": format!("meta.k8s.io/{meta}"),
                    "metadata": metadata,
                    "items": (!items.is_empty()).then_some(items),
                })
            }
            (None, Media::Yaml) => json!({
                "kind": self.kind.list_kind,
                "apiVersion": api_version,
                "metadata": metadata,
                "items": objects.iter().map(|object| self.bare(object)).collect::<Vec<_>>(),
            }),
            (None, _) => {
                let json = codec::json::encode_list(
                    self.version.shape,
                    self.kind.list_kind,
                    &api_version,
                    metadata,
                    objects.iter().map(|object| object.value(self.version)),
                    true,
                );
                return Ok(ApiResponse::full(status, Media::Json.name(), fitted(json)));
            }
        };
        Ok(ApiResponse::document(status, &list, self.output))
    }

    /// A list in compact JSON, assembled from the JSON of its items, which many of them have cached.
    fn json_list(&self, objects: &ListedObjects<'_>, metadata: &Value) -> Written {
        let api_version = self.kind.api_version(self.version.name);
        let head = format!(
            "{{\"kind\":\"{}\",\"apiVersion\":\"{api_version}\",\"metadata\":{metadata},\"items\":[",
            self.kind.list_kind
        );
        // Items of a list have no kind and API version.
        let prefix = format!(
            "{{\"kind\":\"{}\",\"apiVersion\":\"{api_version}\",",
            self.kind.kind
        );
        json_of(head.as_bytes(), objects, |object, json| {
            let item = object.json(self.version);
            match item.strip_prefix(prefix.as_bytes()) {
                Some(rest) => {
                    json.push(b'{');
                    json.extend_from_slice(rest);
                }
                None => json.extend_from_slice(&item),
            }
        })
    }

    fn protobuf_list(&self, objects: &ListedObjects<'_>, metadata: &Value) -> Written {
        let mut list = codec::envelope::ListMessage::new(metadata);
        for object in objects.all {
            list.push(self.version.shape, object.object()?.value(self.version));
        }
        let api_version = self.kind.api_version(self.version.name);
        Ok(list.seal(self.kind.list_kind, &api_version))
    }

    /// A table in compact JSON.
    fn json_table(&self, objects: &ListedObjects<'_>, metadata: &Value) -> Written {
        let empty = codec::json::encode_plain(&self.layout.table(&[], metadata, true), false);
        let mut sorted = objects.all.to_vec();
        if let Some(order) = self.kind.rules.row_order {
            let mut keys = Vec::with_capacity(sorted.len());
            for object in sorted {
                keys.push((order(object.object()?.stored()), object));
            }
            keys.sort_by(|one, other| one.0.cmp(&other.0));
            sorted = keys.into_iter().map(|(_, object)| object).collect();
        }
        let sorted = ListedObjects {
            all: &sorted,
            ..*objects
        };
        json_of(begun(&empty), &sorted, |object, json| {
            let row = self.layout.row(object.stored(), object.value(self.version));
            json.extend_from_slice(&codec::json::encode_raw(&row));
        })
    }

    /// The object without kind and API version, as in lists.
    fn bare(&self, object: &Object) -> Value {
        let mut value = object.value(self.version).clone();
        if let Some(fields) = value.as_object_mut() {
            fields.remove("kind");
            fields.remove("apiVersion");
        }
        value
    }
}

const PARTIAL_LIST: &str = "PartialObjectMetadataList";

/// The metadata of a list of objects in compact JSON.
fn partial_json(objects: &ListedObjects<'_>, meta: &str, metadata: &Value) -> Written {
    // As in kube-apiserver, null if there are none.
    let items = (!objects.all.is_empty()).then(Vec::<Value>::new);
    let empty = json!({
        "kind": PARTIAL_LIST,
        "apiVersion": format!("meta.k8s.io/{meta}"),
        "metadata": metadata,
        "items": items,
    });
    let empty = codec::json::encode_plain(&empty, false);
    if objects.all.is_empty() {
        return Ok(empty);
    }
    json_of(begun(&empty), objects, |object, json| {
        let item = partial(object.stored(), meta);
        json.extend_from_slice(&codec::json::encode_raw(&item));
    })
}

/// The metadata of a list of objects in protobuf.
fn partial_protobuf(objects: &ListedObjects<'_>, meta: &str, metadata: &Value) -> Written {
    let mut list = codec::envelope::ListMessage::new(metadata);
    for object in objects.all {
        let item = partial(object.object()?.stored(), meta);
        list.push(&PARTIAL_OBJECT_METADATA, &item);
    }
    Ok(list.seal(PARTIAL_LIST, &format!("meta.k8s.io/{meta}")))
}

/// The text of a document without entries, up to the list of entries with which it ends.
fn begun(empty: &[u8]) -> &[u8] {
    empty.strip_suffix(b"]}\n").unwrap_or(empty)
}

/// The text of a document that begins with `head`, up to the list of entries with which it ends, and has these objects in it.
fn json_of(
    head: &[u8],
    objects: &ListedObjects<'_>,
    entry: impl Fn(&Object, &mut Vec<u8>),
) -> Written {
    let mut json = Vec::with_capacity(objects.needs());
    json.extend_from_slice(head);
    for (index, object) in objects.all.iter().enumerate() {
        if index > 0 {
            json.push(b',');
        }
        entry(&*object.object()?, &mut json);
    }
    json.extend_from_slice(b"]}\n");
    Ok(json)
}

/// The text, without memory that it does not need.
fn fitted(mut text: Vec<u8>) -> Vec<u8> {
    text.shrink_to_fit();
    text
}
