//! Searching a text with a machine: all ways to match go through the text together, in the order in which they are preferred.
//!
//! It looks at a character once, so the time is at most the length of the text times the size of the pattern, and the memory
//! some 30 bytes for each instruction. What is done is counted while it is done, so a search can be interrupted at any
//! character. As in Go, the match that begins first is found, and of those that begin there the one that is preferred.
//!
//! Source: Pike's machine, as in Go's `regexp/exec.go`.

use super::machine::{Instruction, InstructionId, PatternMachine};
use super::tree::Position;
use crate::value::{CelError, CelWork, work_of_bytes};

/// So many instructions that are looked at count as one step.
const LOOKS_PER_STEP: u64 = 2;

/// After so many, steps are taken from the budget.
const LOOKS_AT_ONCE: u64 = 512;

/// A way to match: where it is in the pattern, and where in the text it began.
#[derive(Clone, Copy, Debug)]
struct Way {
    at: InstructionId,
    began: usize,
}

/// The searches of one text.
pub(super) struct MachineSearch<'p, 't> {
    machine: &'p PatternMachine,
    text: &'t str,
    /// For each instruction, the last generation in which it was looked at.
    seen: Vec<u32>,
    /// Grows with each character.
    generation: u32,
    now: Vec<Way>,
    next: Vec<Way>,
    /// What is to be looked at.
    pending: Vec<InstructionId>,
    /// Instructions that were looked at and are not taken from the budget yet.
    looks: u64,
}

/// The characters beside a position of the text.
#[derive(Clone, Copy)]
struct Place {
    at: usize,
    before: Option<char>,
    after: Option<char>,
}

impl<'p, 't> MachineSearch<'p, 't> {
    /// # Errors
    ///
    /// When the work is used up.
    pub(super) fn new(
        machine: &'p PatternMachine,
        text: &'t str,
        work: &mut CelWork<'_>,
    ) -> Result<Self, CelError> {
        let size = machine.instructions.len();
        work.burn(work_of_bytes(4 * size))?;
        Ok(Self {
            machine,
            text,
            seen: vec![0; size],
            generation: 0,
            now: Vec::new(),
            next: Vec::new(),
            pending: Vec::new(),
            looks: 0,
        })
    }

    /// The start and the end of the first match at or after `from`, in bytes. If `any` is set, the end is that of any match.
    ///
    /// # Errors
    ///
    /// When the work is used up, or interrupted.
    pub(super) fn find(
        &mut self,
        from: usize,
        any: bool,
        work: &mut CelWork<'_>,
    ) -> Result<Option<(usize, usize)>, CelError> {
        let mut rest = self.text[from..].chars();
        let mut place = Place {
            at: from,
            before: self.text[..from].chars().next_back(),
            after: rest.clone().next(),
        };
        let mut found = None;
        self.now.clear();
        self.next_generation();
        loop {
            // The leftmost match counts: no other way begins once there is one.
            let may_begin = found.is_none() && (place.at == 0 || !self.machine.anchored);
            if may_begin {
                let (at, began) = (self.machine.start, place.at);
                self.follow(Way { at, began }, place, false, work)?;
            } else if self.now.is_empty() {
                break;
            }
            let taken = rest.next();
            let after = Place {
                at: self.text.len() - rest.as_str().len(),
                before: taken,
                after: rest.clone().next(),
            };
            self.next_generation();
            found = self.advance(place, after, work)?.or(found);
            if (any && found.is_some()) || taken.is_none() {
                break;
            }
            place = after;
            std::mem::swap(&mut self.now, &mut self.next);
        }
        self.pay(work)?;
        Ok(found)
    }

    /// Moves all ways from `place` over a character to `after`. A match ends those that are less preferred.
    fn advance(
        &mut self,
        place: Place,
        after: Place,
        work: &mut CelWork<'_>,
    ) -> Result<Option<(usize, usize)>, CelError> {
        self.next.clear();
        let now = std::mem::take(&mut self.now);
        let mut found = None;
        for way in &now {
            self.look(work)?;
            let (takes, at) = match self.machine.instructions[way.at as usize] {
                Instruction::Match => {
                    found = Some((way.began, place.at));
                    break;
                }
                Instruction::Char(character, next) => (place.after == Some(character), next),
                Instruction::Set(set, next) => {
                    let set = &self.machine.sets[set as usize];
                    (place.after.is_some_and(|one| set.contains(one)), next)
                }
                // These are followed, and wait for no character.
                Instruction::At(_, next) | Instruction::Both(next, _) => (false, next),
            };
            if takes {
                let began = way.began;
                self.follow(Way { at, began }, after, true, work)?;
            }
        }
        self.now = now;
        Ok(found)
    }

    /// Adds the ways that continue with the instruction of `way` without a character, to those of the next character if
    /// `is_next`, and otherwise to those of this one.
    fn follow(
        &mut self,
        way: Way,
        place: Place,
        is_next: bool,
        work: &mut CelWork<'_>,
    ) -> Result<(), CelError> {
        self.pending.push(way.at);
        while let Some(at) = self.pending.pop() {
            let seen = &mut self.seen[at as usize];
            // A way that is preferred to this one came here first.
            if *seen == self.generation {
                continue;
            }
            *seen = self.generation;
            self.look(work)?;
            match self.machine.instructions[at as usize] {
                Instruction::Both(first, second) => {
                    // A stack, so the preferred one is followed first.
                    self.pending.push(second);
                    self.pending.push(first);
                }
                Instruction::At(position, next) => {
                    if place.is(position) {
                        self.pending.push(next);
                    }
                }
                Instruction::Match | Instruction::Char(..) | Instruction::Set(..) => {
                    let list = if is_next {
                        &mut self.next
                    } else {
                        &mut self.now
                    };
                    list.push(Way { at, ..way });
                }
            }
        }
        Ok(())
    }

    fn next_generation(&mut self) {
        if self.generation == u32::MAX {
            self.seen.fill(0);
            self.generation = 0;
        }
        self.generation += 1;
    }

    /// Counts an instruction that is looked at.
    #[inline]
    fn look(&mut self, work: &mut CelWork<'_>) -> Result<(), CelError> {
        self.looks += 1;
        if self.looks < LOOKS_AT_ONCE {
            return Ok(());
        }
        self.pay(work)
    }

    fn pay(&mut self, work: &mut CelWork<'_>) -> Result<(), CelError> {
        let steps = self.looks.div_ceil(LOOKS_PER_STEP);
        self.looks = 0;
        work.burn(steps)
    }
}

impl Place {
    fn is(self, position: Position) -> bool {
        match position {
            Position::TextStart => self.before.is_none(),
            Position::TextEnd => self.after.is_none(),
            Position::LineStart => self.before.is_none_or(|before| before == '\n'),
            Position::LineEnd => self.after.is_none_or(|after| after == '\n'),
            Position::WordBoundary => self.is_boundary(),
            Position::NoWordBoundary => !self.is_boundary(),
        }
    }

    fn is_boundary(self) -> bool {
        let is_word = |character: Option<char>| {
            character.is_some_and(|one| one == '_' || one.is_ascii_alphanumeric())
        };
        is_word(self.before) != is_word(self.after)
    }
}
