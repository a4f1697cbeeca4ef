//! What the errors of the etcd client mean: for the caller, and for the next attempt.

use std::error::Error as _;

use etcd_client::Error;

use crate::{entry::MAX_VALUE_BYTES, error::StoreError};

/// What is said before anything is done: members refuse without a leader, when too much is in progress, and when they
/// cannot pass a proposal on; and the client refuses if its connection has ended.
const NOT_BEGUN: [&str; 4] = [
    "etcdserver: no leader",
    "etcdserver: too many requests",
    "raft proposal dropped",
    "Service was not ready",
];
/// gRPC's codes of errors that may pass: cancelled, unknown, deadline exceeded, aborted, and unavailable.
const TEMPORARY: [i32; 5] = [1, 2, 4, 10, 14];

/// How an attempt has failed.
#[derive(Debug)]
pub(super) enum CallFailure {
    /// It would fail again.
    Final(StoreError),
    /// The member has refused to begin. Nothing was written, and nothing will be.
    NotRun(StoreError),
    /// The member could not finish, for example because the leader has changed. A write may take place, also later.
    Unfinished(StoreError),
    /// There is no answer. A write may take place, also later.
    Disconnected(StoreError),
}

/// Evaluates an error of the etcd client by what etcd's API says of its codes and texts.
pub(super) fn evaluate(error: &Error) -> CallFailure {
    let explained = explain(error);
    let Error::GRpcStatus(status) = error else {
        return match error {
            Error::TransportError(_) | Error::IoError(_) => CallFailure::Disconnected(explained),
            _ => CallFailure::Final(explained),
        };
    };
    if NOT_BEGUN
        .iter()
        .any(|text| status.message().starts_with(text))
    {
        return CallFailure::NotRun(explained);
    }
    // A status that the client made has a cause; one that etcd sent has none.
    if status.source().is_some() {
        return CallFailure::Disconnected(explained);
    }
    let may_pass = TEMPORARY.contains(&(status.code() as i32));
    match explained {
        StoreError::Unavailable(_) if may_pass => CallFailure::Unfinished(explained),
        _ => CallFailure::Final(explained),
    }
}

pub(super) fn timeout_error() -> StoreError {
    StoreError::Unavailable("etcd does not answer; check it, and the network to it".to_owned())
}

/// Maps an error of the etcd client, by the codes and texts of etcd's API.
pub(super) fn explain(error: &Error) -> StoreError {
    let Error::GRpcStatus(status) = error else {
        let text = with_causes(error.to_string(), error);
        return StoreError::Unavailable(format!("etcd cannot be reached: {text}"));
    };
    let message = status.message();
    let has = |part: &str| message.contains(part);
    if has("mvcc: database space exceeded") {
        return StoreError::DatabaseFull;
    }
    if has("request is too large") || has("larger than max") {
        return StoreError::TooLarge {
            key: "the key".to_owned(),
            bytes: MAX_VALUE_BYTES,
            limit: MAX_VALUE_BYTES,
        };
    }
    if has("required revision has been compacted") {
        return StoreError::Compacted {
            requested: 0,
            floor: 0,
        };
    }
    let refused = [
        "permission denied",
        "authentication",
        "invalid auth token",
        "user name is empty",
    ];
    if refused.iter().any(|part| has(part)) {
        return StoreError::Denied(message.to_owned());
    }
    let text = match message {
        "" => status.code().description(),
        message => message,
    };
    StoreError::Unavailable(match status.source() {
        // The status was created by the client, not by etcd: its source is the cause.
        Some(_) => {
            let text = with_causes(text.to_owned(), status);
            format!("etcd cannot be reached: {text}")
        }
        None => format!("etcd says: {text}"),
    })
}

/// The text of an error and its causes in one line.
fn with_causes(mut text: String, error: &dyn std::error::Error) -> String {
    const MAX_CAUSES: usize = 8;
    let mut cause = error.source();
    for _ in 0..MAX_CAUSES {
        let Some(error) = cause else { break };
        let part = error.to_string();
        if !text.contains(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
        cause = error.source();
    }
    text
}
