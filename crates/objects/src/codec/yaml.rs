//! YAML bodies, which are read as YAML 1.1, as in kube-apiserver.
//!
//! Not here: the YAML library ([`fairgate_manifest::yaml`]).

mod write;

pub use write::{encode, encode_entry};

use super::json::ParsedText;
use fairgate_gotext::Quoted;
use fairgate_manifest::yaml::{self, ExactError, Manifest, YamlError};

/// The text where it nests too deep.
const TOO_DEEP: &str = "yaml: exceeded max depth";

/// Why a body is not valid YAML. The text resembles that of kube-apiserver, which has another parser.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct YamlBodyError {
    message: String,
    source: YamlError,
}

/// Why a body is not read exactly.
#[derive(Debug, thiserror::Error)]
pub enum ExactBodyError {
    /// It is not valid YAML.
    #[error(transparent)]
    Yaml(#[from] YamlBodyError),
    /// It is YAML that kube-apiserver may read differently.
    #[error("fairgate does not evaluate YAML that can be read in different ways, send JSON: {0}")]
    Inexact(String),
}

impl ExactBodyError {
    /// Whether it only nests too deep.
    pub fn is_too_deep(&self) -> bool {
        matches!(self, Self::Yaml(error) if error.message == TOO_DEEP)
    }
}

/// Reads the only document of `text` as [`parse`], if kube-apiserver reads the same.
///
/// Costs time and memory linear in the length of `text`.
///
/// # Errors
///
/// [`ExactBodyError`].
pub fn parse_exactly(text: &[u8]) -> Result<ParsedText, ExactBodyError> {
    match yaml::exact(text) {
        Ok(manifest) => Ok(parsed(manifest)),
        Err(ExactError::Yaml(source)) => Err(YamlBodyError::from(source).into()),
        Err(error) => Err(ExactBodyError::Inexact(error.to_string())),
    }
}

/// Reads the first document of `text`; null if there is none.
///
/// Costs time and memory linear in the length of `text`.
///
/// # Errors
///
/// [`YamlBodyError`], if it is not YAML, or YAML that JSON cannot express.
pub fn parse(text: &[u8]) -> Result<ParsedText, YamlBodyError> {
    Ok(parsed(yaml::manifest(text)?))
}

impl From<YamlError> for YamlBodyError {
    fn from(source: YamlError) -> Self {
        Self {
            message: message(&source),
            source,
        }
    }
}

fn parsed(manifest: Manifest) -> ParsedText {
    ParsedText {
        value: manifest.value,
        duplicates: manifest
            .repeated
            .iter()
            .map(|yaml::RepeatedKey { line, key }| {
                format!("line {line}: key {} already set in map", Quoted(key))
            })
            .collect(),
    }
}

/// Errors of kube-apiserver's parser. Others come from the scanner below it, which counts lines from another
/// number.
const PARSER_ERRORS: [&str; 5] = [
    "node content",
    "',' or",
    "'-' indicator",
    "expected key",
    "<document start>",
];

/// `yaml: line 2: what is wrong`; the line is left out if it is the first.
fn message(error: &YamlError) -> String {
    let text = match error {
        YamlError::Syntax { message, .. } => message.as_str(),
        YamlError::NotUtf8 { .. } => return "yaml: invalid leading UTF-8 octet".to_owned(),
        YamlError::TooDeep => return TOO_DEEP.to_owned(),
        YamlError::TooLong | YamlError::TooManyParts => return format!("yaml: {error}"),
    };
    let (problem, rest) = text.split_once(" at line ").unwrap_or((text, ""));
    let problem = problem
        .split_once(", while")
        .map_or(problem, |(problem, _)| problem);
    if let Some(at) = problem.find(yaml::NO_JSON) {
        return problem[at..].to_owned();
    }
    if let Some(at) = problem.find(yaml::NO_KEY) {
        return format!("yaml: {}", &problem[at..]);
    }
    if problem.contains("repetition limit") || problem.contains("aliases") {
        return "yaml: document contains excessive aliasing".to_owned();
    }
    if problem.contains("recursion limit") {
        return TOO_DEEP.to_owned();
    }
    match line(
        rest,
        PARSER_ERRORS.iter().any(|part| problem.contains(part)),
    ) {
        0 => format!("yaml: {problem}"),
        line => format!("yaml: line {line}: {problem}"),
    }
}

/// The line to report: that of the context, such as a list that does not end, unless it is the first line;
/// otherwise that of the problem. `rest` follows the first ` at line `.
fn line(rest: &str, from_parser: bool) -> usize {
    let number = |text: &str| text.split(' ').next().and_then(|text| text.parse().ok());
    let problem = number(rest).unwrap_or(1);
    let context = rest
        .split_once(" at line ")
        .and_then(|(_, text)| number(text));
    let line: usize = context.filter(|line| *line > 1).unwrap_or(problem);
    if from_parser || line == 1 {
        line - 1
    } else {
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_body_is_read_with_its_duplicate_keys() {
        let parsed = parse(b"kind: FlowSchema\nspec:\n  a: yes\n  a: no\n").unwrap();
        assert_eq!(
            parsed.value,
            json!({"kind": "FlowSchema", "spec": {"a": false}})
        );
        assert_eq!(parsed.duplicates, [r#"line 4: key "a" already set in map"#]);
    }

    #[test]
    fn errors_have_the_messages_of_kube_apiserver() {
        for (text, message) in [
            (
                &b"foo: 1\n bar: 2"[..],
                "yaml: line 2: mapping values are not allowed in this context",
            ),
            (
                b"\tfoo: 1",
                "yaml: found character that cannot start any token",
            ),
            (b"foo: [1", "yaml: line 1: did not find expected ',' or ']'"),
            (b"{", "yaml: line 1: did not find expected node content"),
            (b"a: .inf", "json: unsupported value: +Inf"),
            (b"? [a]\n: 1", "yaml: invalid map key"),
            (b"@a", "yaml: found character that cannot start any token"),
            (
                b"a: b: c",
                "yaml: mapping values are not allowed in this context",
            ),
            (b"a: \"\\q\"", "yaml: found unknown escape character"),
            (b"a: \xff", "yaml: invalid leading UTF-8 octet"),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn yaml_that_expands_exponentially_by_aliases_is_refused() {
        let bomb = (1..9).fold("a0: &a0 [lol, lol]\n".to_owned(), |text, i| {
            let last = i - 1;
            format!("{text}a{i}: &a{i} [*a{last}, *a{last}, *a{last}, *a{last}, *a{last}]\n")
        });
        assert_eq!(
            parse(bomb.as_bytes()).unwrap_err().to_string(),
            "yaml: document contains excessive aliasing"
        );
    }
}
