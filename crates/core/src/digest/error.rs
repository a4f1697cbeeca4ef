//! Why a request's method and target cannot be understood.

/// Why a request cannot be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InfoError {
    /// A `%` that is not followed by two hex digits. The server answers 400.
    #[error("the path has a malformed percent escape")]
    BadEscape,
    /// An ASCII control character or a space, not escaped, in the path or the query. The server
    /// answers 400.
    #[error("the request target holds an unescaped control character or space")]
    BadByte,
    /// More than 10 000 query parameters; servers disagree on such a query.
    #[error("the query has more than 10000 parameters")]
    TooManyParameters,
    /// `/api/v1/watch` and the like. The server answers 500.
    #[error("unable to determine kind and namespace from url")]
    Unclassifiable,
}
