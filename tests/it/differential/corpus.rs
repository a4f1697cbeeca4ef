//! Reads the corpus from its file.

use std::{collections::BTreeMap, env, fs};

use serde::Deserialize;
use serde_json::Value;

/// Requests that are sent to one server in order.
pub struct Session {
    pub name: String,
    pub managed_fields: bool,
    pub exchanges: Vec<(Request, Value)>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Request {
    pub method: String,
    pub path: String,
    #[serde(default)]
    pub query: String,
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    #[serde(default)]
    pub body: String,
    #[serde(default)]
    pub body_base64: String,
    /// The code until which the request is repeated; [`WARNED`] is a response with a warning. 0: once.
    #[serde(default)]
    pub until: u16,
}

/// A code of no response.
const WARNED: u16 = 299;

impl Request {
    /// Method, path and query.
    pub fn line(&self) -> String {
        let mark = if self.query.is_empty() { "" } else { "?" };
        format!("{} {}{mark}{}", self.method, self.path, self.query)
    }

    /// Whether the request need not be repeated.
    pub fn is_answered_by<B>(&self, response: &http::Response<B>) -> bool {
        match self.until {
            0 => true,
            WARNED => response.headers().contains_key("warning"),
            code => response.status() == code,
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Line {
    session: String,
    #[serde(default)]
    managed_fields: bool,
    request: Request,
    response: Value,
}

/// The environment variable that names another corpus, such as one of other random sessions.
const OTHER: &str = "FAIRGATE_CORPUS";

/// All sessions about flow control.
pub fn read() -> Vec<Session> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/hosted/corpus.jsonl");
    let sessions = sessions(&env::var(OTHER).unwrap_or_else(|_| path.to_owned()));
    assert!(sessions.len() > 50, "the corpus is complete");
    sessions
}

/// All sessions about admission policies.
pub fn read_policies() -> Vec<Session> {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/it/hosted/policies.jsonl"
    );
    let sessions = sessions(path);
    assert!(sessions.len() > 10, "the corpus is complete");
    sessions
}

fn sessions(path: &str) -> Vec<Session> {
    let mut sessions: Vec<Session> = Vec::new();
    for line in fs::read_to_string(path).unwrap().lines() {
        let line: Line = serde_json::from_str(line).unwrap();
        if sessions.last().is_none_or(|last| last.name != line.session) {
            sessions.push(Session {
                name: line.session,
                managed_fields: line.managed_fields,
                exchanges: Vec::new(),
            });
        }
        let session = sessions.last_mut().unwrap();
        session.exchanges.push((line.request, line.response));
    }
    sessions
}
