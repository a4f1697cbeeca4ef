//! Strings and bytes, borrowed or reference-counted.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// A string that is borrowed or reference-counted.
#[derive(Clone)]
pub enum CelStr<'a> {
    /// Borrowed from a document, a program or the host.
    Borrowed(&'a str),
    /// Created by an expression.
    Shared(Arc<str>),
}

/// The number of code points of a text. It costs `O(n)`, and is fast for ASCII.
#[inline]
pub(crate) fn code_points(text: &str) -> u64 {
    if text.is_ascii() {
        return text.len() as u64;
    }
    text.chars().count() as u64
}

impl CelStr<'_> {
    /// The number of code points. It costs `O(n)`, and is fast for ASCII.
    #[inline]
    pub(crate) fn code_points(&self) -> u64 {
        code_points(self)
    }

    pub(super) fn into_owned(self) -> CelStr<'static> {
        match self {
            Self::Borrowed(text) => CelStr::Shared(text.into()),
            Self::Shared(text) => CelStr::Shared(text),
        }
    }
}

impl Deref for CelStr<'_> {
    type Target = str;

    #[inline]
    fn deref(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Shared(text) => text,
        }
    }
}

impl fmt::Debug for CelStr<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl<'a> From<&'a str> for CelStr<'a> {
    fn from(text: &'a str) -> Self {
        Self::Borrowed(text)
    }
}

impl From<String> for CelStr<'_> {
    fn from(text: String) -> Self {
        Self::Shared(text.into())
    }
}

impl From<Arc<str>> for CelStr<'_> {
    fn from(text: Arc<str>) -> Self {
        Self::Shared(text)
    }
}

/// Bytes that are borrowed or reference-counted.
#[derive(Clone)]
pub enum CelBytes<'a> {
    /// Borrowed from a program or the host.
    Borrowed(&'a [u8]),
    /// Created by an expression.
    Shared(Arc<[u8]>),
}

impl CelBytes<'_> {
    pub(super) fn into_owned(self) -> CelBytes<'static> {
        match self {
            Self::Borrowed(bytes) => CelBytes::Shared(bytes.into()),
            Self::Shared(bytes) => CelBytes::Shared(bytes),
        }
    }
}

impl Deref for CelBytes<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }
}

impl fmt::Debug for CelBytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl From<Vec<u8>> for CelBytes<'_> {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Shared(bytes.into())
    }
}
