//! Mutations of an input: bits, bytes, repeated and removed parts, words of a dictionary, parts of other inputs.

use fairgate_core::random::Random;

/// The longest input that mutations make, in bytes.
pub const MAX_LEN: usize = 4096;

/// Bytes at which parsers often branch.
const INTERESTING: &[u8] = b"\0\x01\x7f\x80\xff\r\n \t\"'\\/%&=,:;-+.0129aAfFzZ{}[]()<>!|#@*?~_";

/// Draws mutations by seed.
#[derive(Debug)]
pub struct Mutator {
    random: Random,
    dictionary: &'static [&'static str],
}

impl Mutator {
    /// A mutator of one seed.
    pub fn new(seed: u64, dictionary: &'static [&'static str]) -> Self {
        Self {
            random: Random::seeded(seed),
            dictionary,
        }
    }

    /// A mutation of one of `inputs`, which must not be empty.
    pub fn draw(&mut self, inputs: &[Vec<u8>]) -> Vec<u8> {
        let mut data = self.random.pick(inputs).clone();
        // Mostly few changes: of many, the first that breaks the input hides the others.
        let changes = 1 << self.below(4);
        for _ in 0..=self.below(changes) {
            self.change(&mut data, inputs);
        }
        data.truncate(MAX_LEN);
        data
    }

    fn change(&mut self, data: &mut Vec<u8>, inputs: &[Vec<u8>]) {
        let at = self.below(data.len() + 1);
        match self.below(9) {
            0 if at < data.len() => data[at] ^= 1 << self.below(8),
            1 if at < data.len() => data[at] = *self.random.pick(INTERESTING),
            2 => data.insert(at, *self.random.pick(INTERESTING)),
            3 => {
                let end = self.end(data, at);
                data.drain(at..end);
            }
            4 => {
                let end = self.end(data, at);
                let part = data[at..end].to_vec();
                let to = self.below(data.len() + 1);
                data.splice(to..to, part);
            }
            5 | 6 if !self.dictionary.is_empty() => {
                let word = self.random.pick(self.dictionary).as_bytes().to_vec();
                let end = if self.random.percent(50) {
                    at
                } else {
                    self.end(data, at)
                };
                data.splice(at..end, word);
            }
            7 => {
                let other = self.random.pick(inputs);
                let from = self.below(other.len() + 1);
                let end = self.end(other, from);
                data.splice(at..at, other[from..end].iter().copied());
            }
            _ => self.change_number(data),
        }
    }

    /// Replaces a run of digits by a number near a bound.
    fn change_number(&mut self, data: &mut Vec<u8>) {
        const BOUNDS: [u64; 8] = [0, 1, 127, 128, 65_535, 1 << 31, 1 << 63, u64::MAX];
        let digits: Vec<usize> = (0..data.len())
            .filter(|&at| data[at].is_ascii_digit())
            .collect();
        if digits.is_empty() {
            return;
        }
        let start = *self.random.pick(&digits);
        let run = data[start..].iter().take_while(|b| b.is_ascii_digit());
        let end = start + run.count();
        let near = self
            .random
            .pick(&BOUNDS)
            .wrapping_add(self.random.within(0..3));
        let number = near.wrapping_sub(1).to_string();
        data.splice(start..end, number.into_bytes());
    }

    /// Where a part that starts at `at` ends; short ones are likelier.
    fn end(&mut self, data: &[u8], at: usize) -> usize {
        let longest = 1 << self.below(9);
        (at + 1 + self.below(longest)).min(data.len())
    }

    fn below(&mut self, end: usize) -> usize {
        let drawn = self.random.within(0..end as u64);
        usize::try_from(drawn).unwrap_or(0)
    }
}
