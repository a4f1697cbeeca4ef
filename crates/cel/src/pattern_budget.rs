//! What the constant patterns of expressions may take: steps while they are compiled, and bytes afterwards.
//!
//! Both are counted from the pattern alone, not measured, so that an expression that compiles does so everywhere, whatever was
//! compiled before. An equal pattern counts once in a budget, because equal patterns are compiled once. A pattern that only
//! evaluation knows takes steps of its evaluation instead ([`CelWork`](crate::CelWork)).

use std::collections::HashSet;

use crate::value::CelError;

/// How much patterns may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatternLimit {
    /// Of what there is a limit, for messages: `the expression`.
    pub of: &'static str,
    /// Steps of some 10 ns: about one for each character and for each range of characters of a class, and two for each
    /// instruction that a pattern becomes once its counts are written out.
    pub steps: u64,
    /// The memory of the compiled patterns, in bytes.
    pub bytes: u64,
}

impl PatternLimit {
    /// What the patterns of one expression may take: some 10 ms.
    pub const EXPRESSION: Self = Self {
        of: "the expression",
        steps: 1_000_000,
        bytes: 8 << 20,
    };
}

/// What the patterns of some expressions may still take.
#[derive(Debug)]
pub struct PatternBudget {
    /// Limits within limits, the outermost first, and what is left of each.
    limits: Vec<(PatternLimit, PatternUse)>,
    /// The patterns that were counted.
    counted: HashSet<Box<str>>,
    is_exceeded: bool,
}

/// What patterns have taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PatternUse {
    /// See [`PatternLimit::steps`].
    pub steps: u64,
    /// See [`PatternLimit::bytes`].
    pub bytes: u64,
}

impl PatternBudget {
    /// A budget that nothing was taken from.
    pub fn new(limit: PatternLimit) -> Self {
        Self {
            limits: vec![(limit, PatternUse::default())],
            counted: HashSet::new(),
            is_exceeded: false,
        }
    }

    /// Does something that may take no more than `limit` and what is left.
    pub fn within<T>(&mut self, limit: PatternLimit, work: impl FnOnce(&mut Self) -> T) -> T {
        self.limits.push((limit, PatternUse::default()));
        let done = work(self);
        self.limits.pop();
        done
    }

    /// What was taken in all.
    pub fn used(&self) -> PatternUse {
        self.limits
            .first()
            .map_or_else(PatternUse::default, |(_, used)| *used)
    }

    /// Whether a pattern took more than was left.
    pub fn is_exceeded(&self) -> bool {
        self.is_exceeded
    }

    /// The steps that are left.
    pub(crate) fn steps_left(&self) -> u64 {
        let left =
            |(limit, used): &(PatternLimit, PatternUse)| limit.steps.saturating_sub(used.steps);
        self.limits.iter().map(left).min().unwrap_or_default()
    }

    /// Counts a pattern, unless an equal one was counted.
    ///
    /// # Errors
    ///
    /// When a limit is exceeded; it is counted nevertheless, because it was looked at.
    pub(crate) fn take(&mut self, pattern: &str, taken: PatternUse) -> Result<(), CelError> {
        if self.counted.contains(pattern) {
            return Ok(());
        }
        let mut exceeded = None;
        for (limit, used) in &mut self.limits {
            used.steps = used.steps.saturating_add(taken.steps);
            used.bytes = used.bytes.saturating_add(taken.bytes);
            if used.steps > limit.steps {
                exceeded = Some((limit.of, limit.steps, "steps to compile"));
            } else if used.bytes > limit.bytes {
                exceeded = Some((limit.of, limit.bytes, "bytes"));
            }
        }
        let Some((of, most, unit)) = exceeded else {
            self.counted.insert(pattern.into());
            return Ok(());
        };
        self.is_exceeded = true;
        let text = format!("patterns too large: those of {of} take more than {most} {unit}");
        Err(CelError::own_limit(text))
    }
}
