//! Encodes objects of one version of a kind, for single responses and for watch events.

use bytes::Bytes;
use http::StatusCode;

use crate::HostedResponse;
use fairgate_apihttp::{
    negotiate::{Media, Output, Representation},
    status_error::StatusError,
};
use fairgate_objects::{
    codec,
    kind::{Kind, KindVersion},
    object::{self, Object},
    schema::meta_v1::PARTIAL_OBJECT_METADATA,
    table::{IncludeObject, TableLayout, partial},
};

/// Encodes objects of one version of one kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ObjectWriter {
    /// The kind of the objects.
    pub kind: &'static Kind,
    /// The version to convert objects to.
    pub version: &'static KindVersion,
    /// The negotiated media type and representation (whole objects, metadata only, or a table).
    pub output: Output,
    /// The columns and options of tables; unused for other representations.
    pub layout: TableLayout,
}

impl ObjectWriter {
    /// A writer that is not used for tables.
    pub(crate) fn plain(
        kind: &'static Kind,
        version: &'static KindVersion,
        output: Output,
    ) -> Self {
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

    /// The object of a watch event, in JSON or protobuf. `head` adds the column definitions to a table.
    pub(crate) fn streamed(&self, object: &Object, head: bool) -> Bytes {
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

impl ObjectWriter {
    /// One object, in the version of the writer, with its stored form for tables.
    ///
    /// # Errors
    ///
    /// 406, when a list was requested.
    pub(crate) fn object(
        &self,
        status: StatusCode,
        object: &Object,
    ) -> Result<HostedResponse, StatusError> {
        let value = object.value(self.version);
        Ok(match self.output.form {
            None if self.output.media == Media::Json && !self.output.pretty => {
                let mut json = object.json(self.version).to_vec();
                json.push(b'\n');
                HostedResponse::full(status, Media::Json.name(), json)
            }
            None => HostedResponse::encoded(
                status,
                self.version.shape,
                &self.kind.api_version(self.version.name),
                self.kind.kind,
                value,
                self.output,
            ),
            Some(Representation::Table(_)) => {
                let table = self.layout.single(object.stored(), value, true);
                HostedResponse::document(status, &table, self.output)
            }
            Some(Representation::Partial(meta)) => HostedResponse::encoded(
                status,
                &PARTIAL_OBJECT_METADATA,
                &format!("meta.k8s.io/{meta}"),
                "PartialObjectMetadata",
                &partial(object.stored(), meta),
                self.output,
            ),
            Some(Representation::PartialList(_)) => {
                return Err(StatusError::not_acceptable(format!(
                    "you requested PartialObjectMetadataList, but the requested object is not a list \
                     (*{})",
                    self.go_type(self.kind.kind)
                )));
            }
        })
    }

    /// The Go type of a kind, which some messages show.
    pub(crate) fn go_type(&self, kind: &str) -> String {
        let package = self.kind.group.split('.').next().unwrap_or_default();
        format!("{package}.{kind}")
    }
}

fn trimmed(mut json: Vec<u8>) -> Bytes {
    while json.last() == Some(&b'\n') {
        json.pop();
    }
    json.into()
}
