//! Parses a list in JSON as far as needed.
//!
//! It follows strings and brackets, and only interprets the few top-level fields that matter. Lists of built-in
//! resources have `kind, apiVersion, metadata, items`, in this order. Lists of custom resources have sorted keys, so
//! that `metadata` comes last: it is parsed from the last bytes of the body.

use super::ListFacts;

/// How many of the last bytes are kept. Continue tokens have several hundred.
const TAIL_BYTES: usize = 2 << 10;

/// The longest name or value that is interpreted.
const MAX_WORD: usize = 256;

/// How much is parsed between two checks of whether it is enough.
const STEP_BYTES: usize = 4 << 10;

/// Parses the beginning of a list, and its end.
#[derive(Debug, Default)]
pub(super) struct JsonList {
    position: u64,
    depth: u32,
    text: Text,
    end: End,
    /// The current name or value, at the top level and in the list's metadata.
    word: Vec<u8>,
    /// The field of the current value, at the top level and in the list's metadata.
    field: TopLevelField,
    metadata_field: MetadataField,
    facts: ListFacts,
    tail: Vec<u8>,
}

/// Whether a byte is structure or text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Text {
    #[default]
    Outside,
    Inside,
    /// The byte after a backslash.
    Escaped,
}

/// Whether the document has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum End {
    #[default]
    NotYet,
    Whole,
    /// It is not valid JSON.
    Broken,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TopLevelField {
    #[default]
    None,
    Other,
    Kind,
    ApiVersion,
    Metadata,
    Items,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum MetadataField {
    #[default]
    None,
    Other,
    Continue,
    Remaining,
}

impl JsonList {
    /// Reads a part of the body: parses it if the sample is not large enough yet, else keeps its last bytes.
    pub(super) fn read_sample(&mut self, data: &[u8]) {
        let mut rest = data;
        while self.wants_more()
            && let Some((step, after)) = rest.split_at_checked(rest.len().min(STEP_BYTES))
            && !step.is_empty()
        {
            self.read(step);
            rest = after;
        }
        if self.end == End::NotYet && !self.facts.has_metadata && !self.facts.is_other {
            self.keep_tail(rest);
        }
    }

    /// Parses a part of the body completely.
    pub(super) fn read(&mut self, data: &[u8]) {
        let mut rest = data;
        while self.end == End::NotYet && !rest.is_empty() {
            let read = match self.text {
                Text::Outside => {
                    self.position += 1;
                    self.structure(rest[0]);
                    1
                }
                Text::Inside => self.string(rest),
                // What is escaped does not get into the word: no name or value that is looked for has a backslash.
                Text::Escaped => {
                    self.position += 1;
                    self.text = Text::Inside;
                    1
                }
            };
            rest = rest.get(read..).unwrap_or_default();
        }
    }

    /// Whether the sample is not large enough yet.
    pub(super) fn wants_more(&self) -> bool {
        self.end == End::NotYet && !self.facts.is_other && !self.facts.is_sampled(self.position)
    }

    /// What was found, including the end of the body.
    pub(super) fn finish(mut self) -> ListFacts {
        if self.end == End::Broken {
            return ListFacts::default();
        }
        if !self.facts.has_metadata {
            self.read_tail();
        }
        self.facts
    }

    /// Skips the text of a string to its end or a backslash; returns how far.
    fn string(&mut self, data: &[u8]) -> usize {
        let found = data.iter().position(|byte| matches!(byte, b'"' | b'\\'));
        let length = found.unwrap_or(data.len());
        if self.is_watched() {
            let room = MAX_WORD.saturating_sub(self.word.len());
            self.word.extend_from_slice(&data[..length.min(room)]);
        }
        let read = match found {
            None => length,
            Some(at) => {
                self.text = match data[at] {
                    b'"' => Text::Outside,
                    _ => Text::Escaped,
                };
                at + 1
            }
        };
        self.position += read as u64;
        read
    }

    /// Parses a byte outside of strings.
    fn structure(&mut self, byte: u8) {
        match byte {
            b'"' => {
                self.text = Text::Inside;
                if self.is_watched() {
                    self.word.clear();
                }
            }
            b'{' | b'[' => self.open(byte),
            b'}' | b']' => self.close(),
            b' ' | b'\n' | b'\r' | b'\t' => {}
            _ if self.depth == 0 => self.end = End::Broken,
            _ if !self.is_watched() => {}
            b':' => self.name(),
            b',' => {
                self.value();
                self.forget_field();
            }
            _ if self.word.len() < MAX_WORD => self.word.push(byte),
            _ => {}
        }
    }

    /// Whether names and values at this level are interpreted.
    fn is_watched(&self) -> bool {
        self.depth == 1 || (self.depth == 2 && self.field == TopLevelField::Metadata)
    }

    fn open(&mut self, byte: u8) {
        match (self.depth, byte) {
            // A list of Kubernetes is an object.
            (0, b'[') => self.end = End::Broken,
            (1, b'[') if self.field == TopLevelField::Items => {
                self.facts.has_items = true;
                self.facts.items_start = self.position;
            }
            _ => {}
        }
        self.depth = self.depth.saturating_add(1);
    }

    fn close(&mut self) {
        if self.is_watched() {
            self.value();
        }
        self.depth = self.depth.saturating_sub(1);
        match self.depth {
            0 => self.end = End::Whole,
            1 => {
                match self.field {
                    TopLevelField::Items => self.facts.all_items = self.facts.has_items,
                    TopLevelField::Metadata => self.facts.has_metadata = true,
                    _ => {}
                }
                self.field = TopLevelField::None;
                self.metadata_field = MetadataField::None;
            }
            2 if self.field == TopLevelField::Items && self.facts.has_items => {
                self.facts.items += 1;
                self.facts.items_bytes = self.position - self.facts.items_start;
            }
            2 => self.metadata_field = MetadataField::None,
            _ => {}
        }
    }

    /// The word that was parsed is the name of a field.
    fn name(&mut self) {
        if self.depth == 1 {
            self.field = match self.word.as_slice() {
                b"kind" => TopLevelField::Kind,
                b"apiVersion" => TopLevelField::ApiVersion,
                b"metadata" => TopLevelField::Metadata,
                b"items" => TopLevelField::Items,
                _ => TopLevelField::Other,
            };
        } else {
            self.metadata_field = match self.word.as_slice() {
                b"continue" => MetadataField::Continue,
                b"remainingItemCount" => MetadataField::Remaining,
                _ => MetadataField::Other,
            };
        }
        self.word.clear();
    }

    /// The word that was parsed is the value of a field.
    fn value(&mut self) {
        let word = self.word.as_slice();
        if self.depth == 1 {
            match self.field {
                TopLevelField::Kind => self.facts.check_kind(word),
                TopLevelField::ApiVersion => self.facts.check_api_version(word),
                // Go encodes a nil slice so: a list without objects.
                TopLevelField::Items if word == b"null" => {
                    self.facts.has_items = true;
                    self.facts.all_items = true;
                }
                _ => {}
            }
            return;
        }
        match self.metadata_field {
            MetadataField::Continue => {
                self.facts.has_continue = !matches!(word, b"" | b"null");
            }
            MetadataField::Remaining => {
                self.facts.remaining = str::from_utf8(word).ok().and_then(|n| n.parse().ok());
            }
            _ => {}
        }
    }

    fn forget_field(&mut self) {
        if self.depth == 1 {
            self.field = TopLevelField::None;
        } else {
            self.metadata_field = MetadataField::None;
        }
    }

    fn keep_tail(&mut self, data: &[u8]) {
        let data = &data[data.len().saturating_sub(TAIL_BYTES)..];
        let excess = (self.tail.len() + data.len()).saturating_sub(TAIL_BYTES);
        self.tail.drain(..excess);
        self.tail.extend_from_slice(data);
    }

    /// Parses the metadata after the objects. It contains no arrays, so it is what follows the last bracket; with its
    /// comma replaced by a brace, it is an object of its own.
    fn read_tail(&mut self) {
        let Some(bracket) = self.tail.iter().rposition(|&byte| byte == b']') else {
            return;
        };
        let behind = self.tail[bracket + 1..].trim_ascii_start();
        let Some(fields) = behind.strip_prefix(b",") else {
            return;
        };
        let mut last = Self::default();
        last.read(b"{");
        last.read(fields);
        if last.end == End::Whole && last.facts.has_metadata {
            self.facts.is_other |= last.facts.is_other;
            self.facts.has_metadata = true;
            self.facts.has_continue = last.facts.has_continue;
            self.facts.remaining = last.facts.remaining;
        }
    }
}
