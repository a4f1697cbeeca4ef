//! Semantic versions: `semver`, `isSemver` and the properties of a version.
//!
//! Source: Kubernetes `apiserver/pkg/cel/library/semverlib.go`, and the module `blang/semver` for the texts of
//! errors.

use std::any::Any;
use std::cmp::Ordering;

use fairgate_gotext::{Quoted, parse_uint};

use super::go_text::{fixed, tenth, text};
use super::opaque_types::{declare_order, opaque, unconvertible};
use crate::declarations::{CelDeclarations, CelFunctionDecl, CelLibrary, CelOverload};
use crate::types::CelType;
use crate::value::{CelError, CelOpaque, CelResult, CelValue, work_of_bytes};

/// The name of the CEL type of versions.
const SEMVER: &str = "kubernetes.Semver";

/// The functions of semantic versions.
#[derive(Clone, Copy, Debug)]
pub struct SemverLibrary {
    /// The version of the library. From version 1 on, a second argument of `semver` and `isSemver` says whether to
    /// normalize the text.
    pub version: u32,
}

/// A semantic version.
#[derive(Clone, Debug)]
struct SemverValue {
    numbers: [u64; 3],
    pre: Vec<PreRelease>,
    build: Vec<String>,
}

/// One of the dot-separated identifiers of a pre-release version.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PreRelease {
    Number(u64),
    Text(String),
}

impl CelOpaque for SemverValue {
    fn type_name(&self) -> &str {
        SEMVER
    }

    fn go_type(&self) -> &'static str {
        "cel.Semver"
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn equals(&self, other: &dyn CelOpaque) -> Option<bool> {
        let other = other.as_any().downcast_ref::<Self>()?;
        Some(self.order(other) == Ordering::Equal)
    }

    fn work(&self) -> u64 {
        let of = |part: &PreRelease| match part {
            PreRelease::Number(_) => 2,
            PreRelease::Text(text) => 2 + work_of_bytes(text.len()),
        };
        let pre: u64 = self.pre.iter().map(of).sum();
        let build = self.build.iter().map(|part| 2 + work_of_bytes(part.len()));
        4 + pre + build.sum::<u64>()
    }

    fn conversion_error(&self) -> Option<String> {
        Some(unconvertible("semver.Version", self))
    }

    fn print(&self) -> String {
        let [major, minor, patch] = self.numbers;
        let mut out = format!("{major}.{minor}.{patch}");
        for (at, part) in self.pre.iter().enumerate() {
            out.push(if at == 0 { '-' } else { '.' });
            match part {
                PreRelease::Number(number) => out.push_str(&number.to_string()),
                PreRelease::Text(text) => out.push_str(text),
            }
        }
        for (at, part) in self.build.iter().enumerate() {
            out.push(if at == 0 { '+' } else { '.' });
            out.push_str(part);
        }
        out
    }
}

impl SemverValue {
    /// The precedence of versions, which ignores build metadata.
    fn order(&self, other: &Self) -> Ordering {
        let numbers = self.numbers.cmp(&other.numbers);
        numbers.then_with(|| match (self.pre.is_empty(), other.pre.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => self.order_of_pre(other),
        })
    }

    fn order_of_pre(&self, other: &Self) -> Ordering {
        for pair in self.pre.iter().zip(&other.pre) {
            let order = match pair {
                (PreRelease::Number(a), PreRelease::Number(b)) => a.cmp(b),
                (PreRelease::Number(_), PreRelease::Text(_)) => Ordering::Less,
                (PreRelease::Text(_), PreRelease::Number(_)) => Ordering::Greater,
                (PreRelease::Text(a), PreRelease::Text(b)) => a.cmp(b),
            };
            if order != Ordering::Equal {
                return order;
            }
        }
        self.pre.len().cmp(&other.pre.len())
    }
}

fn semver_type() -> CelType {
    CelType::object(SEMVER)
}

impl CelLibrary for SemverLibrary {
    fn declare(&self, to: &mut CelDeclarations) {
        let parsing = |args: &[CelValue<'_>], _: &CelValue<'_>| Some(tenth(args[0].cost_size()));
        let (bool, text) = (CelType::Bool, CelType::String);
        let mut make = CelFunctionDecl::new("semver")
            .cost(parsing)
            .overload(CelOverload::global(
                "string_to_semver",
                [text.clone()],
                semver_type(),
                semver,
            ));
        let mut test =
            CelFunctionDecl::new("isSemver")
                .cost(parsing)
                .overload(CelOverload::global(
                    "is_semver_string",
                    [text.clone()],
                    bool.clone(),
                    is_semver,
                ));
        if self.version >= 1 {
            let args = [text, bool.clone()];
            make = make.overload(CelOverload::global(
                "string_bool_to_semver",
                args.clone(),
                semver_type(),
                semver,
            ));
            let overload = CelOverload::global("is_semver_string_bool", args, bool, is_semver);
            test = test.overload(overload);
        }
        to.function(make);
        to.function(test);
        declare_members(to);
    }
}

fn declare_members(to: &mut CelDeclarations) {
    for (at, name) in ["major", "minor", "patch"].into_iter().enumerate() {
        to.function(CelFunctionDecl::new(name).overload(CelOverload::member(
            &format!("semver_{name}"),
            [semver_type()],
            CelType::Int,
            fixed(move |args| {
                // As in the original, numbers beyond the range of `int` become negative.
                Ok(CelValue::Int(
                    opaque::<SemverValue>(args, 0)?.numbers[at].cast_signed(),
                ))
            }),
        )));
    }
    declare_order(to, "semver", &semver_type(), SemverValue::order);
}

fn parsed(args: &[CelValue<'_>]) -> Result<Result<SemverValue, String>, CelError> {
    let of = text(args, 0)?;
    Ok(match args.get(1) {
        None | Some(CelValue::Bool(false)) => parse(of),
        Some(CelValue::Bool(true)) => normalized(of).and_then(|of| parse(&of)),
        Some(_) => return Err(CelError::no_such_overload()),
    })
}

fn semver<'a>(args: &[CelValue<'a>]) -> CelResult<'a> {
    parsed(args)?.map(CelValue::opaque).map_err(CelError::new)
}

