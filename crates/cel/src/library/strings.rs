//! The functions of cel-go's string extension, by version.
//!
//! Indexes count code points. Source: cel-go `ext/strings.go`; for costs, Kubernetes where it defines its own.

#![expect(clippy::unnecessary_wraps, reason = "the signature of cost functions")]

use super::go_text::{MOST_BYTES, fifth, int, tenth, text, too_long};
use super::string_format;
use crate::declarations::{CelDeclarations, CelFunctionDecl, CelLibrary, CelOverload, Metered};
use crate::types::CelType::{self, Int, String as Text};
use crate::value::{CelError, CelResult, CelStr, CelValue, CelWork, work_of_bytes};

/// cel-go's string extension.
#[derive(Clone, Copy, Debug)]
pub struct StringsLibrary {
    /// The version of the extension: `format` and `strings.quote` are there from version 1 on, `reverse` from version 3
    /// on. Later versions format differently, and are not supported.
    pub version: u32,
}

impl CelLibrary for StringsLibrary {
    fn declare(&self, to: &mut CelDeclarations) {
        declare_search(to);
        declare_changes(to);
        declare_split(to);
        declare_join(to, if self.version >= 2 { join } else { join_native });
        if self.version >= 1 {
            to.function(
                CelFunctionDecl::new("format")
                    .validate(string_format::validate)
                    .mixed_literals()
                    .one_by_one()
                    .overload(
                        CelOverload::member(
                            "string_format",
                            [Text, CelType::list(CelType::Dyn)],
                            Text,
                            Metered(format),
                        )
                        .cost(|args, _| Some(tenth(args[0].cost_size()))),
                    ),
            );
            to.function(
                CelFunctionDecl::new("strings.quote").overload(
                    CelOverload::global("strings_quote", [Text], Text, quote)
                        .cost(|args, _| Some(tenth(args[0].cost_size()))),
                ),
            );
        }
        if self.version >= 3 {
            let overload = CelOverload::member("string_reverse", [Text], Text, reverse);
            to.function(CelFunctionDecl::new("reverse").overload(overload));
        }
    }
}

fn declare_search(to: &mut CelDeclarations) {
    to.function(CelFunctionDecl::new("charAt").overload(CelOverload::member(
        "string_char_at_int",
        [Text, Int],
        Text,
        char_at,
    )));
    to.function(
        CelFunctionDecl::new("indexOf")
            .traversal_cost()
            .overload(CelOverload::member(
                "string_index_of_string",
                [Text, Text],
                Int,
                index_of,
            ))
            .overload(CelOverload::member(
                "string_index_of_string_int",
                [Text, Text, Int],
                Int,
                index_of,
            )),
    );
    to.function(
        CelFunctionDecl::new("lastIndexOf")
            .traversal_cost()
            .overload(CelOverload::member(
                "string_last_index_of_string",
                [Text, Text],
                Int,
                last_index_of,
            ))
            .overload(CelOverload::member(
                "string_last_index_of_string_int",
                [Text, Text, Int],
                Int,
                last_index_of_offset,
            )),
    );
}

