//! Bodies as the clients of the conformance tests write and read them.

use fairgate_objects::{
    codec::{envelope, protobuf},
    kind::{Kind, KindVersion},
    schema::{Struct, canonical, meta_v1},
};
use serde_json::{Value, json};

/// The format of bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Json,
    Protobuf,
}

impl Format {
    pub const BOTH: [Self; 2] = [Self::Json, Self::Protobuf];

    pub fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }

    /// The body of an object.
    pub fn write(self, version: &'static KindVersion, object: &Value) -> Vec<u8> {
        match self {
            Self::Json => object.to_string().into_bytes(),
            Self::Protobuf => {
                let mut canonical = canonical::decode(version.shape, object).unwrap().value;
                for key in ["apiVersion", "kind"] {
                    canonical[key] = object[key].clone();
                }
                envelope::seal_object(version.shape, &canonical)
            }
        }
    }

    /// The body of delete options.
    pub fn delete_options(self) -> Vec<u8> {
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
        match self {
            Self::Json => options.to_string().into_bytes(),
            Self::Protobuf => envelope::seal_object(&meta_v1::DELETE_OPTIONS, &options),
        }
    }

    /// The object in a body, with its `apiVersion` and `kind`.
    pub fn read(self, shape: &'static Struct, body: &[u8]) -> Value {
        match self {
            Self::Json => serde_json::from_slice(body).unwrap(),
            Self::Protobuf => {
                let opened = envelope::open(body).unwrap();
                let mut object = protobuf::decode(shape, opened.raw).unwrap();
                object["apiVersion"] = json!(opened.api_version);
                object["kind"] = json!(opened.kind);
                object
            }
        }
    }

    /// The list in a body.
    pub fn read_list(self, kind: &Kind, shape: &'static Struct, body: &[u8]) -> Value {
        let list = match self {
            Self::Json => serde_json::from_slice(body).unwrap(),
            Self::Protobuf => {
                let opened = envelope::open(body).unwrap();
                assert_eq!(opened.kind, kind.list_kind);
                let mut list = json!({"kind": opened.kind, "metadata": {}, "items": []});
                for (number, bytes) in fields(opened.raw) {
                    if number == 1 {
                        list["metadata"] = protobuf::decode(&meta_v1::LIST_META, bytes).unwrap();
                    } else {
                        let item = protobuf::decode(shape, bytes).unwrap();
                        list["items"].as_array_mut().unwrap().push(item);
                    }
                }
                list
            }
        };
        assert_eq!(list["kind"], kind.list_kind);
        list
    }

    /// The type and object of a frame of a watch.
    pub fn read_frame(shape: &'static Struct, frame: &[u8]) -> (String, Value) {
        let fields = fields(frame);
        let [(1, ty), (2, object)] = fields[..] else {
            panic!("{fields:?}");
        };
        let (_, raw) = self::fields(object)[0];
        let ty = String::from_utf8(ty.to_vec()).unwrap();
        (ty, Self::Protobuf.read(shape, raw))
    }
}

/// The fields of a message, all of which must be length-delimited.
fn fields(mut message: &[u8]) -> Vec<(u64, &[u8])> {
    let mut fields = Vec::new();
    while !message.is_empty() {
        let key = varint(&mut message);
        assert_eq!(key & 7, 2, "a length-delimited field");
        let length = usize::try_from(varint(&mut message)).unwrap();
        let (bytes, rest) = message.split_at(length);
        fields.push((key >> 3, bytes));
        message = rest;
    }
    fields
}

fn varint(message: &mut &[u8]) -> u64 {
    let mut value = 0;
    for place in 0..10 {
        let (first, rest) = message.split_first().unwrap();
        *message = rest;
        value |= u64::from(first & 0x7f) << (7 * place);
        if first & 0x80 == 0 {
            break;
        }
    }
    value
}
