//! Scalars: plain, quoted, and blocks of lines.

use super::{
    Inexact,
    reader::{Parent, Reader},
};

impl Reader<'_> {
    /// Checks that a plain scalar begins here.
    pub(super) fn check_plain(&self) -> Result<(), Inexact> {
        let what = match self.peek() {
            None => "the end of the text",
            Some(b'!') => "a tag (!)",
            Some(b'&') => "an anchor (&)",
            Some(b'*') => "an alias (*)",
            Some(b'?') => "a complex key (?)",
            Some(b'%') => "a directive (%)",
            Some(b'-') if !self.is_blank_at(1) => return Ok(()),
            Some(
                b'-' | b':' | b',' | b'[' | b']' | b'{' | b'}' | b'#' | b'|' | b'>' | b'@' | b'`'
                | b'"' | b'\'',
            ) => "an indicator in an unusual place",
            Some(_) => return Ok(()),
        };
        self.refuse(what)
    }

    /// What of a plain scalar is on this line.
    pub(super) fn plain_line(&mut self, in_flow: bool) -> Result<String, Inexact> {
        let (start, mut end) = (self.at, self.at);
        loop {
            let is_end = match self.peek() {
                None | Some(b'\n') => true,
                Some(b'#') => self.is_comment(),
                Some(b':') if self.is_blank_at(1) => true,
                Some(b':') if in_flow => {
                    let next = self.text.get(self.at + 1);
                    if next.is_some_and(|next| b",[]{}".contains(next)) {
                        return self.refuse("a colon before a bracket or a comma");
                    }
                    false
                }
                Some(b'?') if in_flow => {
                    return self.refuse("a question mark within brackets");
                }
                Some(b',' | b'[' | b']' | b'{' | b'}') => in_flow,
                _ => false,
            };
            if is_end {
                break;
            }
            self.at += 1;
            if !Self::is_blank(Some(self.text[self.at - 1])) {
                end = self.at;
            }
        }
        self.at = end;
        Ok(self.slice(start, end))
    }

    fn slice(&self, start: usize, end: usize) -> String {
        String::from_utf8_lossy(&self.text[start..end]).into_owned()
    }

    /// The further lines of a plain scalar in block style.
    pub(super) fn plain_rest(
        &mut self,
        parent: Parent,
        mut text: String,
    ) -> Result<String, Inexact> {
        loop {
            let before = (self.at, self.line);
            let breaks = self.plain_breaks()?;
            let is_inside = parent.is_none_or(|parent| self.column() > parent);
            let is_end = self.peek().is_none() || self.peek() == Some(b'#') || self.is_marker();
            if breaks == 0 || !is_inside || is_end {
                (self.at, self.line) = before;
                return Ok(text);
            }
            let more = self.plain_line(false)?;
            if more.is_empty() || self.peek() == Some(b':') {
                return self.refuse("a colon in a scalar of several lines");
            }
            push_folded(&mut text, breaks);
            text.push_str(&more);
        }
    }

    /// Skips the line breaks after a line of a plain scalar, and the indentation of the next.
    fn plain_breaks(&mut self) -> Result<usize, Inexact> {
        let mut breaks = 0;
        loop {
            match self.peek() {
                Some(b' ') => self.at += 1,
                Some(b'\t') => return self.refuse("a tab outside of quotes and brackets"),
                Some(b'\n') => {
                    self.new_line();
                    breaks += 1;
                }
                _ => return Ok(breaks),
            }
        }
    }

    /// A scalar in quotes.
    pub(super) fn quoted(&mut self) -> Result<String, Inexact> {
        let quote = self.text[self.at];
        self.at += 1;
        let mut text = String::new();
        loop {
            let start = self.at;
            while !matches!(self.peek(), None | Some(b'"' | b'\'' | b'\\' | b'\n')) {
                self.at += 1;
            }
            text.push_str(&self.slice(start, self.at));
            match self.peek() {
                None => return self.refuse("a scalar without its closing quote"),
                Some(b'\n') => self.fold_quoted(&mut text, start),
                Some(b'\\') if quote == b'"' => self.escape(&mut text)?,
                Some(byte) if byte == quote => {
                    self.at += 1;
                    if quote == b'"' || self.peek() != Some(b'\'') {
                        return Ok(text);
                    }
                    self.at += 1;
                    text.push('\'');
                }
                Some(byte) => {
                    self.at += 1;
                    text.push(char::from(byte));
                }
            }
        }
    }

    /// Folds the line breaks at this place. What is literally there since `start` loses the white space at its end.
    fn fold_quoted(&mut self, text: &mut String, start: usize) {
        let literal = &self.text[start..self.at];
        let spaces = literal.len() - literal.trim_ascii_end().len();
        text.truncate(text.len() - spaces);
        let breaks = self.skip_breaks();
        push_folded(text, breaks);
    }

    /// Skips line breaks and white space around them. Returns how many breaks there are.
    fn skip_breaks(&mut self) -> usize {
        let mut breaks = 0;
        loop {
            match self.peek() {
                Some(b' ' | b'\t') => self.at += 1,
                Some(b'\n') => {
                    self.new_line();
                    breaks += 1;
                }
                _ => return breaks,
            }
        }
    }

    fn escape(&mut self, text: &mut String) -> Result<(), Inexact> {
        self.at += 1;
        let Some(byte) = self.peek() else {
            return self.refuse("a scalar without its closing quote");
        };
        let (c, digits) = match byte {
            b'\n' => {
                // An escaped line break joins the lines: it is not even a space.
                let breaks = self.skip_breaks();
                text.extend(std::iter::repeat_n('\n', breaks - 1));
                return Ok(());
            }
            b'0' => ('\0', 0),
            b'a' => ('\x07', 0),
            b'b' => ('\x08', 0),
            b't' | b'\t' => ('\t', 0),
            b'n' => ('\n', 0),
            b'v' => ('\x0b', 0),
            b'f' => ('\x0c', 0),
            b'r' => ('\r', 0),
            b'e' => ('\x1b', 0),
            b' ' | b'"' | b'\\' => (char::from(byte), 0),
            b'N' => ('\u{85}', 0),
            b'_' => ('\u{a0}', 0),
            b'L' => ('\u{2028}', 0),
            b'P' => ('\u{2029}', 0),
            b'x' => (' ', 2),
            b'u' => (' ', 4),
            b'U' => (' ', 8),
            _ => return self.refuse("an unknown escape"),
        };
        self.at += 1;
        let c = if digits == 0 { c } else { self.code(digits)? };
        text.push(c);
        Ok(())
    }

    fn code(&mut self, digits: usize) -> Result<char, Inexact> {
        let code = self.text.get(self.at..self.at + digits);
        let code = code.filter(|code| code.iter().all(u8::is_ascii_hexdigit));
        let code = code.and_then(|code| std::str::from_utf8(code).ok());
        let code = code.and_then(|code| u32::from_str_radix(code, 16).ok());
        let Some(c) = code.and_then(char::from_u32) else {
            return self.refuse("an escape of no character");
        };
        self.at += digits;
        Ok(c)
    }

    /// A literal (`|`) or folded (`>`) block.
    pub(super) fn block_scalar(&mut self, parent: Parent) -> Result<String, Inexact> {
        let is_literal = self.peek() == Some(b'|');
        self.at += 1;
        let (mut keep, mut strip, mut indent) = (false, false, None);
        loop {
            match self.peek() {
                Some(b'+') => keep = true,
                Some(b'-') => strip = true,
                Some(digit @ b'1'..=b'9') => {
                    indent = Some(parent.unwrap_or(0) + usize::from(digit - b'0'));
                }
                _ => break,
            }
            self.at += 1;
        }
        self.skip_spaces();
        if self.is_comment() {
            while !matches!(self.peek(), None | Some(b'\n')) {
                self.at += 1;
            }
        }
        match self.peek() {
            None => return Ok(String::new()),
            Some(b'\n') => self.new_line(),
            Some(_) => return self.refuse("an unusual head of a block scalar"),
        }
        let least = parent.map_or(1, |parent| parent + 1);
        let (indent, breaks) = self.block_indent(indent, least)?;
        let lines = self.block_lines(indent, is_literal, breaks)?;
        Ok(match (strip, keep) {
            (true, _) => lines.text,
            (_, true) => lines.text + lines.last_break + &"\n".repeat(lines.breaks),
            (false, false) => lines.text + lines.last_break,
        })
    }

    /// The indentation of a block, which is that of its first line if it is not given, and the empty lines before it.
    fn block_indent(
        &mut self,
        given: Option<usize>,
        least: usize,
    ) -> Result<(usize, usize), Inexact> {
        if let Some(indent) = given {
            return Ok((indent, self.block_breaks(indent)?));
        }
        let (mut breaks, mut widest) = (0, 0);
        loop {
            self.skip_spaces();
            widest = widest.max(self.column());
            match self.peek() {
                Some(b'\n') => {
                    self.new_line();
                    breaks += 1;
                }
                Some(b'\t') => return self.refuse("a tab in the indentation of a block scalar"),
                _ => return Ok((widest.max(least), breaks)),
            }
        }
    }

    /// Skips empty lines, and the indentation of the line after them.
    fn block_breaks(&mut self, indent: usize) -> Result<usize, Inexact> {
        let mut breaks = 0;
        loop {
            while self.column() < indent && self.peek() == Some(b' ') {
                self.at += 1;
            }
            match self.peek() {
                Some(b'\t') if self.column() < indent => {
                    return self.refuse("a tab in the indentation of a block scalar");
                }
                Some(b'\n') => {
                    self.new_line();
                    breaks += 1;
                }
                _ => return Ok(breaks),
            }
        }
    }

    fn block_lines(
        &mut self,
        indent: usize,
        is_literal: bool,
        mut breaks: usize,
    ) -> Result<BlockLines, Inexact> {
        let (mut text, mut last_break, mut was_blank) = (String::new(), "", false);
        while self.column() == indent && self.peek().is_some() {
            let is_blank = matches!(self.peek(), Some(b' ' | b'\t'));
            if is_literal || last_break.is_empty() || was_blank || is_blank {
                text.push_str(last_break);
            } else if breaks == 0 {
                text.push(' ');
            }
            text.extend(std::iter::repeat_n('\n', breaks));
            was_blank = is_blank;
            let start = self.at;
            while !matches!(self.peek(), None | Some(b'\n')) {
                self.at += 1;
            }
            text.push_str(&self.slice(start, self.at));
            last_break = "";
            if self.peek().is_some() {
                self.new_line();
                last_break = "\n";
            }
            breaks = self.block_breaks(indent)?;
        }
        Ok(BlockLines {
            text,
            last_break,
            breaks,
        })
    }
}

/// The lines of a block scalar, and what follows the last of them.
struct BlockLines {
    text: String,
    last_break: &'static str,
    breaks: usize,
}

/// One line break is a space, more are one less.
fn push_folded(text: &mut String, breaks: usize) {
    if breaks == 1 {
        text.push(' ');
    } else {
        text.extend(std::iter::repeat_n('\n', breaks.saturating_sub(1)));
    }
}