/// The cost of functions that traverse their target once.
fn walk(args: &[CelValue<'_>], _: &CelValue<'_>) -> Option<u64> {
    Some(tenth(args[0].cost_size()))
}

/// The cost of functions that traverse their target and build a result of about the same size.
fn rebuild(args: &[CelValue<'_>], _: &CelValue<'_>) -> Option<u64> {
    Some(fifth(args[0].cost_size()))
}

fn declare_changes(to: &mut CelDeclarations) {
    to.function(
        CelFunctionDecl::new("lowerAscii")
            .cost(walk)
            .overload(CelOverload::member(
                "string_lower_ascii",
                [Text],
                Text,
                lower_ascii,
            )),
    );
    to.function(
        CelFunctionDecl::new("upperAscii")
            .cost(walk)
            .overload(CelOverload::member(
                "string_upper_ascii",
                [Text],
                Text,
                upper_ascii,
            )),
    );
    to.function(
        CelFunctionDecl::new("trim")
            .cost(walk)
            .overload(CelOverload::member("string_trim", [Text], Text, trim)),
    );
    to.function(
        CelFunctionDecl::new("substring")
            .cost(walk)
            .overload(CelOverload::member(
                "string_substring_int",
                [Text, Int],
                Text,
                substring,
            ))
            .overload(CelOverload::member(
                "string_substring_int_int",
                [Text, Int, Int],
                Text,
                substring_range,
            )),
    );
    to.function(
        CelFunctionDecl::new("replace")
            .cost(rebuild)
            .overload(CelOverload::member(
                "string_replace_string_string",
                [Text, Text, Text],
                Text,
                Metered(replace),
            ))
            .overload(CelOverload::member(
                "string_replace_string_string_int",
                [Text, Text, Text, Int],
                Text,
                Metered(replace),
            )),
    );
}

fn declare_split(to: &mut CelDeclarations) {
    let texts = || CelType::list(Text);
    to.function(
        CelFunctionDecl::new("split")
            .cost(rebuild)
            .overload(CelOverload::member(
                "string_split_string",
                [Text, Text],
                texts(),
                Metered(split),
            ))
            .overload(CelOverload::member(
                "string_split_string_int",
                [Text, Text, Int],
                texts(),
                Metered(split),
            )),
    );
}

type Join = for<'a> fn(&[CelValue<'a>], &mut CelWork<'_>) -> CelResult<'a>;

fn declare_join(to: &mut CelDeclarations, join: Join) {
    let texts = || CelType::list(Text);
    to.function(
        CelFunctionDecl::new("join")
            .cost(|_, result| Some(fifth(result.cost_size())))
            .overload(CelOverload::member(
                "list_join",
                [texts()],
                Text,
                Metered(join),
            ))
            .overload(CelOverload::member(
                "list_join_string",
                [texts(), Text],
                Text,
                Metered(join),
            )),
    );
}

fn out_of_range(index: i64) -> CelError {
    CelError::new(format!("index out of range: {index}"))
}

/// The byte offset of the character at `index`; the length of the text for the index after the last character.
fn offset_of(text: &str, index: i64) -> Option<usize> {
    let index = usize::try_from(index).ok()?;
    if text.is_ascii() {
        return (index <= text.len()).then_some(index);
    }
    let mut starts = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    starts.nth(index)
}

fn index_at(text: &str, offset: usize) -> i64 {
    let index = text[..offset].chars().count();
    i64::try_from(index).unwrap_or(i64::MAX)
}

fn char_at<'a>(args: &[CelValue<'a>]) -> CelResult<'a> {
    let (of, index) = (text(args, 0)?, int(args, 1)?);
    let at = offset_of(of, index).ok_or_else(|| out_of_range(index))?;
    Ok(of[at..]
        .chars()
        .next()
        .map(String::from)
        .unwrap_or_default()
        .into())
}

fn index_of<'a>(args: &[CelValue<'a>]) -> CelResult<'a> {
    let (of, searched) = (text(args, 0)?, text(args, 1)?);
    let from = if args.len() > 2 { int(args, 2)? } else { 0 };
    if searched.is_empty() {
        return Ok(from.into());
    }
    if from < 0 {
        return Err(out_of_range(from));
    }
    let Some(start) = offset_of(of, from) else {
        return Ok(CelValue::Int(-1));
    };
    let found = of[start..].find(searched);
    Ok(CelValue::Int(
        found.map_or(-1, |at| index_at(of, start + at)),
    ))
}

fn last_index_of<'a>(args: &[CelValue<'a>]) -> CelResult<'a> {
    let (of, searched) = (text(args, 0)?, text(args, 1)?);
    if searched.is_empty() {
        return Ok(index_at(of, of.len()).into());
    }
    if of.len() < searched.len() {
        return Ok(CelValue::Int(-1));
    }
    let found = of.rfind(searched);
    Ok(CelValue::Int(found.map_or(-1, |at| index_at(of, at))))
}

fn last_index_of_offset<'a>(args: &[CelValue<'a>]) -> CelResult<'a> {
    let (of, searched, from) = (text(args, 0)?, text(args, 1)?, int(args, 2)?);
    if searched.is_empty() {
        return Ok(from.into());
    }
    if from < 0 {
        return Err(out_of_range(from));
    }
    let Some(last) = offset_of(of, from).filter(|at| *at < of.len()) else {
        return Ok(CelValue::Int(-1));
    };
    // A match may begin at this position and extend beyond it.
    let end = last.saturating_add(searched.len()).min(of.len());
    let end = (0..=end)
        .rev()
        .find(|at| of.is_char_boundary(*at))
        .unwrap_or(0);
    let found = of[..end].rfind(searched);
    Ok(CelValue::Int(found.map_or(-1, |at| index_at(of, at))))
}

