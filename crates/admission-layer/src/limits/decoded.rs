//! Decodes responses of the upstream, and knows how much memory decoded objects take.

use bytes::Bytes;
use fairgate_objects::codec::{json, yaml};
use serde_json::Value;

use crate::{
    limits::body_budget::{BodyShare, ReadFailure},
    limits::lack::Lack,
    limits::workers::{LARGE, WorkerPool},
};

/// The bytes of a tree's node for members, which has room for eleven, and holds at least six on average.
const NODE: usize = 11 * (size_of::<String>() + size_of::<Value>()) + 16;
const MEMBERS_OF_NODE: usize = 6;

/// The value of a response, or why it is not valid JSON. Counts it in `share`; large ones are decoded on worker threads.
///
/// # Errors
///
/// Why it was not decoded.
pub(crate) async fn decode(
    workers: &WorkerPool,
    body: Bytes,
    share: &mut BodyShare,
) -> Result<Result<Value, String>, ReadFailure> {
    let parse = |body: &[u8]| {
        let read = json::parse(body).map_err(|error| error.to_string());
        read.map(|read| read.value)
    };
    decode_by(parse, workers, body, share).await
}

/// The same of the body of a request, which may also be YAML.
///
/// # Errors
///
/// Why it was not decoded.
pub(crate) async fn decode_sent(
    workers: &WorkerPool,
    body: Bytes,
    share: &mut BodyShare,
) -> Result<Result<Value, String>, ReadFailure> {
    let parse = |body: &[u8]| {
        let read = json::parse(body)
            .map_or_else(|_| yaml::parse(body).map_err(|error| error.to_string()), Ok);
        read.map(|read| read.value)
    };
    decode_by(parse, workers, body, share).await
}

async fn decode_by(
    parse: fn(&[u8]) -> Result<Value, String>,
    workers: &WorkerPool,
    body: Bytes,
    share: &mut BodyShare,
) -> Result<Result<Value, String>, ReadFailure> {
    let length = body.len();
    let decode = move || {
        let read = parse(&body);
        let bytes = read.as_ref().map_or(0, decoded_bytes);
        (read, bytes)
    };
    let (value, bytes) = if length > LARGE {
        let decoded = workers.run(&share.user().name, length, decode).await;
        decoded.map_err(|_| ReadFailure::Lacking(Lack::Worker))?
    } else {
        decode()
    };
    if !share.take_decoded(bytes) {
        return Err(ReadFailure::NoRoom);
    }
    Ok(value)
}

/// About how many bytes a value takes, besides its own place. Linear in its size.
pub(crate) fn decoded_bytes(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.capacity(),
        Value::Array(all) => {
            all.capacity() * size_of::<Value>() + all.iter().map(decoded_bytes).sum::<usize>()
        }
        Value::Object(members) => {
            let inner = members.iter();
            let inner = inner.map(|(key, value)| key.capacity() + decoded_bytes(value));
            members.len().div_ceil(MEMBERS_OF_NODE) * NODE + inner.sum::<usize>()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lists_and_members_take_more_than_their_texts() {
        assert_eq!(decoded_bytes(&json!(7)), 0);
        assert_eq!(decoded_bytes(&json!({})), 0);
        let numbers = Value::Array(vec![json!(0); 1000]);
        assert_eq!(decoded_bytes(&numbers), 1000 * size_of::<Value>());
        let named = json!({"abc": "12345", "x": [true]});
        assert_eq!(decoded_bytes(&named), NODE + 3 + 5 + 1 + size_of::<Value>());
        assert!(decoded_bytes(&json!([{"a": 0}, {"a": 0}])) > 2 * NODE);
    }
}
