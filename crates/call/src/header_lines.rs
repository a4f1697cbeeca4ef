//! The header lines of a request to the upstream, while they are written.

use http::{HeaderMap, HeaderName, HeaderValue};

/// Where header lines are added, for whatever protocol they are sent in.
pub trait HeaderLines {
    /// Adds a line after all others.
    fn add(&mut self, name: &HeaderName, value: &HeaderValue);
}

impl HeaderLines for HeaderMap {
    fn add(&mut self, name: &HeaderName, value: &HeaderValue) {
        self.append(name, value.clone());
    }
}
