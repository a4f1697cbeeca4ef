//! A row of a table of hostile answers: what the upstream does, and what the client must get.

use std::ops::RangeInclusive;

use super::client::{Ending, Received};

/// What the upstream does next.
#[derive(Clone)]
pub enum Step {
    /// It sends these bytes at once.
    Send(Vec<u8>),
    /// It sends these bytes one by one.
    Drip(Vec<u8>),
    /// It reads the body of the request, which it did not read before it answered.
    ReadBody,
    /// It waits until the client has its response.
    AfterResponse,
    /// It sends this again and again until the gateway closes the connection, which must happen before so many bytes.
    Flood(Vec<u8>, usize),
}

/// What happens to the connection after the last step.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// The upstream reads the next request, like any server.
    Serve,
    /// It closes the connection.
    Close,
    /// It only stops sending. The gateway must close the connection.
    HalfClose,
    /// It resets the connection.
    Reset,
    /// It leaves the connection open, and the gateway must close it.
    GatewayCloses,
    /// It leaves the connection open, without a word, until the clean requests are served.
    Hold,
}

/// What a client may get.
pub enum Expected {
    /// A response with this status and body.
    Response(u16, Vec<u8>),
    /// A response with this status, which breaks off within its body: this much arrives at most. The connection may also be
    /// closed before the head of the response is sent.
    Cut(u16, Vec<u8>),
    /// The gateway's own answer that the upstream failed.
    Refused,
    /// The gateway's own answer that the upstream did not answer in time.
    TimedOut,
}

impl Expected {
    fn allows(&self, method: &str, received: &Received) -> bool {
        let complete = received.ending == Ending::Complete;
        let reason = received.header("x-fairgate-reason");
        match self {
            Self::Response(status, body) => {
                complete && received.status == *status && received.body == *body && reason.is_none()
            }
            Self::Cut(status, body) => match received.ending {
                Ending::Complete => false,
                Ending::Cut => received.status == *status && body.starts_with(&received.body),
                Ending::Nothing => true,
            },
            // A read may be sent again by the client, another request may not.
            Self::Refused => {
                let status = if method == "POST" { 502 } else { 503 };
                complete && received.status == status && reason == Some("upstream-failed")
            }
            Self::TimedOut => {
                complete && received.status == 504 && reason == Some("upstream-timeout")
            }
        }
    }
}

/// See [`Self::answers`].
pub struct Row {
    pub name: &'static str,
    pub methods: &'static [&'static str],
    /// What follows the path of the request.
    pub query: &'static str,
    /// Length of the body of a `POST`.
    pub body_bytes: usize,
    /// Whether the upstream reads the body of the request before the first step.
    pub reads_body: bool,
    pub steps: Vec<Step>,
    pub then: Then,
    pub expected: Vec<Expected>,
    /// Headers that the response must have.
    pub shown: Vec<(&'static str, &'static str)>,
    /// Headers that the response must not have.
    pub hidden: &'static [&'static str],
    /// How often a read is sent if its connection served a request before. Every other request is sent once.
    pub reads: RangeInclusive<usize>,
}

impl Row {
    /// An upstream that answers with these bytes and goes on serving, like any server. What the client must get is still to
    /// be said.
    pub fn answers(name: &'static str, answer: impl Into<Vec<u8>>) -> Self {
        Self {
            steps: vec![Step::Send(answer.into())],
            ..Self::silent(name)
        }
    }

    /// An upstream that sends nothing.
    pub fn silent(name: &'static str) -> Self {
        Self {
            name,
            methods: &["GET", "POST"],
            query: "",
            body_bytes: 40,
            reads_body: true,
            steps: Vec::new(),
            then: Then::Serve,
            expected: Vec::new(),
            shown: Vec::new(),
            hidden: &[],
            reads: 1..=1,
        }
    }

    pub fn only(mut self, method: &'static [&'static str]) -> Self {
        self.methods = method;
        self
    }

    pub fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    pub fn then(mut self, then: Then) -> Self {
        self.then = then;
        self
    }

    /// The client gets this status and body, or what else is said.
    pub fn gets(mut self, status: u16, body: impl Into<Vec<u8>>) -> Self {
        self.expected.push(Expected::Response(status, body.into()));
        self
    }

    /// The client gets this status and a beginning of this body, or what else is said.
    pub fn breaks_off(mut self, status: u16, body: impl Into<Vec<u8>>) -> Self {
        self.expected.push(Expected::Cut(status, body.into()));
        self
    }

    /// The gateway answers that the upstream failed, or the client gets what else is said.
    pub fn fails(mut self) -> Self {
        self.expected.push(Expected::Refused);
        self
    }

    /// As [`Self::fails`], and the gateway must close the connection.
    pub fn breaks(mut self) -> Self {
        self.then = Then::GatewayCloses;
        self.fails()
    }

    pub fn times_out(mut self) -> Self {
        self.query = "?timeout=1s";
        self.expected.push(Expected::TimedOut);
        self
    }

    pub fn shows(mut self, name: &'static str, value: &'static str) -> Self {
        self.shown.push((name, value));
        self
    }

    pub fn hides(mut self, names: &'static [&'static str]) -> Self {
        self.hidden = names;
        self
    }

    /// A read is sent again if its connection served a request before: the answer did not begin, and the upstream may have
    /// closed the connection before the request came.
    pub fn repeats_reads(mut self) -> Self {
        self.reads = 2..=2;
        self
    }

    /// A read that was not answered in time may be sent again when its connection is closed. On a busy machine, the time may
    /// also end before the request is sent.
    pub fn may_repeat_reads(mut self) -> Self {
        self.reads = 0..=2;
        self
    }

    /// # Errors
    ///
    /// What is wrong with the response.
    pub fn check(&self, method: &str, received: &Received) -> Result<(), String> {
        let allowed = |expected: &Expected| expected.allows(method, received);
        if !self.expected.iter().any(allowed) {
            return Err(format!("not expected: {received}"));
        }
        if received.header("x-fairgate-reason").is_some() {
            return Ok(());
        }
        for (name, value) in &self.shown {
            if received.header(name) != Some(value) {
                return Err(format!("without {name}: {value}: {received}"));
            }
        }
        let shown = self
            .hidden
            .iter()
            .find(|name| received.header(name).is_some());
        shown.map_or(Ok(()), |name| Err(format!("with {name}: {received}")))
    }
}
