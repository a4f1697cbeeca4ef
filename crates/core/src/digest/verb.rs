//! Verbs: what a request does, in the terms of the API.
//!
//! A verb is a string on the wire; here it is an enum whose equality is that string's equality, so
//! that rules match by a bit mask. Not here: how method and path make a verb (`info`).

use std::{convert::Infallible, fmt, str::FromStr};

/// The verb of a request, in the terms of the API.
///
/// Two verbs are equal exactly when [`Verb::as_str`] is, provided they were made by [`Verb::from`],
/// as all that leave this crate's parsers are. So `DELETE` of a non-resource path is
/// [`Verb::Delete`], and `POST` of one is [`Verb::Other`] of `post`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Verb {
    /// An unknown method on a resource.
    #[default]
    Empty,
    /// Read one object, or `GET` of a non-resource path.
    Get,
    /// Read a collection.
    List,
    /// Follow changes.
    Watch,
    /// `POST` to a resource.
    Create,
    /// `PUT`.
    Update,
    /// `PATCH`.
    Patch,
    /// `DELETE` of one object.
    Delete,
    /// `DELETE` of a collection.
    DeleteCollection,
    /// The old `/proxy/` path form.
    Proxy,
    /// Any other lower-cased method, of a non-resource request.
    Other(Box<str>),
}

impl Verb {
    /// The nine verbs of the API, each at the index of its [`Verb::bit`].
    pub(crate) const API: [Self; 9] = [
        Self::Get,
        Self::List,
        Self::Create,
        Self::Update,
        Self::Delete,
        Self::DeleteCollection,
        Self::Patch,
        Self::Watch,
        Self::Proxy,
    ];

    /// The bits of all of [`Verb::API`].
    pub(crate) const ALL_BITS: u16 = (1 << Self::API.len()) - 1;

    /// The verb as rules and logs write it; empty for [`Verb::Empty`].
    pub fn as_str(&self) -> &str {
        match self {
            Self::Empty => "",
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
            Self::Proxy => "proxy",
            Self::Other(verb) => verb,
        }
    }

    /// The verb's bit in a mask of API verbs; 0 for [`Verb::Empty`] and [`Verb::Other`], which no
    /// mask of verbs holds.
    pub(crate) const fn bit(&self) -> u16 {
        match self {
            Self::Get => 1,
            Self::List => 1 << 1,
            Self::Create => 1 << 2,
            Self::Update => 1 << 3,
            Self::Delete => 1 << 4,
            Self::DeleteCollection => 1 << 5,
            Self::Patch => 1 << 6,
            Self::Watch => 1 << 7,
            Self::Proxy => 1 << 8,
            Self::Empty | Self::Other(_) => 0,
        }
    }

    /// Whether it is `get`, `list` or `watch`: what the server's metrics and limits call read-only.
    pub const fn is_read_only(&self) -> bool {
        matches!(self, Self::Get | Self::List | Self::Watch)
    }

    /// The verb of a non-resource request: its method in lower case.
    pub(super) fn of_non_resource(method: &str) -> Self {
        match method {
            "GET" => Self::Get,
            _ => Self::from(method.to_ascii_lowercase().as_str()),
        }
    }

    /// The verb of a resource request, before the path's name and the query are considered.
    pub(super) fn of_resource(method: &str) -> Self {
        match method {
            "GET" | "HEAD" => Self::Get,
            "POST" => Self::Create,
            "PUT" => Self::Update,
            "PATCH" => Self::Patch,
            "DELETE" => Self::Delete,
            _ => Self::Empty,
        }
    }
}

/// Case-sensitive, as rules are: `GET` is [`Verb::Other`].
impl From<&str> for Verb {
    fn from(verb: &str) -> Self {
        match verb {
            "" => Self::Empty,
            "get" => Self::Get,
            "list" => Self::List,
            "watch" => Self::Watch,
            "create" => Self::Create,
            "update" => Self::Update,
            "patch" => Self::Patch,
            "delete" => Self::Delete,
            "deletecollection" => Self::DeleteCollection,
            "proxy" => Self::Proxy,
            other => Self::Other(other.into()),
        }
    }
}

impl FromStr for Verb {
    type Err = Infallible;

    fn from_str(verb: &str) -> Result<Self, Infallible> {
        Ok(Self::from(verb))
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_api_verb_reads_back_from_its_name_and_has_a_bit_of_its_own() {
        for (index, verb) in Verb::API.iter().enumerate() {
            assert_eq!(&Verb::from(verb.as_str()), verb);
            assert_eq!(verb.to_string(), verb.as_str());
            assert_eq!(verb.bit(), 1 << index, "{verb}");
            assert_eq!(verb.bit() & Verb::ALL_BITS, verb.bit(), "{verb}");
        }
    }

    #[test]
    fn verbs_outside_the_api_have_no_bit() {
        assert_eq!(Verb::Empty.bit(), 0);
        assert_eq!(Verb::from("").as_str(), "");
        assert_eq!(Verb::from("post"), Verb::Other("post".into()));
        assert_eq!(Verb::from("GET"), Verb::Other("GET".into()));
        assert_eq!(Verb::from("*").bit(), 0);
    }

    #[test]
    fn only_get_list_and_watch_are_read_only() {
        let read_only: Vec<_> = Verb::API
            .iter()
            .filter(|verb| verb.is_read_only())
            .collect();
        assert_eq!(read_only, [&Verb::Get, &Verb::List, &Verb::Watch]);
        assert!(!Verb::Empty.is_read_only());
        assert!(!Verb::from("head").is_read_only());
    }
}
