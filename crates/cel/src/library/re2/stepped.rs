//! Searching a long text with a small pattern, in pieces between which the search can be interrupted.
//!
//! The crate that searches with small patterns searches all of a text at once. So where that may take long, its lazy automata
//! are driven from here, a byte at a time. One reads the text from the front and finds the end of the first match, the other one
//! reads back from there and finds its start. What is read is counted, for each search of a text: patterns that look at all of the
//! rest of a text for each match take steps for it each time.
//!
//! Automata that grow too large are given up for a machine of our own. A text that is too short to make automata for it is searched
//! by a machine, too.

use std::ops::Range;

use regex_automata::{
    Anchored, Input, MatchError, MatchKind,
    hybrid::{
        CacheError, LazyStateID,
        dfa::{Cache, DFA},
    },
    nfa::thompson::{self, WhichCaptures},
};

use super::{machine::PatternMachine, search::MachineSearch, small, tree::PatternTree};
use crate::value::{CelError, CelWork};

/// How many pairs of a byte and an atom count as one step. A match is read twice.
const MEETINGS_PER_STEP: u64 = 2 * super::MEETINGS_PER_STEP;

/// How many pairs are read between two looks at the budget, at least.
const MEETINGS_AT_ONCE: u64 = super::MEETINGS_AT_ONCE;

/// The memory of an automaton, in bytes. Once it has been used up several times, and a state was hardly used, the automaton is given up.
const CACHE_BYTES: usize = 1 << 20;
const MAX_CLEARED: usize = 3;
const MIN_BYTES_PER_STATE: usize = 10;

/// The searches of one text.
pub(super) struct SteppedSearch<'p, 't> {
    tree: &'p PatternTree,
    text: &'t str,
    /// `None` once they are given up.
    automata: Option<SearchAutomata>,
    /// Made when it is needed.
    machine: Option<PatternMachine>,
    read: ReadBytes,
}

/// The automata of a pattern.
struct SearchAutomata {
    forward: LazyAutomaton,
    /// Made when a start is asked for.
    backward: Option<LazyAutomaton>,
}

/// An automaton whose states are made when they are reached.
struct LazyAutomaton {
    dfa: DFA,
    cache: Cache,
    is_backward: bool,
}

/// What has been read and is not taken from the budget.
struct ReadBytes {
    atoms: u64,
    /// In pairs of a byte and an atom.
    meetings: u64,
}

/// Why a search ends without a result.
enum Stop {
    /// The automaton is given up.
    TooLarge,
    Ended(CelError),
}

impl From<CelError> for Stop {
    fn from(error: CelError) -> Self {
        Self::Ended(error)
    }
}

impl From<CacheError> for Stop {
    fn from(_: CacheError) -> Self {
        Self::TooLarge
    }
}

impl From<MatchError> for Stop {
    fn from(_: MatchError) -> Self {
        Self::TooLarge
    }
}

/// The steps of making the automata of a pattern.
pub(super) fn steps(tree: &PatternTree) -> u64 {
    small::steps(tree.size).saturating_mul(2)
}

impl<'p, 't> SteppedSearch<'p, 't> {
    /// Searches `text` with a pattern of so many atoms; with automata if `is_long`.
    ///
    /// # Errors
    ///
    /// When the work is used up.
    pub(super) fn new(
        tree: &'p PatternTree,
        atoms: u64,
        text: &'t str,
        is_long: bool,
        work: &mut CelWork<'_>,
    ) -> Result<Self, CelError> {
        let mut automata = None;
        if is_long {
            work.burn(steps(tree))?;
            automata = LazyAutomaton::new(tree, false).map(|forward| SearchAutomata {
                forward,
                backward: None,
            });
        }
        let meetings = 0;
        Ok(Self {
            tree,
            text,
            automata,
            machine: None,
            read: ReadBytes { atoms, meetings },
        })
    }

    /// The start and the end of the first match at or after `from`, in bytes. If `any` is set, they are those of any match.
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
        if let Some(automata) = &mut self.automata {
            match automata.find(self.tree, self.text, from, any, &mut self.read, work) {
                Ok(found) => return Ok(found),
                Err(Stop::Ended(error)) => return Err(error),
                Err(Stop::TooLarge) => self.automata = None,
            }
        }
        let tree = self.tree;
        let machine = self
            .machine
            .get_or_insert_with(|| PatternMachine::new(tree));
        MachineSearch::new(machine, self.text, work)?.find(from, any, work)
    }
}

#[cfg(test)]
impl SteppedSearch<'_, '_> {
    /// Whether the automata grew too large.
    pub(super) fn is_given_up(&self) -> bool {
        self.automata.is_none()
    }
}

