//! Field selectors: `field=value`, `field==value` and `field!=value`, separated by commas. In values `\\`, `\,`
//! and `\=` mean the character after the backslash.

use std::borrow::Cow;

use smallvec::SmallVec;

/// The terms of a field selector, all of which must hold.
#[derive(Debug)]
pub(in super::super) struct FieldTerms<'a>(SmallVec<[FieldTerm<'a>; 4]>);

impl<'a> FieldTerms<'a> {
    /// Reads a selector; see [`field_terms`]. `None` when any term is malformed.
    pub(in super::super) fn parse(selector: &'a [u8]) -> Option<Self> {
        field_terms(selector)
            .collect::<Result<_, _>>()
            .ok()
            .map(Self)
    }

    /// The value that the first term about `field` in sorted order requires of it.
    pub(in super::super) fn required(&self, field: &[u8]) -> Option<&[u8]> {
        self.0
            .iter()
            .find(|term| term.equal && term.field == field)
            .map(|term| &*term.value)
    }
}

/// One term of a field selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldTerm<'a> {
    /// The field, neither checked nor trimmed.
    pub field: &'a [u8],
    /// Whether the field must have the value, or any other.
    pub equal: bool,
    /// The value, escapes resolved.
    pub value: Cow<'a, [u8]>,
}

/// Why a term of a field selector is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldTermError<'a> {
    /// This term has no operator.
    NoOperator(&'a [u8]),
    /// A backslash is followed by this, which does not begin with a backslash, `,` or `=`.
    BadEscape(&'a [u8]),
    /// A value has this byte, `,` or `=`, without a backslash before it.
    Unescaped(u8),
}

/// The terms of a field selector, sorted as kube-apiserver sorts them before it parses them: so which of
/// several terms of one field counts, and which error is found first, does not depend on their order in the
/// text. The empty selector has none.
///
/// Costs `O(n log n)` in the length.
///
/// # Errors
///
/// [`FieldTermError`] for each term that is malformed.
pub fn field_terms(
    selector: &[u8],
) -> impl Iterator<Item = Result<FieldTerm<'_>, FieldTermError<'_>>> {
    let mut terms = split_terms(selector);
    terms.sort_unstable();
    terms
        .into_iter()
        .filter(|term| !term.is_empty())
        .map(FieldTerm::parse)
}

/// Splits at each `,` that no backslash protects.
fn split_terms(selector: &[u8]) -> SmallVec<[&[u8]; 4]> {
    let mut protected = false;
    selector
        .split(|&byte| {
            let separates = byte == b',' && !protected;
            protected = byte == b'\\' && !protected;
            separates
        })
        .collect()
}

impl<'a> FieldTerm<'a> {
    fn parse(term: &'a [u8]) -> Result<Self, FieldTermError<'a>> {
        let at = term
            .iter()
            .enumerate()
            .position(|(i, &b)| b == b'=' || b == b'!' && term.get(i + 1) == Some(&b'='))
            .ok_or(FieldTermError::NoOperator(term))?;
        let (field, rest) = term.split_at(at);
        let (equal, value) = match rest {
            [b'!', b'=', value @ ..] => (false, value),
            [b'=', b'=', value @ ..] | [_, value @ ..] => (true, value),
            [] => return Err(FieldTermError::NoOperator(term)),
        };
        Ok(Self {
            field,
            equal,
            value: unescape(value)?,
        })
    }
}

/// Resolves `\\`, `\,` and `\=`; any other escape and a raw `,` or `=` are errors.
fn unescape(value: &[u8]) -> Result<Cow<'_, [u8]>, FieldTermError<'_>> {
    if !value.iter().any(|b| b"\\,=".contains(b)) {
        return Ok(Cow::Borrowed(value));
    }
    let mut out = Vec::with_capacity(value.len());
    let mut rest = value;
    while let [byte, after @ ..] = rest {
        rest = after;
        out.push(match byte {
            b'\\' => match after {
                [escaped @ (b'\\' | b',' | b'='), after @ ..] => {
                    rest = after;
                    *escaped
                }
                _ => return Err(FieldTermError::BadEscape(after)),
            },
            b',' | b'=' => return Err(FieldTermError::Unescaped(*byte)),
            _ => *byte,
        });
    }
    Ok(Cow::Owned(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn required(selector: &str) -> Option<String> {
        let fields = FieldTerms::parse(selector.as_bytes()).expect("the selector is well-formed");
        let value = fields.required(b"f")?;
        Some(String::from_utf8_lossy(value).into_owned())
    }

    #[test]
    fn a_field_selector_requires_the_first_value_in_sorted_order() {
        let cases = [
            ("", None),
            (",,", None),
            ("f=a", Some("a")),
            ("f==a", Some("a")),
            ("f!=a", None),
            ("f=", Some("")),
            ("f=b,f=a", Some("a")),
            ("f=b,f==c", Some("c")),
            ("f==b,f=9", Some("9")),
            ("f=a,f=", Some("")),
            ("f!=x,f=a", Some("a")),
            ("z=1,,f=a", Some("a")),
            (" f=a", None),
            ("f =a", None),
            ("f= a ", Some(" a ")),
            ("=a", None),
            ("!=a", None),
            ("f!a=b", None),
            ("f=a!b", Some("a!b")),
            (r"f=a\\,b=c", Some(r"a\")),
            (r"f=a\,b", Some("a,b")),
            (r"f=a\=b", Some("a=b")),
            (r"f=a\,", Some("a,")),
            (r"f\=a", None),
            ("f=\u{e4}", Some("\u{e4}")),
        ];
        for (selector, expected) in cases {
            assert_eq!(required(selector).as_deref(), expected, "{selector}");
        }
    }

    #[test]
    fn one_malformed_term_fails_the_whole_field_selector() {
        let selectors = [
            "f",
            "f=a,oops",
            "f!a",
            "f===a",
            "f=a=b",
            "f!==a",
            r"f=\a",
            r"f=a\,b=c",
            r"f=a\",
            r"x\,f=a\n",
        ];
        for selector in selectors {
            let fields = FieldTerms::parse(selector.as_bytes());
            assert!(fields.is_none(), "{selector}");
        }
    }
}