fn is_semver<'a>(args: &[CelValue<'a>]) -> CelResult<'a> {
    Ok(parsed(args)?.is_ok().into())
}

/// The text without a leading `v` and leading zeros, and with zeros for missing numbers.
///
/// # Errors
///
/// If a version with missing numbers has a pre-release or build metadata.
fn normalized(text: &str) -> Result<String, String> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<String> = text.splitn(3, '.').map(without_zeros).collect();
    if parts.len() < 3 {
        if parts.last().is_some_and(|last| last.contains(['+', '-'])) {
            return Err("short version cannot contain PreRelease/Build meta data".to_owned());
        }
        parts.resize(3, "0".to_owned());
    }
    Ok(parts.join("."))
}

fn without_zeros(part: &str) -> String {
    if part.len() < 2 {
        return part.to_owned();
    }
    let rest = part.trim_start_matches('0');
    if rest.starts_with(|c: char| c.is_ascii_digit()) {
        rest.to_owned()
    } else {
        format!("0{rest}")
    }
}

fn is_identifier(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn is_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A number of the version or of its pre-release. Errors have the text of Go's `strconv`.
fn number(text: &str) -> Result<u64, String> {
    parse_uint(text).map_err(|why| why.to_string())
}

fn parse(text: &str) -> Result<SemverValue, String> {
    if text.is_empty() {
        return Err("Version string empty".to_owned());
    }
    let parts: Vec<_> = text.splitn(3, '.').collect();
    let [major, minor, patch] = parts[..] else {
        return Err("No Major.Minor.Patch elements found".to_owned());
    };
    let mut numbers = [0; 3];
    for (at, (name, part)) in [("major", major), ("minor", minor)].into_iter().enumerate() {
        if !is_number(part) {
            let part = Quoted(part);
            return Err(format!(
                "Invalid character(s) found in {name} number {part}"
            ));
        }
        if part.len() > 1 && part.starts_with('0') {
            let (capital, part) = (capitalized(name), Quoted(part));
            return Err(format!(
                "{capital} number must not contain leading zeroes {part}"
            ));
        }
        numbers[at] = number(part)?;
    }
    let (patch, build) = match patch.split_once('+') {
        Some((patch, build)) => (patch, Some(build)),
        None => (patch, None),
    };
    let (patch, pre) = match patch.split_once('-') {
        Some((patch, pre)) => (patch, Some(pre)),
        None => (patch, None),
    };
    if !is_number(patch) {
        let patch = Quoted(patch);
        return Err(format!(
            "Invalid character(s) found in patch number {patch}"
        ));
    }
    if patch.len() > 1 && patch.starts_with('0') {
        let patch = Quoted(patch);
        return Err(format!(
            "Patch number must not contain leading zeroes {patch}"
        ));
    }
    numbers[2] = number(patch)?;
    let pre = pre.map_or(Ok(Vec::new()), |pre| {
        pre.split('.').map(pre_release).collect()
    })?;
    let build = build.map_or(Ok(Vec::new()), |of| of.split('.').map(build_part).collect())?;
    Ok(SemverValue {
        numbers,
        pre,
        build,
    })
}

fn capitalized(name: &str) -> String {
    name[..1].to_ascii_uppercase() + &name[1..]
}

fn pre_release(part: &str) -> Result<PreRelease, String> {
    if part.is_empty() {
        return Err("Prerelease is empty".to_owned());
    }
    if is_number(part) {
        if part.len() > 1 && part.starts_with('0') {
            let part = Quoted(part);
            return Err(format!(
                "Numeric PreRelease version must not contain leading zeroes {part}"
            ));
        }
        return number(part).map(PreRelease::Number);
    }
    if !is_identifier(part) {
        let part = Quoted(part);
        return Err(format!("Invalid character(s) found in prerelease {part}"));
    }
    Ok(PreRelease::Text(part.to_owned()))
}

fn build_part(part: &str) -> Result<String, String> {
    if part.is_empty() {
        return Err("Build meta data is empty".to_owned());
    }
    if !is_identifier(part) {
        let part = Quoted(part);
        return Err(format!(
            "Invalid character(s) found in build meta data {part}"
        ));
    }
    Ok(part.to_owned())
}