fn lower_ascii<'a>(args: &[CelValue<'a>]) -> CelResult<'a> {
    Ok(text(args, 0)?.to_ascii_lowercase().into())
}

fn upper_ascii<'a>(args: &[CelValue<'a>]) -> CelResult<'a> {
    Ok(text(args, 0)?.to_ascii_uppercase().into())
}

fn trim<'a>(args: &[CelValue<'a>]) -> CelResult<'a> {
    Ok(text(args, 0)?.trim().to_owned().into())
}

fn substring<'a>(args: &[CelValue<'a>]) -> CelResult<'a> {
    let (of, start) = (text(args, 0)?, int(args, 1)?);
    let from = offset_of(of, start).ok_or_else(|| out_of_range(start))?;
    Ok(of[from..].to_owned().into())
}

fn substring_range<'a>(args: &[CelValue<'a>]) -> CelResult<'a> {
    let (of, start, end) = (text(args, 0)?, int(args, 1)?, int(args, 2)?);
    if start > end {
        return Err(CelError::new(format!(
            "invalid substring range. start: {start}, end: {end}"
        )));
    }
    let from = offset_of(of, start).ok_or_else(|| out_of_range(start))?;
    let to = offset_of(of, end).ok_or_else(|| out_of_range(end))?;
    Ok(of[from..to].to_owned().into())
}

/// Appends to a string; the error `too_long` if it would be longer than [`MOST_BYTES`].
fn push(
    to: &mut String,
    part: &str,
    work: &mut CelWork<'_>,
    too_long: fn() -> CelError,
) -> Result<(), CelError> {
    work.burn(1 + work_of_bytes(part.len()))?;
    if to.len() + part.len() > MOST_BYTES {
        return Err(too_long());
    }
    to.push_str(part);
    Ok(())
}

fn replace<'a>(args: &[CelValue<'a>], work: &mut CelWork<'_>) -> CelResult<'a> {
    let (of, old, new) = (text(args, 0)?, text(args, 1)?, text(args, 2)?);
    let limit = if args.len() > 3 { int(args, 3)? } else { -1 };
    // A negative limit replaces all.
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut replaced = String::new();
    let mut done = 0;
    for (at, found) in of.match_indices(old).take(limit) {
        push(&mut replaced, &of[done..at], work, too_long)?;
        push(&mut replaced, new, work, too_long)?;
        done = at + found.len();
    }
    push(&mut replaced, &of[done..], work, too_long)?;
    Ok(replaced.into())
}

/// The steps of making a value of a part of a text.
const PART: u64 = 8;

/// A part of a text as a value.
fn part<'a>(of: &str, work: &mut CelWork<'_>) -> CelResult<'a> {
    work.burn(PART + work_of_bytes(of.len()))?;
    Ok(CelValue::from(of.to_owned()))
}

fn split<'a>(args: &[CelValue<'a>], work: &mut CelWork<'_>) -> CelResult<'a> {
    let (of, separator) = (text(args, 0)?, text(args, 1)?);
    let limit = if args.len() > 2 { int(args, 2)? } else { -1 };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut parts = Vec::new();
    if limit == 0 {
        return CelValue::list(parts);
    }
    if !separator.is_empty() {
        for found in of.splitn(limit, separator) {
            parts.push(part(found, work)?);
        }
        return CelValue::list(parts);
    }
    // Split into characters. What exceeds the limit stays in the last part.
    let mut rest = of;
    while let Some(first) = rest.chars().next() {
        if parts.len() + 1 >= limit {
            parts.push(part(rest, work)?);
            break;
        }
        let (head, tail) = rest.split_at(first.len_utf8());
        parts.push(part(head, work)?);
        rest = tail;
    }
    CelValue::list(parts)
}

