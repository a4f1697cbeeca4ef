//! How objects of one version of a kind are written, one by one or as items of a watch.

use bytes::Bytes;

use crate::negotiate::{Media, Output, Representation};
use fairgate_objects::{
    codec,
    kind::{Kind, KindVersion},
    object::{self, Object},
    schema::meta::PARTIAL_OBJECT_METADATA,
    table::{IncludeObject, TableLayout, partial},
};

/// How objects of one version of one kind are written.
#[derive(Clone, Copy, Debug)]
pub struct ObjectWriter {
    /// The kind.
    pub kind: &'static Kind,
    /// The version.
    pub version: &'static KindVersion,
    /// The language and form.
    pub output: Output,
    /// What tables are made by.
    pub layout: TableLayout,
}

impl ObjectWriter {
    /// A writer that makes no tables.
    pub fn plain(kind: &'static Kind, version: &'static KindVersion, output: Output) -> Self {
        let layout = TableLayout {
            kind,
            version,
            meta: "v1",
            include: IncludeObject::default(),
            now: 0,
        };
        Self {
            kind,
            version,
            output,
            layout,
        }
    }

    /// One object of a stream of events, in JSON or protobuf, as its form has it.
    pub fn streamed(&self, object: &Object, head: bool) -> Bytes {
        let value = object.value(self.version);
        match (self.output.media, self.output.form) {
            (Media::Protobuf, None) => codec::envelope::seal(
                &self.kind.api_version(self.version.name),
                self.kind.kind,
                &codec::protobuf::encode(self.version.shape, value),
            )
            .into(),
            (
                Media::Protobuf,
                Some(Representation::Partial(meta) | Representation::PartialList(meta)),
            ) => codec::envelope::seal(
                &format!("meta.k8s.io/{meta}"),
                "PartialObjectMetadata",
                &codec::protobuf::encode(&PARTIAL_OBJECT_METADATA, &partial(object.stored(), meta)),
            )
            .into(),
            (_, Some(Representation::Table(_))) => trimmed(codec::json::encode_plain(
                &self.layout.single(object.stored(), value, head),
                false,
            )),
            (_, Some(Representation::Partial(meta) | Representation::PartialList(meta))) => {
                trimmed(codec::json::encode(
                    &PARTIAL_OBJECT_METADATA,
                    &partial(object.stored(), meta),
                    false,
                ))
            }
            (_, None) => object::compact(self.version, value),
        }
    }
}

fn trimmed(mut json: Vec<u8>) -> Bytes {
    while json.last() == Some(&b'\n') {
        json.pop();
    }
    json.into()
}
