//! Static tokens from a file: for tests and emergencies.
//!
//! The file has lines of `token,user,uid,"group,group"`, parsed as in Kubernetes, with the same strictness about
//! quotes. The tokens never expire. Only keyed hashes of them are kept.
//!
//! Not here: reading the file, and logging the warnings.

use std::{collections::HashMap, fmt, sync::Arc};

use fairgate_call::Identity;
use fairgate_core::digest::User;
use fairgate_upstream::token_review::{BearerToken, TokenDigest, TokenKey};

/// The users of a token file, by token.
#[derive(Clone)]
pub struct TokenTable {
    key: TokenKey,
    users: HashMap<TokenDigest, Arc<Identity>>,
}

/// A line without effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum TokenFileWarning {
    /// The line is skipped.
    #[error("line {line}: the token is empty; the line has no effect")]
    EmptyToken { line: u64 },
    /// The earlier line is without effect.
    #[error("line {line}: the token is also on an earlier line, which has no effect")]
    Repeated { line: u64 },
}

/// Why a token file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum TokenFileError {
    /// Token, user and uid are required.
    #[error("line {line}: {columns} column(s); write at least token,user,uid")]
    TooFewColumns { line: u64, columns: usize },
    /// A user's name must not be empty.
    #[error("line {line}: the user name is empty; name a user")]
    EmptyUser { line: u64 },
    /// A quote within a field, or one that is not closed.
    #[error(
        "line {line}: misplaced or unclosed quote; quote whole fields, and double a quote within"
    )]
    Quote { line: u64 },
    /// The file is not UTF-8.
    #[error("line {line}: not UTF-8")]
    NotText { line: u64 },
}

impl TokenTable {
    /// Parses a token file.
    ///
    /// More columns are ignored, groups are split at every comma and not trimmed, and of several lines with the same
    /// token the last one counts.
    ///
    /// # Errors
    ///
    /// One error for each line that makes the file unusable; or only that of the first misplaced quote, since it is not
    /// known where lines begin after it.
    pub fn parse(
        text: &[u8],
        key: &TokenKey,
    ) -> Result<(Self, Vec<TokenFileWarning>), Vec<TokenFileError>> {
        let text = without_carriage_returns(text);
        // The reader takes misplaced quotes as data, where Kubernetes refuses the file.
        check_quotes(&text).map_err(|error| vec![error])?;
        let mut file = Self {
            key: key.clone(),
            users: HashMap::new(),
        };
        let (mut warnings, mut errors) = (Vec::new(), Vec::new());
        let mut reader = csv::ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            // Not the reader's own rule, for which a lone `\r` ends a line, too: in Go it is data.
            .terminator(csv::Terminator::Any(b'\n'))
            .from_reader(&*text);
        for record in reader.byte_records() {
            let row = record
                .map_err(|error| not_text(&error))
                .and_then(|record| Row::parse(&record));
            match row {
                Ok(row) => warnings.extend(file.insert(row)),
                Err(error) => errors.push(error),
            }
        }
        if errors.is_empty() {
            Ok((file, warnings))
        } else {
            Err(errors)
        }
    }

    /// The user of a token, by the token's digest under [`key`](Self::key).
    pub fn lookup(&self, digest: &TokenDigest) -> Option<&Arc<Identity>> {
        self.users.get(digest)
    }

    /// The key under which tokens are looked up.
    pub fn key(&self) -> &TokenKey {
        &self.key
    }

    fn insert(&mut self, row: Row) -> Option<TokenFileWarning> {
        let Some(token) = row.token else {
            return Some(TokenFileWarning::EmptyToken { line: row.line });
        };
        let identity = Arc::new(Identity::authenticated(row.user));
        self.users
            .insert(self.key.digest(token.as_bytes()), identity)
            .map(|_earlier| TokenFileWarning::Repeated { line: row.line })
    }
}

impl fmt::Debug for TokenTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenTable({} tokens)", self.users.len())
    }
}

struct Row {
    line: u64,
    token: Option<BearerToken>,
    user: User,
}

impl Row {
    fn parse(record: &csv::ByteRecord) -> Result<Self, TokenFileError> {
        let line = record.position().map_or(0, csv::Position::line);
        let (Some(token), Some(name), Some(uid)) = (record.get(0), record.get(1), record.get(2))
        else {
            let columns = record.len();
            return Err(TokenFileError::TooFewColumns { line, columns });
        };
        let text = |field: &[u8]| match std::str::from_utf8(field) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(TokenFileError::NotText { line }),
        };
        let groups = match record.get(3) {
            // Nobody can be in a group without a name, and no header can say so: the rest of the line holds.
            Some(field) => text(field)?
                .split(',')
                .filter(|group| !group.is_empty())
                .map(str::to_owned)
                .collect(),
            None => Vec::new(),
        };
        let user = User {
            name: text(name)?,
            uid: text(uid)?,
            groups,
            extra: std::collections::BTreeMap::new(),
        };
        let token = BearerToken::new(token);
        // Without a token the line has no effect, which is a warning, so its user does not matter.
        if token.is_some() && user.name.is_empty() {
            return Err(TokenFileError::EmptyUser { line });
        }
        Ok(Self { line, token, user })
    }
}

/// The reader parses bytes in memory, so invalid text is its only possible error.
fn not_text(error: &csv::Error) -> TokenFileError {
    TokenFileError::NotText {
        line: error.position().map_or(0, csv::Position::line),
    }
}

/// The text with every `\r\n` replaced by `\n`, also within quotes, and without a `\r` at its end; any other `\r` is
/// data.
fn without_carriage_returns(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for (i, &byte) in text.iter().enumerate() {
        if !(byte == b'\r' && matches!(text.get(i + 1), None | Some(b'\n'))) {
            out.push(byte);
        }
    }
    out
}

