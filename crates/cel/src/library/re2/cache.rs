//! Patterns that were compiled, so that equal ones are compiled once.
//!
//! A pattern that a program uses is found as long as the program lives; the last ones are kept for a while, because a policy is
//! compiled several times: when it is validated, for its status, and to judge by it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use super::Pattern;

/// How much memory may be kept for patterns that no program uses, in bytes.
const MOST_BYTES: u64 = 4 << 20;

/// The patterns that were compiled in this process.
pub(super) static COMPILED: LazyLock<PatternCache> =
    LazyLock::new(|| PatternCache::new(MOST_BYTES));

pub(super) struct PatternCache(Mutex<CachedPatterns>);

struct CachedPatterns {
    known: HashMap<Arc<str>, Weak<Pattern>>,
    /// The number of patterns at which those that no longer exist are forgotten.
    sweep_at: usize,
    /// The last patterns with their texts, the oldest first.
    recent: VecDeque<(Arc<str>, Arc<Pattern>)>,
    recent_bytes: u64,
    most_bytes: u64,
}

/// Fewer patterns are not worth looking for those that no longer exist.
const FEW: usize = 256;

impl PatternCache {
    /// Keeps patterns of `most_bytes` that nobody uses.
    fn new(most_bytes: u64) -> Self {
        Self(Mutex::new(CachedPatterns {
            known: HashMap::new(),
            sweep_at: FEW,
            recent: VecDeque::new(),
            recent_bytes: 0,
            most_bytes,
        }))
    }

    pub(super) fn get(&self, pattern: &str) -> Option<Arc<Pattern>> {
        self.lock().known.get(pattern)?.upgrade()
    }

    pub(super) fn insert(&self, text: &str, pattern: &Arc<Pattern>) {
        let dropped = self.lock().insert(text, pattern);
        // What is freed is freed without the lock.
        drop(dropped);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, CachedPatterns> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CachedPatterns {
    /// Returns what is no longer kept.
    fn insert(&mut self, text: &str, pattern: &Arc<Pattern>) -> Vec<Arc<Pattern>> {
        if self.known.len() >= self.sweep_at {
            self.known.retain(|_, known| known.strong_count() > 0);
            self.sweep_at = FEW.max(2 * self.known.len());
        }
        let text: Arc<str> = text.into();
        self.known
            .insert(Arc::clone(&text), Arc::downgrade(pattern));
        self.recent.push_back((text, Arc::clone(pattern)));
        self.recent_bytes = self.recent_bytes.saturating_add(pattern.takes.bytes);
        let mut dropped = Vec::new();
        while self.recent_bytes > self.most_bytes
            && let Some((text, oldest)) = self.recent.pop_front()
        {
            self.recent_bytes = self.recent_bytes.saturating_sub(oldest.takes.bytes);
            if Arc::strong_count(&oldest) == 1 {
                self.known.remove(&text);
            }
            dropped.push(oldest);
        }
        dropped
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::PatternPlan;
    use super::*;

    fn compiled(text: &str) -> Arc<Pattern> {
        let plan = PatternPlan::new(text, true, u64::MAX, &mut 0).unwrap();
        Arc::new(plan.build())
    }

    #[test]
    fn a_pattern_is_found_while_it_is_used_and_for_a_while_after() {
        let one = compiled("a+");
        let cache = PatternCache::new(3 * one.takes.bytes);
        cache.insert("a+", &one);
        let found = cache.get("a+").expect("it is used");
        assert!(Arc::ptr_eq(&found, &one));
        drop((found, one));
        assert!(cache.get("a+").is_some(), "it is kept");
        let used = compiled("b+");
        cache.insert("b+", &used);
        for text in ["c+", "d+", "e+"] {
            cache.insert(text, &compiled(text));
        }
        assert!(cache.get("a+").is_none(), "others took its place");
        assert!(cache.get("b+").is_some() && cache.get("e+").is_some());
    }

    #[test]
    fn patterns_that_no_longer_exist_are_forgotten() {
        let cache = PatternCache::new(0);
        for number in 0..10 * FEW {
            let text = format!("a{number}");
            let pattern = compiled(&text);
            cache.insert(&text, &pattern);
            assert!(cache.get(&text).is_some(), "it is used");
        }
        assert!(cache.lock().known.len() <= FEW);
        assert_eq!(cache.lock().recent.len(), 0);
        let one = compiled("a");
        let cache = PatternCache::new(one.takes.bytes);
        cache.insert("a", &one);
        drop(one);
        cache.insert("b", &compiled("b"));
        assert_eq!(cache.lock().known.len(), 1, "nobody has the first");
    }
}
