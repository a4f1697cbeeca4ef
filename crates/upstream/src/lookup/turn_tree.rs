//! Work of payers, each of which is a path in a tree, such as network, address, connection.
//!
//! At each branch those below it take turns ([`TurnQueue`]), and every other turn is for a *newcomer*, one that has never had a turn,
//! if there is any: the one that came last. So whoever comes for the first time waits for two turns at most for each newcomer
//! after it, and not for all those who have had their turns. Since that is only every other turn, an endless row of newcomers takes
//! at most half of the turns from those who have waited.
//!
//! Who has had a turn is remembered for the last 32 768 names at least.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
};

use fairgate_core::turn_queue::TurnQueue;

/// How many names a generation of those that have had turns has.
const REMEMBERED: usize = 32_768;

/// Work that waits, and who has had turns.
#[derive(Debug)]
pub(crate) struct TurnTree<T> {
    root: Branch<T>,
    served: ServedNames,
}

/// A name that waits for a turn.
#[derive(Debug)]
struct NameTurn {
    name: Arc<str>,
    /// Identifies the path up to the name.
    path: u64,
}

#[derive(Debug)]
struct Branch<T> {
    /// An entry for each work below.
    turns: TurnQueue<NameTurn>,
    /// Those of them who have never had a turn; who came last is last.
    newcomers: Vec<Arc<str>>,
    newcomer_is_next: bool,
    below: HashMap<Arc<str>, Branch<T>>,
    /// The work of a path that ends here.
    work: VecDeque<T>,
}

/// The paths of names that have had a turn, in two generations.
#[derive(Debug, Default)]
struct ServedNames {
    hashes: RandomState,
    young: HashSet<u64>,
    old: HashSet<u64>,
}

impl<T> TurnTree<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.root.is_empty()
    }

    /// Adds work of a payer behind its other work.
    pub(crate) fn push(&mut self, path: &[Arc<str>], what: T) {
        self.root.push(path, 0, what, &self.served);
    }

    /// Makes room for a payer: gives up the last work of whoever has most below the first `depth` names of its path, where that is
    /// at least two more than the payer itself has there.
    pub(crate) fn give_up_for(&mut self, path: &[Arc<str>], depth: usize) -> Option<T> {
        let (above, below) = path.split_at(depth);
        let node = above
            .iter()
            .try_fold(&self.root, |node, name| node.below.get(name))?;
        let victim = node.who_has_most_beside(below)?;
        let path: Vec<_> = above.iter().cloned().chain(victim).collect();
        self.root.remove(&path, &|_| true)
    }

    /// Takes the last work of a payer of which `is_it` says so, if it waits. Costs O(work of the payer).
    pub(crate) fn remove(&mut self, path: &[Arc<str>], is_it: impl Fn(&T) -> bool) -> Option<T> {
        let mut names = path.iter();
        let node = names.try_fold(&self.root, |node, name| node.below.get(name))?;
        if !node.work.iter().any(&is_it) {
            return None;
        }
        self.root.remove(path, &is_it)
    }

    /// Takes the work whose turn it is.
    pub(crate) fn pop(&mut self) -> Option<T> {
        self.root.pop(&mut self.served)
    }
}

impl<T> Branch<T> {
    fn is_empty(&self) -> bool {
        self.turns.is_empty() && self.work.is_empty()
    }

    fn push(&mut self, path: &[Arc<str>], depth: usize, what: T, served: &ServedNames) {
        let Some(name) = path.get(depth) else {
            self.work.push_back(what);
            return;
        };
        // Of the whole path: the same name below another branch is another payer.
        let hash = served.hashes.hash_one(&path[..=depth]);
        if self.turns.len_of(name) == 0 && !served.contains(hash) {
            self.newcomers.push(Arc::clone(name));
        }
        let turn = NameTurn {
            name: Arc::clone(name),
            path: hash,
        };
        self.turns.push(name, 1, turn);
        let below = self.below.entry(Arc::clone(name)).or_default();
        below.push(path, depth + 1, what, served);
    }