impl SearchAutomata {
    fn find(
        &mut self,
        tree: &PatternTree,
        text: &str,
        mut from: usize,
        any: bool,
        read: &mut ReadBytes,
        work: &mut CelWork<'_>,
    ) -> Result<Option<(usize, usize)>, Stop> {
        // Where the first end may be within a character, a longer match may have begun before.
        let stops = any && !tree.is_nullable(tree.root);
        let end = loop {
            let Some(end) = self
                .forward
                .run(text, from..text.len(), stops, read, work)?
            else {
                return Ok(None);
            };
            if text.is_char_boundary(end) {
                break end;
            }
            // Bytes within a character match nothing, but there is an empty text between them. No match begins before it.
            from = end + 1;
        };
        if any {
            return Ok(Some((end, end)));
        }
        if self.backward.is_none() {
            self.backward = LazyAutomaton::new(tree, true);
        }
        let backward = self.backward.as_mut().ok_or(Stop::TooLarge)?;
        let start = backward.run(text, from..end, false, read, work)?;
        Ok(Some((start.unwrap_or(end), end)))
    }
}

impl LazyAutomaton {
    /// An automaton that finds ends of matches, or starts of those that end where it begins.
    fn new(tree: &PatternTree, is_backward: bool) -> Option<Self> {
        let config = thompson::Config::new()
            .reverse(is_backward)
            .which_captures(WhichCaptures::None)
            .nfa_size_limit(Some(small::MAX_BYTES));
        let mut compiler = thompson::Compiler::new();
        let nfa = compiler
            .configure(config)
            .build_from_hir(&small::hir(tree, tree.root));
        let kind = if is_backward {
            // The longest of them is the one that begins first.
            MatchKind::All
        } else {
            MatchKind::LeftmostFirst
        };
        let config = DFA::config()
            .match_kind(kind)
            .cache_capacity(CACHE_BYTES)
            .skip_cache_capacity_check(true)
            .minimum_cache_clear_count(Some(MAX_CLEARED))
            .minimum_bytes_per_state(Some(MIN_BYTES_PER_STATE));
        let dfa = DFA::builder().configure(config).build_from_nfa(nfa.ok()?);
        let dfa = dfa.ok()?;
        let cache = dfa.create_cache();
        Some(Self {
            dfa,
            cache,
            is_backward,
        })
    }

    /// The last match of the one that is found, or `any`, in a span of the text: its end, or its start if the automaton reads
    /// backward.
    fn run(
        &mut self,
        text: &str,
        span: Range<usize>,
        any: bool,
        read: &mut ReadBytes,
        work: &mut CelWork<'_>,
    ) -> Result<Option<usize>, Stop> {
        let Self {
            dfa,
            cache,
            is_backward,
        } = self;
        let bytes = text.as_bytes();
        let input = Input::new(text).span(span.clone());
        let mut state = if *is_backward {
            dfa.start_state_reverse(cache, &input.anchored(Anchored::Yes))?
        } else {
            dfa.start_state_forward(cache, &input)?
        };
        let mut found = None;
        let mut done = 0;
        // Positions are told as those of a search forward: only their distances count.
        cache.search_start(0);
        while done < span.len() {
            let before = done;
            let piece = done..span.len().min(done + read.piece());
            let mut is_end = false;
            for number in piece {
                let at = if *is_backward {
                    span.end - 1 - number
                } else {
                    span.start + number
                };
                state = dfa.next_state(cache, state, bytes[at])?;
                done = number + 1;
                if state.is_tagged() {
                    // A state says whether there was a match before the byte that led to it.
                    if state.is_match() {
                        found = Some(if *is_backward { at + 1 } else { at });
                        is_end = any;
                    } else {
                        is_end = state.is_dead() || state.is_quit();
                    }
                    if is_end {
                        break;
                    }
                }
            }
            cache.search_update(done);
            read.count(done - before, work)?;
            if is_end {
                cache.search_finish(done);
                return if state.is_quit() {
                    Err(Stop::TooLarge)
                } else {
                    Ok(found)
                };
            }
        }
        cache.search_finish(done);
        let is_match = self.matches_at_end(bytes, &span, state)?;
        let end = if self.is_backward {
            span.start
        } else {
            span.end
        };
        Ok(is_match.then_some(end).or(found))
    }

    /// Whether there is a match at the end of a span, which the byte after it tells.
    fn matches_at_end(
        &mut self,
        bytes: &[u8],
        span: &Range<usize>,
        state: LazyStateID,
    ) -> Result<bool, CacheError> {
        let beside = if self.is_backward {
            span.start.checked_sub(1)
        } else {
            Some(span.end)
        };
        let Self { dfa, cache, .. } = self;
        let state = match beside.and_then(|at| bytes.get(at)) {
            Some(&byte) => dfa.next_state(cache, state, byte)?,
            None => dfa.next_eoi_state(cache, state)?,
        };
        Ok(state.is_match())
    }
}

impl ReadBytes {
    /// How many bytes may be read before they are counted; at least one.
    fn piece(&self) -> usize {
        let left = MEETINGS_AT_ONCE.saturating_sub(self.meetings) / self.atoms.max(1);
        usize::try_from(left).unwrap_or(usize::MAX).max(1)
    }

    /// Counts bytes that were read.
    fn count(&mut self, bytes: usize, work: &mut CelWork<'_>) -> Result<(), CelError> {
        let meetings = self.atoms.saturating_mul(bytes as u64);
        self.meetings = self.meetings.saturating_add(meetings);
        if self.meetings < MEETINGS_AT_ONCE {
            return Ok(());
        }
        let steps = self.meetings / MEETINGS_PER_STEP;
        self.meetings %= MEETINGS_PER_STEP;
        work.burn(steps)
    }
}
