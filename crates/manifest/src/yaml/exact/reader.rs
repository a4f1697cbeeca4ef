//! Mappings and lists: block style by columns, flow style by brackets.
//!
//! The text is known to be valid YAML. What is not understood here is refused, never guessed.

use serde_json::Value;

use super::{
    Inexact,
    members::{Key, YamlMembers},
    resolve::resolve,
};

/// How deep values may nest: deeper than the other reader lets them.
const MAX_DEPTH: usize = 256;

/// The value of the only document of `text`; null if there is none.
pub(super) fn read(text: &str) -> Result<Value, Inexact> {
    let mut reader = Reader {
        text: text.as_bytes(),
        at: 0,
        line: 0,
        depth: 0,
    };
    reader.document()
}

/// Where the reader is in the text.
pub(super) struct Reader<'a> {
    pub(super) text: &'a [u8],
    pub(super) at: usize,
    /// The beginning of the line.
    pub(super) line: usize,
    depth: usize,
}

/// The columns of a block: one that contains all has none.
pub(super) type Parent = Option<usize>;

impl Reader<'_> {
    pub(super) fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    pub(super) fn refuse<T>(&self, what: &'static str) -> Result<T, Inexact> {
        Err(Inexact { at: self.at, what })
    }

    pub(super) fn column(&self) -> usize {
        self.at - self.line
    }

    pub(super) fn new_line(&mut self) {
        self.at += 1;
        self.line = self.at;
    }

    pub(super) fn is_blank(byte: Option<u8>) -> bool {
        matches!(byte, None | Some(b' ' | b'\t' | b'\n'))
    }

    /// Whether what is `ahead` bytes further is white space, or the end.
    pub(super) fn is_blank_at(&self, ahead: usize) -> bool {
        Self::is_blank(self.text.get(self.at + ahead).copied())
    }

    pub(super) fn is_comment(&self) -> bool {
        let before = self.at.checked_sub(1).map(|before| self.text[before]);
        self.peek() == Some(b'#') && Self::is_blank(before)
    }

    pub(super) fn is_marker(&self) -> bool {
        let rest = &self.text[self.at..];
        self.column() == 0
            && (rest.starts_with(b"---") || rest.starts_with(b"..."))
            && self.is_blank_at(3)
    }

    fn is_dash(&self) -> bool {
        self.peek() == Some(b'-') && self.is_blank_at(1)
    }

    pub(super) fn skip_spaces(&mut self) {
        while self.peek() == Some(b' ') {
            self.at += 1;
        }
    }

    /// Skips white space and comments.
    fn skip_blank(&mut self, in_flow: bool) -> Result<(), Inexact> {
        loop {
            match self.peek() {
                Some(b' ') => self.at += 1,
                Some(b'\t') if in_flow => self.at += 1,
                Some(b'\t') => return self.refuse("a tab outside of quotes and brackets"),
                Some(b'\n') => self.new_line(),
                Some(b'#') if self.is_comment() => {
                    while !matches!(self.peek(), None | Some(b'\n')) {
                        self.at += 1;
                    }
                }
                Some(_) if self.is_marker() => return self.refuse("the mark of a document"),
                _ => return Ok(()),
            }
        }
    }

    /// Whether nothing but a comment follows on the line.
    fn is_line_end(&mut self) -> bool {
        while matches!(self.peek(), Some(b' ' | b'\t')) {
            self.at += 1;
        }
        matches!(self.peek(), None | Some(b'\n')) || self.is_comment()
    }

    fn end_line(&mut self) -> Result<(), Inexact> {
        if self.is_line_end() {
            return Ok(());
        }
        self.refuse("text after a value")
    }

    fn document(&mut self) -> Result<Value, Inexact> {
        let is_marked = |reader: &Self| reader.is_marker() && reader.peek() == Some(b'-');
        let mut inline = false;
        if !is_marked(self) {
            while matches!(self.peek(), Some(b' ' | b'\n')) || self.is_comment() {
                if self.is_line_end() {
                    while !matches!(self.peek(), None | Some(b'\n')) {
                        self.at += 1;
                    }
                    if self.peek().is_none() {
                        return Ok(Value::Null);
                    }
                    self.new_line();
                } else {
                    break;
                }
            }
        }
        if is_marked(self) {
            self.at += 3;
            inline = !self.is_line_end();
        }
        self.skip_blank(false)?;
        if self.peek().is_none() {
            return Ok(Value::Null);
        }
        let value = self.block(None, inline)?;
        self.skip_blank(false)?;
        if self.peek().is_some() {
            return self.refuse("text after the document");
        }
        Ok(value)
    }

    /// A value in block style, within the block at the column of `parent`. One that is `inline` follows its key.
    fn block(&mut self, parent: Parent, inline: bool) -> Result<Value, Inexact> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return self.refuse("values that nest too deep");
        }
        let value = self.any_block(parent, inline)?;
        self.depth -= 1;
        Ok(value)
    }

    fn any_block(&mut self, parent: Parent, inline: bool) -> Result<Value, Inexact> {
        let column = self.column();
        let key = match self.peek() {
            Some(b'-') if self.is_dash() => {
                if inline {
                    return self.refuse("a list on the line of its key");
                }
                return self.list(column);
            }
            Some(b'|' | b'>') => return self.block_scalar(parent).map(Value::String),
            Some(b'[' | b'{') => {
                let value = self.flow()?;
                self.end_line()?;
                return Ok(value);
            }
            Some(b'"' | b'\'') => {
                let text = self.quoted()?;
                if !self.is_key_end() {
                    self.end_line()?;
                    return Ok(Value::String(text));
                }
                Key::quoted(text)
            }
            _ => {
                self.check_plain()?;
                let text = self.plain_line(false)?;
                if !self.is_key_end() {
                    let text = self.plain_rest(parent, text)?;
                    self.end_line()?;
                    return self.resolved(&text);
                }
                self.plain_key(&text)?
            }
        };
        if inline {
            return self.refuse("a mapping on the line of its key");
        }
        self.mapping(column, key)
    }

    pub(super) fn resolved(&self, text: &str) -> Result<Value, Inexact> {
        let value = resolve(text).value(text);
        value.or_else(|what| self.refuse(what))
    }

    /// The key of a further member.
    fn key(&mut self, in_flow: bool) -> Result<Key, Inexact> {
        if let Some(b'"' | b'\'') = self.peek() {
            return self.quoted().map(Key::quoted);
        }
        self.check_plain()?;
        let text = self.plain_line(in_flow)?;
        self.plain_key(&text)
    }

    fn plain_key(&self, text: &str) -> Result<Key, Inexact> {
        Key::plain(text).or_else(|what| self.refuse(what))
    }

    /// Whether a colon follows that makes a key of what was read; it is then the next byte.
    fn is_key_end(&mut self) -> bool {
        let mut ahead = 0;
        while self.text.get(self.at + ahead) == Some(&b' ') {
            ahead += 1;
        }
        let is_key = self.text.get(self.at + ahead) == Some(&b':') && self.is_blank_at(ahead + 1);
        if is_key {
            self.at += ahead;
        }
        is_key
    }

    /// A mapping at a column, whose first key was read.
    fn mapping(&mut self, column: usize, first: Key) -> Result<Value, Inexact> {
        let (mut members, mut key) = (YamlMembers::default(), first);
        loop {
            self.at += 1;
            let value = self.value_of_key(column)?;
            let put = members.put(key, value);
            put.or_else(|what| self.refuse(what))?;
            self.skip_blank(false)?;
            if self.peek().is_none() || self.column() < column {
                return Ok(members.into_value());
            }
            if self.column() > column || self.is_dash() {
                return self.refuse("indentation that fits no block");
            }
            key = self.key(false)?;
            if !self.is_key_end() {
                return self.refuse("a key without a colon");
            }
        }
    }

    fn value_of_key(&mut self, column: usize) -> Result<Value, Inexact> {
        if !self.is_line_end() {
            return self.block(Some(column), true);
        }
        self.skip_blank(false)?;
        if self.peek().is_none() {
            return Ok(Value::Null);
        }
        if self.column() > column {
            return self.block(Some(column), false);
        }
        // A list may be at the column of its key: the dashes count as indentation.
        if self.column() == column && self.is_dash() {
            return self.list(column);
        }
        Ok(Value::Null)
    }

    /// A list whose dashes are at a column.
    fn list(&mut self, column: usize) -> Result<Value, Inexact> {
        let mut items = Vec::new();
        loop {
            self.at += 1;
            let is_below = self.is_line_end();
            self.skip_blank(false)?;
            let is_item = self.peek().is_some() && (!is_below || self.column() > column);
            items.push(if is_item {
                self.block(Some(column), false)?
            } else {
                Value::Null
            });
            self.skip_blank(false)?;
            if self.peek().is_none() || self.column() < column {
                return Ok(items.into());
            }
            if self.column() > column {
                return self.refuse("indentation that fits no block");
            }
            // The next key of the mapping that the list is a value of.
            if !self.is_dash() {
                return Ok(items.into());
            }
        }
    }

    /// A value in flow style.
    fn flow(&mut self) -> Result<Value, Inexact> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return self.refuse("values that nest too deep");
        }
        let value = match self.peek() {
            Some(b'[') => self.flow_list()?,
            Some(b'{') => self.flow_mapping()?,
            Some(b'"' | b'\'') => Value::String(self.quoted()?),
            _ => {
                self.check_plain()?;
                let text = self.plain_line(true)?;
                self.resolved(&text)?
            }
        };
        self.depth -= 1;
        Ok(value)
    }

    /// Skips a comma. Returns whether the bracket follows that `closes`.
    fn flow_end(&mut self, closes: u8) -> Result<bool, Inexact> {
        self.skip_blank(true)?;
        if self.peek() == Some(b',') {
            self.at += 1;
            self.skip_blank(true)?;
        } else if self.peek() != Some(closes) {
            return self.refuse("a scalar of several lines or a pair within brackets");
        }
        Ok(self.peek() == Some(closes))
    }

    fn flow_list(&mut self) -> Result<Value, Inexact> {
        self.at += 1;
        self.skip_blank(true)?;
        let (mut items, mut ends) = (Vec::new(), self.peek() == Some(b']'));
        while !ends {
            items.push(self.flow()?);
            ends = self.flow_end(b']')?;
        }
        self.at += 1;
        Ok(items.into())
    }

    fn flow_mapping(&mut self) -> Result<Value, Inexact> {
        self.at += 1;
        self.skip_blank(true)?;
        let (mut members, mut ends) = (YamlMembers::default(), self.peek() == Some(b'}'));
        while !ends {
            let key = self.key(true)?;
            self.skip_blank(true)?;
            let mut value = Value::Null;
            if self.peek() == Some(b':') {
                self.at += 1;
                self.skip_blank(true)?;
                if !matches!(self.peek(), Some(b',' | b'}')) {
                    value = self.flow()?;
                }
            }
            let put = members.put(key, value);
            put.or_else(|what| self.refuse(what))?;
            ends = self.flow_end(b'}')?;
        }
        self.at += 1;
        Ok(members.into_value())
    }
}