    fn pop(&mut self, served: &mut ServedNames) -> Option<T> {
        if self.turns.is_empty() {
            return self.work.pop_front();
        }
        let newcomer = self.newcomers.last().filter(|_| self.newcomer_is_next);
        let turn = match newcomer {
            Some(newcomer) => self.turns.pop_if(|turn| turn.name == *newcomer),
            None => self.turns.pop(),
        };
        let NameTurn { name, path } = turn?;
        self.newcomer_is_next = !self.newcomer_is_next;
        if let Some(at) = self
            .newcomers
            .iter()
            .rposition(|newcomer| *newcomer == name)
        {
            self.newcomers.remove(at);
        }
        served.insert(path);
        let below = self.below.get_mut(&name)?;
        let what = below.pop(served);
        if below.is_empty() {
            self.below.remove(&name);
        }
        what
    }
}

impl<T> Branch<T> {
    /// The path of whoever has most below here, if that is another one than the payer on `path` with at least two more.
    fn who_has_most_beside(&self, path: &[Arc<str>]) -> Option<Vec<Arc<str>>> {
        let (own, rest) = path.split_first()?;
        let name = self.who_has_most()?;
        let below = self.below.get(name)?;
        let mut victim = vec![Arc::clone(name)];
        if name == own {
            victim.extend(below.who_has_most_beside(rest)?);
            return Some(victim);
        }
        // With one more they would only change places, and could go on to do so for ever.
        if self.turns.len_of(name) < self.turns.len_of(own) + 2 {
            return None;
        }
        let mut node = below;
        while let Some(name) = node.who_has_most() {
            victim.push(Arc::clone(name));
            node = node.below.get(name)?;
        }
        Some(victim)
    }

    fn who_has_most(&self) -> Option<&Arc<str>> {
        let names = self.below.keys();
        names.max_by_key(|name| self.turns.len_of(name))
    }

    fn remove(&mut self, path: &[Arc<str>], is_it: &dyn Fn(&T) -> bool) -> Option<T> {
        let Some((name, rest)) = path.split_first() else {
            let at = self.work.iter().rposition(is_it)?;
            return self.work.remove(at);
        };
        // All turns of a name are alike.
        self.turns.remove_last_of(name)?;
        if self.turns.len_of(name) == 0 {
            self.newcomers.retain(|newcomer| newcomer != name);
        }
        let below = self.below.get_mut(name)?;
        let what = below.remove(rest, is_it);
        if below.is_empty() {
            self.below.remove(name);
        }
        what
    }
}

impl ServedNames {
    fn contains(&self, path: u64) -> bool {
        self.young.contains(&path) || self.old.contains(&path)
    }

    fn insert(&mut self, path: u64) {
        if self.young.insert(path) && self.young.len() >= REMEMBERED {
            // Forgetting in generations needs no time or order for each name.
            self.old = std::mem::take(&mut self.young);
        }
    }
}

impl<T> Default for TurnTree<T> {
    fn default() -> Self {
        Self {
            root: Branch::default(),
            served: ServedNames::default(),
        }
    }
}

