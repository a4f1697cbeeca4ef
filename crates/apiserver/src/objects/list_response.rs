//! Lists in the negotiated format.
//!
//! A list may have as many bytes as the store. So its text is made object by object: no tree of the whole list is ever in memory,
//! and of objects that are not cached only one is decoded at a time.
//!
//! How long the text of a program's format will be follows from what is stored. Indented JSON and YAML may be several times as
//! long, which depends on the objects, so their text is made twice: once to count it.

use http::StatusCode;
use serde_json::{Map, Value, json};

use super::{listed_object::ListedObject, object_writer::ObjectWriter};
use crate::HostedResponse;
use fairgate_apihttp::{
    negotiate::{Media, Representation},
    status_error::StatusError,
};
use fairgate_objects::{
    codec, object::Object, schema::meta_v1::PARTIAL_OBJECT_METADATA, table::partial,
};

/// What each object adds to the bytes that are needed for a list, besides its own.
const EACH: usize = 256;
/// What a list needs beside its objects.
const LIST: usize = 4 << 10;

/// The objects of a list.
#[derive(Clone, Copy)]
pub(crate) struct ListedObjects<'a> {
    pub(crate) all: &'a [ListedObject],
    /// The length of all of them, as they are stored.
    pub(crate) bytes: usize,
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
    ///
    /// # Errors
    ///
    /// 500, when an object cannot be read.
    pub(crate) fn needs(
        &self,
        objects: &ListedObjects<'_>,
        metadata: &Map<String, Value>,
    ) -> Result<usize, StatusError> {
        if self.is_readable() {
            let mut bytes = 0_usize;
            self.readable(objects, metadata, &mut |text| bytes += text.len())?;
            return Ok(bytes);
        }
        Ok(match self.output.media {
            // The message, and its envelope with another copy.
            Media::Protobuf => objects.needs().saturating_mul(2),
            Media::Json | Media::Yaml => objects.needs(),
        })
    }

    /// A list of objects; `metadata` is the list's own, and `needed` what it [needs](Self::needs).
    ///
    /// # Errors
    ///
    /// 406, when the client requested the metadata of a single object; 500, when an object cannot be read.
    pub(crate) fn list(
        &self,
        status: StatusCode,
        objects: &ListedObjects<'_>,
        metadata: Map<String, Value>,
        needed: usize,
    ) -> Result<HostedResponse, StatusError> {
        if let Some(Representation::Partial(_)) = self.output.form {
            return Err(StatusError::not_acceptable(format!(
                "you requested PartialObjectMetadata, but the requested object is a list (*{})",
                self.go_type(self.kind.list_kind)
            )));
        }
        let media = self.list_media();
        let written = if self.is_readable() {
            let mut text = Vec::with_capacity(needed);
            self.readable(objects, &metadata, &mut |part| text.extend_from_slice(part))?;
            text
        } else {
            let metadata = Value::Object(metadata);
            match (self.output.form, media) {
                (Some(Representation::Table(_)), _) => self.json_table(objects, &metadata)?,
                (
                    Some(Representation::PartialList(meta) | Representation::Partial(meta)),
                    Media::Protobuf,
                ) => partial_protobuf(objects, meta, &metadata)?,
                (Some(Representation::PartialList(meta) | Representation::Partial(meta)), _) => {
                    partial_json(objects, meta, &metadata)?
                }
                (None, Media::Protobuf) => self.protobuf_list(objects, &metadata)?,
                (None, _) => self.json_list(objects, &metadata)?,
            }
        };
        Ok(HostedResponse::full(status, media.name(), fitted(written)))
    }

    /// The media type of a list. There are no tables in protobuf.
    fn list_media(&self) -> Media {
        match (self.output.form, self.output.media) {
            (Some(Representation::Table(_)), Media::Protobuf) => Media::Json,
            (_, media) => media,
        }
    }

    /// Whether a list is in a format for people: indented JSON or YAML. No list is the metadata of one object.
    fn is_readable(&self) -> bool {
        let is_list = !matches!(self.output.form, Some(Representation::Partial(_)));
        is_list
            && match self.list_media() {
                Media::Yaml => true,
                Media::Json => self.output.pretty,
                Media::Protobuf => false,
            }
    }

    /// Passes the text of a list in indented JSON or YAML to `sink`, part by part.
    fn readable(
        &self,
        objects: &ListedObjects<'_>,
        metadata: &Map<String, Value>,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<(), StatusError> {
        let metadata = Value::Object(metadata.clone());
        let empty = self.empty_list(&metadata, objects.all.is_empty());
        if self.list_media() == Media::Yaml {
            return self.yaml(objects, &empty, sink);
        }
        let empty = match self.output.form {
            None => codec::json::encode_list(
                self.version.shape,
                self.kind.list_kind,
                &self.kind.api_version(self.version.name),
                &metadata,
                [],
                true,
            ),
            Some(_) => codec::json::encode_plain(&empty, true),
        };
        let Some(head) = empty
            .strip_suffix(b"]\n}")
            .filter(|_| !objects.all.is_empty())
        else {
            sink(&empty);
            return Ok(());
        };
        sink(head);
        let mut json = Vec::new();
        for (index, object) in self.in_order(objects)?.iter().enumerate() {
            json.clear();
            self.entry(&*object.object()?, &mut json);
            sink(if index > 0 {
                &b",\n    "[..]
            } else {
                b"\n    "
            });
            sink(&codec::json::indent_at(&json, 2));
        }
        sink(b"\n  ]\n}");
        Ok(())
    }

    /// Passes the text of a list in YAML to `sink`, part by part. `empty` is the list without its entries.
    fn yaml(
        &self,
        objects: &ListedObjects<'_>,
        empty: &Value,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<(), StatusError> {
        let empty = codec::yaml::encode(empty);
        // No other line ends so that begins with a key: text with such characters is in quotes.
        let list = ["\nitems: []\n", "\nrows: []\n"]
            .into_iter()
            .find_map(|list| Some((list, empty.split_once(list)?)));
        let Some((list, (head, tail))) = list.filter(|_| !objects.all.is_empty()) else {
            sink(empty.as_bytes());
            return Ok(());
        };
        sink(head.as_bytes());
        sink(list.trim_end_matches(" []\n").as_bytes());
        sink(b"\n");
        for object in &self.in_order(objects)? {
            let object = object.object()?;
            let entry = match self.output.form {
                Some(Representation::Table(_)) => {
                    self.layout.row(object.stored(), object.value(self.version))
                }
                Some(Representation::PartialList(meta) | Representation::Partial(meta)) => {
                    partial(object.stored(), meta)
                }
                None => self.bare(&object),
            };
            sink(codec::yaml::encode_entry(&entry).as_bytes());
        }
        sink(tail.as_bytes());
        Ok(())
    }

    /// A list without entries. One of metadata has null for them if there are none, as in kube-apiserver.
    fn empty_list(&self, metadata: &Value, has_none: bool) -> Value {
        match self.output.form {
            Some(Representation::Table(_)) => self.layout.table(&[], metadata, true),
            Some(Representation::PartialList(meta) | Representation::Partial(meta)) => {
                empty_partial(meta, metadata, has_none)
            }
            None => json!({
                "kind": self.kind.list_kind,
                "apiVersion": self.kind.api_version(self.version.name),
                "metadata": metadata,
                "items": [],
            }),
        }
    }

    /// An entry of a list in compact JSON.
    fn entry(&self, object: &Object, json: &mut Vec<u8>) {
        match self.output.form {
            Some(Representation::Table(_)) => {
                let row = self.layout.row(object.stored(), object.value(self.version));
                json.extend_from_slice(&codec::json::encode_raw(&row));
            }
            Some(Representation::PartialList(meta) | Representation::Partial(meta)) => {
                let item = partial(object.stored(), meta);
                json.extend_from_slice(&codec::json::encode_raw(&item));
            }
            None => self.item(&self.item_prefix(), object, json),
        }
    }

    /// What the text of an object begins with, and that of an item of a list does not.
    fn item_prefix(&self) -> String {
        let api_version = self.kind.api_version(self.version.name);
        format!(
            "{{\"kind\":\"{}\",\"apiVersion\":\"{api_version}\",",
            self.kind.kind
        )
    }

    /// An item of a list, from the JSON of the object.
    fn item(&self, prefix: &str, object: &Object, json: &mut Vec<u8>) {
        let item = object.json(self.version);
        match item.strip_prefix(prefix.as_bytes()) {
            Some(rest) => {
                json.push(b'{');
                json.extend_from_slice(rest);
            }
            None => json.extend_from_slice(&item),
        }
    }

    /// The objects in the order of their rows in a table.
    fn in_order(&self, objects: &ListedObjects<'_>) -> Result<Vec<ListedObject>, StatusError> {
        let all = objects.all.to_vec();
        let (Some(Representation::Table(_)), Some(order)) =
            (self.output.form, self.kind.rules.row_order)
        else {
            return Ok(all);
        };
        let mut keys = Vec::with_capacity(all.len());
        for object in all {
            keys.push((order(object.object()?.stored()), object));
        }
        keys.sort_by(|one, other| one.0.cmp(&other.0));
        Ok(keys.into_iter().map(|(_, object)| object).collect())
    }

    /// A list in compact JSON, assembled from the JSON of its items, which many of them have cached.
    fn json_list(&self, objects: &ListedObjects<'_>, metadata: &Value) -> Written {
        let api_version = self.kind.api_version(self.version.name);
        let head = format!(
            "{{\"kind\":\"{}\",\"apiVersion\":\"{api_version}\",\"metadata\":{metadata},\"items\":[",
            self.kind.list_kind
        );
        let prefix = self.item_prefix();
        json_of(head.as_bytes(), objects, |object, json| {
            self.item(&prefix, object, json);
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
        let sorted = self.in_order(objects)?;
        let sorted = ListedObjects {
            all: &sorted,
            ..*objects
        };
        json_of(begun(&empty), &sorted, |object, json| {
            self.entry(object, json);
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

/// A list of metadata without entries.
fn empty_partial(meta: &str, metadata: &Value, has_none: bool) -> Value {
    // As in kube-apiserver, null if there are none.
    let items = (!has_none).then(Vec::<Value>::new);
    json!({
        "kind": PARTIAL_LIST,
        "apiVersion": format!("meta.k8s.io/{meta}"),
        "metadata": metadata,
        "items": items,
    })
}

/// The metadata of a list of objects in compact JSON.
fn partial_json(objects: &ListedObjects<'_>, meta: &str, metadata: &Value) -> Written {
    let empty = empty_partial(meta, metadata, objects.all.is_empty());
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use fairgate_objects::kinds::POD_DISRUPTION_BUDGET;
    use fairgate_store::StoreEntry;

    use super::*;
    use crate::HostedBody;
    use fairgate_apihttp::negotiate::Output;

    /// A budget of so many terms.
    fn listed(number: usize, terms: usize) -> ListedObject {
        let terms: Vec<_> = (0..terms).map(|term| format!("value-{term}")).collect();
        let object = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": format!("a-{number}"), "namespace": "a", "labels": {"yes": "no", "b": "<&>"}},
            "spec": {
                "minAvailable": 1,
                "selector": {"matchExpressions": [{"key": "app", "operator": "In", "values": terms}]},
            },
        });
        let key = format!("/policy/poddisruptionbudgets/a/{number}");
        let entry = StoreEntry::new(key.into(), Bytes::from(object.to_string()), 7);
        ListedObject::of(&POD_DISRUPTION_BUDGET, &Arc::new(entry)).unwrap()
    }

    fn writer(media: Media, pretty: bool, form: Option<Representation>) -> ObjectWriter {
        let output = Output {
            media,
            form,
            pretty,
        };
        ObjectWriter::plain(
            &POD_DISRUPTION_BUDGET,
            &POD_DISRUPTION_BUDGET.versions[0],
            output,
        )
    }

    fn text(writer: ObjectWriter, objects: &[ListedObject]) -> Bytes {
        let length = |object: &ListedObject| match object {
            ListedObject::Large(_, entry) => entry.length(),
            ListedObject::Decoded(_) => 0,
        };
        let objects = ListedObjects {
            all: objects,
            bytes: objects.iter().map(length).sum(),
        };
        let metadata = json!({"resourceVersion": "7"});
        let metadata = metadata.as_object().unwrap().clone();
        let needed = writer.needs(&objects, &metadata).unwrap();
        let list = writer.list(StatusCode::OK, &objects, metadata, needed);
        let list = list.unwrap();
        let HostedBody::Full(body) = list.body else {
            panic!("it is in memory");
        };
        body
    }

    #[test]
    fn a_list_for_people_takes_little_more_memory_than_its_text() {
        let objects: Vec<_> = (0..40).map(|number| listed(number, 4_000)).collect();
        for (media, pretty) in [(Media::Json, true), (Media::Yaml, false)] {
            let mut length = 0;
            let used = allocation_counter::measure(|| {
                length = text(writer(media, pretty, None), &objects).len();
            });
            let ratio = used.bytes_max * 100 / length as u64;
            // Beside the text, one of forty objects is decoded.
            assert!(ratio < 180, "{media:?} {pretty}: {ratio}");
        }
    }

    #[test]
    fn lists_for_people_have_what_those_for_programs_have() {
        let forms = [
            None,
            Some(Representation::Table("v1")),
            Some(Representation::PartialList("v1")),
        ];
        for count in [0, 1, 3] {
            let objects: Vec<_> = (0..count).map(|number| listed(number, number)).collect();
            for form in forms {
                let compact = text(writer(Media::Json, false, form), &objects);
                let value: Value = serde_json::from_slice(&compact).unwrap();
                let indented = text(writer(Media::Json, true, form), &objects);
                assert_eq!(indented, codec::json::indent(&compact), "{form:?} {count}");
                let yaml = text(writer(Media::Yaml, false, form), &objects);
                assert_eq!(yaml, codec::yaml::encode(&value), "{form:?} {count}");
            }
        }
    }
}