/// Refuses misplaced quotes, which a lenient reader would accept.
fn check_quotes(text: &[u8]) -> Result<(), TokenFileError> {
    enum At {
        FieldStart,
        Plain,
        Quoted,
        AfterQuote,
    }
    let (mut at, mut line, mut opened) = (At::FieldStart, 1, 1);
    for &byte in text {
        at = match (at, byte) {
            (At::FieldStart, b'"') => {
                opened = line;
                At::Quoted
            }
            (At::Quoted, b'"') => At::AfterQuote,
            (At::Quoted, _) | (At::AfterQuote, b'"') => At::Quoted,
            (_, b',' | b'\n') => At::FieldStart,
            (At::AfterQuote, _) | (At::Plain, b'"') => return Err(TokenFileError::Quote { line }),
            (At::FieldStart | At::Plain, _) => At::Plain,
        };
        line += u64::from(byte == b'\n');
    }
    match at {
        At::Quoted => Err(TokenFileError::Quote { line: opened }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<(TokenTable, Vec<TokenFileWarning>), Vec<TokenFileError>> {
        TokenTable::parse(text.as_bytes(), &TokenKey::random().unwrap())
    }

    fn user(file: &TokenTable, token: &str) -> Option<User> {
        let digest = file.key().digest(token.as_bytes());
        file.lookup(&digest).map(|found| User::clone(found.user()))
    }

    /// The user that a line with the token `t` defines.
    fn only_user(line: &str) -> User {
        let (file, warnings) = parse(line).unwrap();
        assert_eq!(warnings, []);
        user(&file, "t").unwrap()
    }

    fn groups(line: &str) -> Vec<String> {
        only_user(line).groups
    }

    #[test]
    fn a_line_gives_user_uid_and_groups() {
        let alice = only_user("t,alice,1001,\"dev,ops\",ignored,\"too\"\n");
        let mut expected = User::new("alice", ["dev", "ops", "system:authenticated"]);
        expected.uid = "1001".into();
        assert_eq!(alice, expected);
    }

    #[test]
    fn groups_are_split_at_commas_and_not_trimmed_and_have_names() {
        let all = "system:authenticated";
        assert_eq!(groups("t,alice,"), [all]);
        assert_eq!(groups("t,alice,,"), [all]);
        assert_eq!(groups("t,alice,,\"a, b,\""), ["a", " b", all]);
        assert_eq!(groups("t,alice,, a,b"), [" a", all]);
        assert_eq!(groups("t,alice,,\"say \"\"hi\"\"\""), ["say \"hi\"", all]);
    }

    #[test]
    fn look_up_is_exact() {
        let (file, _) = parse(" abc,alice,1\n").unwrap();
        assert!(user(&file, " abc").is_some());
        for other in ["abc", " ABC", " ab", " abcd", ""] {
            assert!(user(&file, other).is_none(), "{other:?}");
        }
    }

    #[test]
    fn the_last_line_with_a_repeated_token_counts() {
        let (file, warnings) = parse("t,alice,1\nu,carol,3\nt,bob,2\n").unwrap();
        assert_eq!(warnings, [TokenFileWarning::Repeated { line: 3 }]);
        assert_eq!(user(&file, "t").unwrap().name, "bob");
        assert_eq!(user(&file, "u").unwrap().name, "carol");
    }

    #[test]
    fn a_line_with_an_empty_token_is_skipped_with_a_warning() {
        let (file, warnings) = parse(",alice,1\n\"\",,\nt,bob,2\n").unwrap();
        assert_eq!(
            warnings,
            [
                TokenFileWarning::EmptyToken { line: 1 },
                TokenFileWarning::EmptyToken { line: 2 }
            ]
        );
        assert_eq!(format!("{file:?}"), "TokenTable(1 tokens)");
    }

    #[test]
    fn all_unusable_lines_are_reported() {
        let errors = parse("t,alice\n\nu,bob,2\nv\nw,,3\n").unwrap_err();
        assert_eq!(
            errors,
            [
                TokenFileError::TooFewColumns {
                    line: 1,
                    columns: 2
                },
                TokenFileError::TooFewColumns {
                    line: 4,
                    columns: 1
                },
                TokenFileError::EmptyUser { line: 5 },
            ]
        );
        let bad = TokenTable::parse(b"t,al\xffce,1", &TokenKey::random().unwrap());
        assert_eq!(bad.unwrap_err(), [TokenFileError::NotText { line: 1 }]);
    }

    #[test]
    fn quotes_are_read_strictly() {
        for (text, line) in [
            ("t,alice,1, \"dev,ops\"", 1),
            ("t,al\"ice,1", 1),
            ("u,bob,1\nt,\"alice\"x,1", 2),
            ("u,bob,1\nt,alice,1,\"dev\nops", 2),
        ] {
            assert_eq!(parse(text).unwrap_err(), [TokenFileError::Quote { line }]);
        }
        assert_eq!(only_user("\"t\",\"alice\",\"\"").name, "alice");
        assert_eq!(only_user("t,\"al\r\nice\",1").name, "al\nice");
    }

    #[test]
    fn lines_may_end_with_a_carriage_return_and_a_line_feed() {
        let (file, _) = parse("t,alice,1\r\n\r\nu,bob,2,dev\r\n").unwrap();
        assert_eq!(user(&file, "t").unwrap().uid, "1");
        assert_eq!(user(&file, "u").unwrap().groups[0], "dev");
        assert_eq!(only_user("t,a\rb,1").name, "a\rb");
        assert_eq!(only_user("t,alice,1\r").uid, "1");
    }
}