impl<T> Default for Branch<T> {
    fn default() -> Self {
        Self {
            turns: TurnQueue::default(),
            newcomers: Vec::new(),
            newcomer_is_next: false,
            below: HashMap::new(),
            work: VecDeque::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Vec<Arc<str>> {
        text.split('/').map(Arc::from).collect()
    }

    /// A tree in which each of these has had a turn and has more work.
    fn busy(names: impl Iterator<Item = String> + Clone) -> TurnTree<String> {
        let mut tree = TurnTree::default();
        for _ in 0..4 {
            for name in names.clone() {
                tree.push(&path(&name), name);
            }
        }
        for _ in names {
            tree.pop();
        }
        tree
    }

    fn before(tree: &mut TurnTree<String>, name: &str) -> usize {
        let mut popped = std::iter::from_fn(|| tree.pop());
        popped.position(|other| other == name).unwrap()
    }

    #[test]
    fn a_newcomer_is_next_or_next_but_one_at_any_depth() {
        let addresses = (0..300).map(|number| format!("n{}/a{number}/c", number % 3));
        for newcomer in ["new/a/c", "n1/new/c"] {
            let mut tree = busy(addresses.clone());
            tree.push(&path(newcomer), newcomer.to_owned());
            // Of three networks that one has a third of the turns, and every other one of these is for a newcomer.
            let most = if newcomer.starts_with("new") { 1 } else { 6 };
            let before = before(&mut tree, newcomer);
            assert!(before <= most, "{newcomer}: {before}");
        }
        let connections = (0..50).map(|number| format!("n/a/c{number}"));
        let mut tree = busy(connections);
        tree.push(&path("n/a/new"), "n/a/new".to_owned());
        assert!(before(&mut tree, "n/a/new") <= 1);
    }

    #[test]
    fn newcomers_take_at_most_half_of_the_turns() {
        let mut tree = busy((0..10).map(|number| format!("n/a{number}/c")));
        let mut others = 0;
        for number in 0..20 {
            for _ in 0..3 {
                let name = format!("n/new{number}/c");
                tree.push(&path(&name), name.clone());
            }
            let popped = tree.pop().unwrap();
            others += usize::from(!popped.contains("new"));
        }
        // In one of the turns in order it is a newcomer that has waited.
        assert_eq!(others, 9);
    }

    #[test]
    fn room_is_made_by_whoever_has_most() {
        let mut tree = TurnTree::default();
        for name in ["n/a/1", "n/a/2", "n/b/1", "m/a/1", "n/a/2", "n/a/2"] {
            tree.push(&path(name), name);
        }
        let mut for_payer = |name, depth| tree.give_up_for(&path(name), depth);
        assert_eq!(for_payer("n/a/2", 2), None, "nobody has more there");
        assert_eq!(for_payer("n/a/1", 2), Some("n/a/2"));
        assert_eq!(for_payer("n/a/1", 2), None, "one has just one more");
        assert_eq!(for_payer("n/b/2", 1), Some("n/a/2"));
        assert_eq!(for_payer("x/y/z", 3), None, "there is no such node");
        let given_up = for_payer("x/y/z", 0);
        assert!(given_up.is_some_and(|name| name.starts_with("n/a/")));
        assert_eq!(tree.root.turns.len(), 3);
        assert_eq!(std::iter::from_fn(|| tree.pop()).count(), 3);
        assert!(tree.is_empty() && tree.root.below.is_empty() && tree.root.newcomers.is_empty());
    }

    #[test]
    fn work_that_is_taken_away_leaves_nothing_behind() {
        let mut tree = TurnTree::default();
        for (number, name) in ["n/a/1", "n/a/1", "n/a/1", "n/b/1"].iter().enumerate() {
            tree.push(&path(name), number);
        }
        let mut take = |name, number| tree.remove(&path(name), |one| *one == number);
        assert_eq!(take("n/a/1", 1), Some(1));
        assert_eq!(take("n/a/1", 1), None, "it waits no more");
        assert_eq!(take("n/b/1", 0), None, "it is another payer's");
        assert_eq!(take("x/y/z", 0), None);
        assert_eq!(take("n/b/1", 3), Some(3));
        assert_eq!(tree.root.turns.len(), 2);
        assert_eq!(
            (tree.pop(), tree.pop(), tree.pop()),
            (Some(0), Some(2), None)
        );
        assert!(tree.is_empty() && tree.root.below.is_empty() && tree.root.newcomers.is_empty());
    }

    #[test]
    fn who_has_had_a_turn_is_no_newcomer_again() {
        let mut tree = busy((0..10).map(|number| format!("n/a{number}/c")));
        tree.push(&path("n/x/c"), "x".to_owned());
        assert!(before_once(&mut tree, "x") <= 1);
        tree.push(&path("n/x/c"), "x".to_owned());
        let again = before_once(&mut tree, "x");
        assert!((5..=11).contains(&again), "{again}");
    }

    fn before_once(tree: &mut TurnTree<String>, name: &str) -> usize {
        for number in 0.. {
            let popped = tree.pop().unwrap();
            if popped == name {
                return number;
            }
            // Whoever has had a turn goes on.
            tree.push(&path(&popped), popped);
        }
        unreachable!("the loop ends with a turn")
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut tree = TurnTree::default();
        for number in 0..3 * REMEMBERED {
            tree.push(&path(&format!("n/a/c{number}")), number);
            assert_eq!(tree.pop(), Some(number));
        }
        assert!(tree.is_empty() && tree.root.below.is_empty() && tree.root.newcomers.is_empty());
        assert!(tree.served.young.len() + tree.served.old.len() <= 2 * REMEMBERED);
    }
}
