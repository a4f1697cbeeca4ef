//! JSON as it was written, in one allocation: the tokens of a text in their order, each list and object with how many of them are its own.
//!
//! Nearly all bodies are only looked at once, from beginning to end. A [`JsonNode`], which can be changed, takes an allocation for each list and
//! object.

use std::{borrow::Cow, collections::BTreeSet};

use serde_json::{Map, Value};
use smallvec::SmallVec;

use super::tree::{FEW_MEMBERS, JsonNode, number};
use crate::schema::canonical::{Source, View};

/// A part of a text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum JsonToken<'a> {
    /// Null.
    Null,
    /// A boolean.
    Flag(bool),
    /// The text of a number, valid as JSON.
    Number(&'a str),
    /// A string, or the key of a member, which comes before its value.
    Text(Cow<'a, str>),
    /// The beginning of a list.
    List(TokenCount),
    /// The beginning of an object.
    Object(TokenCount),
}

/// How much of a text a list or an object is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TokenCount {
    /// Its items or members.
    pub(crate) parts: u32,
    /// The tokens that follow and are its own.
    pub(crate) tokens: u32,
}

/// The tokens of a text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct JsonTape<'a> {
    /// Those of one value; at least one.
    tokens: Vec<JsonToken<'a>>,
}

impl<'a> JsonTape<'a> {
    /// Of the tokens of one value.
    pub(crate) fn new(tokens: Vec<JsonToken<'a>>) -> Self {
        Self { tokens }
    }

    /// The value.
    pub(crate) fn root(&self) -> TapeNode<'_> {
        TapeNode {
            tokens: &self.tokens,
        }
    }

    /// All numbers, in their order.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = &'a str> {
        self.tokens.iter().filter_map(|token| match token {
            JsonToken::Number(text) => Some(*text),
            _ => None,
        })
    }

    /// Whether a key occurs twice in an object.
    pub(crate) fn has_duplicates(&self) -> bool {
        let mut rest = &*self.tokens;
        while let Some((token, after)) = rest.split_first() {
            if let JsonToken::Object(count) = token
                && count.parts > 1
                && repeats_key(TapeMembers(TapeItems::new(*count, after)))
            {
                return true;
            }
            rest = after;
        }
        false
    }

    /// The same, as a tree.
    pub(crate) fn into_node(self) -> JsonNode<'a> {
        node_of(&mut self.tokens.into_iter())
    }
}

/// The tree of the next value. It recurses as deep as the text nests.
fn node_of<'a>(tokens: &mut std::vec::IntoIter<JsonToken<'a>>) -> JsonNode<'a> {
    match tokens.next() {
        None | Some(JsonToken::Null) => JsonNode::Null,
        Some(JsonToken::Flag(flag)) => JsonNode::Flag(flag),
        Some(JsonToken::Number(text)) => JsonNode::Number(text),
        Some(JsonToken::Text(text)) => JsonNode::Text(text),
        Some(JsonToken::List(count)) => {
            JsonNode::List((0..count.parts).map(|_| node_of(tokens)).collect())
        }
        Some(JsonToken::Object(count)) => {
            let member = |_| {
                let key = match tokens.next() {
                    Some(JsonToken::Text(key)) => key,
                    _ => Cow::default(),
                };
                (key, node_of(tokens))
            };
            JsonNode::Object((0..count.parts).map(member).collect())
        }
    }
}

fn repeats_key(mut members: TapeMembers<'_>) -> bool {
    if members.0.left > FEW_MEMBERS {
        let mut seen = BTreeSet::new();
        return !members.all(|(key, _)| seen.insert(key));
    }
    let mut seen: SmallVec<[&str; FEW_MEMBERS]> = SmallVec::new();
    // The marks of all keys so far: most keys have one that no other has, and need not be compared.
    let mut marks = 0;
    members.any(|(key, _)| {
        let mark = mark(key);
        let is_repeated = marks & mark != 0 && seen.contains(&key);
        marks |= mark;
        seen.push(key);
        is_repeated
    })
}