fn join<'a>(args: &[CelValue<'a>], work: &mut CelWork<'_>) -> CelResult<'a> {
    join_with(args, work, |element, work| {
        let part = element.as_str();
        part.ok_or_else(|| match element {
            // The original prints the number that stands for null in Go.
            CelValue::Null => CelError::new("join: invalid input: 0"),
            _ => work.error(&[("join: invalid input: ", element)], ""),
        })
    })
}

/// `join` before version 2, which converts the list to one of Go's strings first.
fn join_native<'a>(args: &[CelValue<'a>], work: &mut CelWork<'_>) -> CelResult<'a> {
    join_with(args, work, |element, _| native_text(element))
}

type PartOf<'a> = for<'v> fn(&'v CelValue<'a>, &mut CelWork<'_>) -> Result<&'v str, CelError>;

/// Joins the texts of a list; `part_of` gives the text of an element.
fn join_with<'a>(
    args: &[CelValue<'a>],
    work: &mut CelWork<'_>,
    part_of: PartOf<'a>,
) -> CelResult<'a> {
    let CelValue::List(list) = &args[0] else {
        return Err(CelError::no_such_overload());
    };
    let separator = if args.len() > 1 { text(args, 1)? } else { "" };
    let mut joined = String::new();
    // The cost of joining is that of the result: of one so long it exceeds every limit of Kubernetes.
    let too_long = CelError::cost_limit;
    for (at, element) in list.iter().enumerate() {
        if at > 0 {
            push(&mut joined, separator, work, too_long)?;
        }
        let part = part_of(&element, work)?;
        push(&mut joined, part, work, too_long)?;
    }
    // The value is a copy.
    work.burn(work_of_bytes(joined.len()))?;
    Ok(joined.into())
}

/// The text of a value that the original converts to a string of Go; the error is that of the value's type there.
///
/// A list that begins with a string and goes on with something else comes from `+`. The original first takes the values
/// of Go out of such a list, so that an absent optional value is null, and a type its name.
fn native_text<'v>(value: &'v CelValue<'_>) -> Result<&'v str, CelError> {
    let wrong = |of: &str| {
        Err(CelError::new(format!(
            "type conversion error from {of} to 'string'"
        )))
    };
    match value {
        CelValue::String(text) => Ok(text),
        CelValue::Optional(Some(of)) => native_text(of.value()),
        CelValue::Int(_) | CelValue::Uint(_) => Err(CelError::new(format!(
            "unsupported type conversion from '{}' to string",
            value.type_name()
        ))),
        CelValue::Null | CelValue::Optional(None) => wrong("'null_type'"),
        CelValue::Bool(_) => wrong("bool"),
        CelValue::Double(_) => wrong("Double"),
        CelValue::Bytes(_) => wrong("Bytes"),
        CelValue::Duration(_) => wrong("'Duration'"),
        CelValue::Timestamp(_) => wrong("'Timestamp'"),
        CelValue::List(_) => wrong("list"),
        CelValue::Map(_) => wrong("map"),
        CelValue::Type(of) => Ok(of.runtime_name()),
        CelValue::Opaque(of) => wrong(&format!("'{}'", of.type_name())),
    }
}

fn reverse<'a>(args: &[CelValue<'a>]) -> CelResult<'a> {
    Ok(text(args, 0)?.chars().rev().collect::<String>().into())
}

fn format<'a>(args: &[CelValue<'a>], work: &mut CelWork<'_>) -> CelResult<'a> {
    let CelValue::List(values) = &args[1] else {
        return Err(CelError::no_such_overload());
    };
    string_format::format(text(args, 0)?, values, work).map(CelValue::from)
}

/// The text as a CEL string literal.
fn quote<'a>(args: &[CelValue<'a>]) -> CelResult<'a> {
    let of = text(args, 0)?;
    let mut quoted = String::with_capacity(of.len() + 2);
    quoted.push('"');
    for c in of.chars() {
        let escaped = match c {
            '\u{7}' => 'a',
            '\u{8}' => 'b',
            '\u{c}' => 'f',
            '\n' => 'n',
            '\r' => 'r',
            '\t' => 't',
            '\u{b}' => 'v',
            '\\' | '"' => c,
            _ => {
                quoted.push(c);
                continue;
            }
        };
        quoted.extend(['\\', escaped]);
    }
    quoted.push('"');
    Ok(CelValue::String(CelStr::from(quoted)))
}