/// One of 64 bits, by the length and the ends of a key.
fn mark(key: &str) -> u64 {
    let ends = match key.as_bytes() {
        [] => 0,
        [first, .., last] => first.wrapping_mul(5) ^ last.wrapping_mul(3),
        [only] => *only,
    };
    1 << ((ends as usize ^ key.len()) % 64)
}

/// A value: its tokens, and perhaps others behind them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TapeNode<'t> {
    tokens: &'t [JsonToken<'t>],
}

/// The items of a list.
pub(crate) struct TapeItems<'t> {
    tokens: &'t [JsonToken<'t>],
    left: usize,
}

/// The members of an object, in their order.
pub(crate) struct TapeMembers<'t>(TapeItems<'t>);

impl<'t> TapeItems<'t> {
    fn new(count: TokenCount, tokens: &'t [JsonToken<'t>]) -> Self {
        let left = count.parts as usize;
        Self { tokens, left }
    }

    /// Takes the value that the tokens begin with.
    fn first(&mut self) -> TapeNode<'t> {
        let node = TapeNode {
            tokens: self.tokens,
        };
        let own = match self.tokens.first() {
            Some(JsonToken::List(count) | JsonToken::Object(count)) => count.tokens as usize,
            _ => 0,
        };
        self.tokens = self.tokens.get(own + 1..).unwrap_or_default();
        node
    }
}

impl<'t> Iterator for TapeItems<'t> {
    type Item = TapeNode<'t>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        Some(self.first())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for TapeItems<'_> {}

impl<'t> Iterator for TapeMembers<'t> {
    type Item = (&'t str, TapeNode<'t>);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.left = self.0.left.checked_sub(1)?;
        let (key, rest) = self.0.tokens.split_first()?;
        self.0.tokens = rest;
        let key = match key {
            JsonToken::Text(key) => &**key,
            _ => "",
        };
        Some((key, self.0.first()))
    }
}

impl<'t> Source<'t> for TapeNode<'t> {
    type Items = TapeItems<'t>;
    type Members = TapeMembers<'t>;

    fn view(self) -> View<'t, Self> {
        let Some((first, rest)) = self.tokens.split_first() else {
            return View::Null;
        };
        match first {
            JsonToken::Null => View::Null,
            JsonToken::Flag(flag) => View::Flag(*flag),
            JsonToken::Number(text) => View::Number(Cow::Borrowed(text)),
            JsonToken::Text(text) => View::Text(text),
            JsonToken::List(count) => View::List(TapeItems::new(*count, rest)),
            JsonToken::Object(count) => View::Object(TapeMembers(TapeItems::new(*count, rest))),
        }
    }

    fn to_value(self) -> Value {
        match self.view() {
            View::Null => Value::Null,
            View::Flag(flag) => Value::Bool(flag),
            View::Number(text) => number(&text),
            View::Text(text) => Value::String(text.to_owned()),
            View::List(items) => items.map(Self::to_value).collect(),
            View::Object(members) => Value::Object(
                members
                    .map(|(key, node)| (key.to_owned(), node.to_value()))
                    .collect::<Map<_, _>>(),
            ),
        }
    }

    /// In a text with bytes that are not UTF-8, all strings count as escaped.
    fn is_escaped(self) -> bool {
        matches!(self.tokens.first(), Some(JsonToken::Text(Cow::Owned(_))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_key_is_found_among_keys_with_the_same_mark() {
        assert_eq!(mark("aXb"), mark("aYb"));
        for (keys, repeats) in [
            (&["aXb", "aYb", "aZb"][..], false),
            (&["aXb", "aYb", "aXb"], true),
            (&["", "a", "b"], false),
            (&["", "a", ""], true),
            (&["a", "a"], true),
            (&["ä", "ö"], false),
        ] {
            let members = keys
                .iter()
                .flat_map(|key| [JsonToken::Text(Cow::Borrowed(*key)), JsonToken::Null]);
            let count = TokenCount {
                parts: u32::try_from(keys.len()).unwrap(),
                tokens: u32::try_from(2 * keys.len()).unwrap(),
            };
            let tokens = std::iter::once(JsonToken::Object(count)).chain(members);
            let tape = JsonTape::new(tokens.collect());
            assert_eq!(tape.has_duplicates(), repeats, "{keys:?}");
        }
    }
}
