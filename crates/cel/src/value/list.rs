//! Lists: of a document, of a program, or created by an expression.

use std::sync::Arc;

use super::{CelError, CelValue, CelWork, ValueSize};
use crate::document::CelJson;

/// A joined list of at most this length is copied. Longer ones refer to the two lists that were joined.
const COPIED_UP_TO: usize = 256;

/// The maximum depth of joined lists that refer to joined lists. Beyond it, the elements are copied.
const MAX_JOINS: u32 = 64;

/// A list. Cloning it is cheap.
#[derive(Clone, Debug)]
pub struct CelList<'a>(ListKind<'a>);

#[derive(Clone, Debug)]
enum ListKind<'a> {
    Json(&'a [CelJson<'a>]),
    Borrowed(&'a ListData<'a>),
    Shared(Arc<ListData<'a>>),
    Joined(Arc<JoinedLists<'a>>),
}

#[derive(Debug)]
struct ListData<'a> {
    values: Vec<CelValue<'a>>,
    size: ValueSize,
    is_joined: bool,
}

#[derive(Debug)]
struct JoinedLists<'a> {
    first: CelList<'a>,
    second: CelList<'a>,
    len: usize,
    joins: u32,
    size: ValueSize,
}

impl<'a> CelList<'a> {
    /// A list of `values`.
    ///
    /// # Errors
    ///
    /// If the list would nest deeper than [`MAX_DEPTH`](super::MAX_DEPTH) or have more than
    /// [`MAX_NODES`](super::MAX_NODES) parts.
    pub fn new(values: Vec<CelValue<'a>>) -> Result<Self, CelError> {
        Self::of_values(values, false)
    }

    fn of_values(values: Vec<CelValue<'a>>, is_joined: bool) -> Result<Self, CelError> {
        let size = ValueSize::of(&values).check()?;
        Ok(Self(ListKind::Shared(Arc::new(ListData {
            values,
            size,
            is_joined,
        }))))
    }

    /// Whether `+` made the list of two that are not empty.
    pub(crate) fn is_joined(&self) -> bool {
        match &self.0 {
            ListKind::Json(_) => false,
            ListKind::Borrowed(data) => data.is_joined,
            ListKind::Shared(data) => data.is_joined,
            ListKind::Joined(_) => true,
        }
    }

    /// Whether both are one list in memory.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let address = |list: &Self| match &list.0 {
            ListKind::Json(_) => None,
            ListKind::Borrowed(data) => Some(std::ptr::from_ref::<ListData<'_>>(data).cast::<()>()),
            ListKind::Shared(data) => Some(Arc::as_ptr(data).cast::<()>()),
            ListKind::Joined(data) => Some(Arc::as_ptr(data).cast::<()>()),
        };
        address(self).is_some_and(|one| address(other) == Some(one))
    }

    /// The elements of a JSON array.
    #[inline]
    pub fn json(elements: &'a [CelJson<'a>]) -> Self {
        Self(ListKind::Json(elements))
    }

    /// The elements, if the list is a JSON array.
    #[inline]
    pub(crate) fn as_json(&self) -> Option<&'a [CelJson<'a>]> {
        match &self.0 {
            ListKind::Json(elements) => Some(elements),
            ListKind::Borrowed(_) | ListKind::Shared(_) | ListKind::Joined(_) => None,
        }
    }

    /// The number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        match &self.0 {
            ListKind::Json(elements) => elements.len(),
            ListKind::Borrowed(data) => data.values.len(),
            ListKind::Shared(data) => data.values.len(),
            ListKind::Joined(joined) => joined.len,
        }
    }

    /// Whether the list has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element at `index`, from 0.
    pub fn get(&self, index: usize) -> Option<CelValue<'a>> {
        let (leaf, start) = self.leaf_at(index);
        match leaf {
            LeafElements::Json(elements) => elements.get(index - start).map(CelValue::json),
            LeafElements::Values(values) => values.get(index - start).cloned(),
        }
    }

    /// The list that is not joined with the element at `index`, and the index of its first element; the last such list
    /// for indexes after the end.
    fn leaf_at(&self, index: usize) -> (LeafElements<'_, 'a>, usize) {
        let (mut list, mut start) = (self, 0);
        loop {
            let joined = match &list.0 {
                ListKind::Json(elements) => return (LeafElements::Json(elements), start),
                ListKind::Borrowed(data) => return (LeafElements::Values(&data.values), start),
                ListKind::Shared(data) => return (LeafElements::Values(&data.values), start),
                ListKind::Joined(joined) => joined,
            };
            let first = joined.first.len();
            if index - start < first {
                list = &joined.first;
            } else {
                start += first;
                list = &joined.second;
            }
        }
    }

    /// The elements in order.
    pub fn iter(&self) -> CelListIter<'_, 'a> {
        let (leaf, start) = self.leaf_at(0);
        CelListIter {
            list: self,
            at: 0,
            leaf,
            start,
        }
    }

    /// The elements of this list followed by those of `other`. The result may share the memory of both.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new), and when copying takes more than `work` allows.
    pub(crate) fn join(&self, other: &Self, work: &mut CelWork<'_>) -> Result<Self, CelError> {
        if self.is_empty() {
            return Ok(other.clone());
        }
        if other.is_empty() {
            return Ok(self.clone());
        }
        let mut size = self.size();
        size.add(other.size());
        let size = size.check()?;
        let len = self.len().saturating_add(other.len());
        let joins = self.joins().max(other.joins()) + 1;
        // Bounded: dropping a list drops those that it refers to, one within the other, on the stack.
        if len <= COPIED_UP_TO || joins > MAX_JOINS {
            work.burn(2 * len as u64)?;
            if len > 1_000_000 {
                return Err(CelError::own_limit("list is too large"));
            }
            return Self::of_values(self.iter().chain(other).collect(), true);
        }
        Ok(Self(ListKind::Joined(Arc::new(JoinedLists {
            first: self.clone(),
            second: other.clone(),
            len,
            joins,
            size,
        }))))
    }

    /// Appends `values`, in place if there is no other reference to the list.
    pub(crate) fn append(
        &mut self,
        values: impl IntoIterator<Item = CelValue<'a>> + AsRef<[CelValue<'a>]>,
        work: &mut CelWork<'_>,
    ) -> Result<(), CelError> {
        if let ListKind::Shared(data) = &mut self.0
            // The list that a `map` or `filter` collects has no other holder. To copy it for each element would
            // cost the square of its length.
            && let Some(data) = Arc::get_mut(data)
        {
            let mut size = data.size;
            let added = ValueSize::of(values.as_ref());
            size.add(added);
            data.size = size.check()?;
            data.values.extend(values);
            return Ok(());
        }
        work.burn(2 * self.len() as u64)?;
        let mut all: Vec<_> = self.iter().collect();
        all.extend(values);
        *self = Self::new(all)?;
        Ok(())
    }

    #[inline]
    pub(super) fn borrowed(&'a self) -> Self {
        Self(match &self.0 {
            ListKind::Shared(data) => ListKind::Borrowed(data),
            other => other.clone(),
        })
    }

    fn joins(&self) -> u32 {
        match &self.0 {
            ListKind::Joined(joined) => joined.joins,
            _ => 0,
        }
    }

    pub(super) fn size(&self) -> ValueSize {
        match &self.0 {
            ListKind::Json(_) => ValueSize { depth: 1, nodes: 1 },
            ListKind::Borrowed(data) => data.size,
            ListKind::Shared(data) => data.size,
            ListKind::Joined(joined) => joined.size,
        }
    }
}

impl<'l, 'a> IntoIterator for &'l CelList<'a> {
    type Item = CelValue<'a>;
    type IntoIter = CelListIter<'l, 'a>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// The elements of a list in order.
#[derive(Debug)]
pub struct CelListIter<'l, 'a> {
    list: &'l CelList<'a>,
    at: usize,
    /// The list that is not joined which the next element is of, and the index of its first.
    leaf: LeafElements<'l, 'a>,
    start: usize,
}

/// The elements of a list that is not joined.
#[derive(Clone, Copy, Debug)]
enum LeafElements<'l, 'a> {
    Json(&'a [CelJson<'a>]),
    Values(&'l [CelValue<'a>]),
}

impl LeafElements<'_, '_> {
    fn len(&self) -> usize {
        match self {
            Self::Json(elements) => elements.len(),
            Self::Values(values) => values.len(),
        }
    }
}

impl<'a> CelListIter<'_, 'a> {
    /// Looks at the next element without cloning it.
    pub(crate) fn visit<R>(&mut self, look: impl FnOnce(&CelValue<'a>) -> R) -> Option<R> {
        if self.at - self.start >= self.leaf.len() {
            (self.leaf, self.start) = self.list.leaf_at(self.at);
        }
        let index = self.at - self.start;
        let seen = match self.leaf {
            LeafElements::Json(elements) => look(&CelValue::json(elements.get(index)?)),
            LeafElements::Values(values) => look(values.get(index)?),
        };
        self.at += 1;
        Some(seen)
    }
}

impl<'a> Iterator for CelListIter<'_, 'a> {
    type Item = CelValue<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        self.visit(CelValue::clone)
    }

    fn nth(&mut self, skipped: usize) -> Option<Self::Item> {
        self.at = self.at.saturating_add(skipped).min(self.list.len());
        self.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.list.len() - self.at;
        (left, Some(left))
    }
}

impl ExactSizeIterator for CelListIter<'_, '_> {}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(from: i64, to: i64) -> CelList<'static> {
        CelList::new((from..to).map(CelValue::Int).collect()).unwrap()
    }

    #[test]
    fn joined_lists_have_the_elements_of_both() {
        for split in [0, 1, 200, 999, 1000] {
            let mut work = CelWork::new(10_000, None);
            let joined = numbers(0, split).join(&numbers(split, 1000), &mut work);
            let joined = joined.unwrap();
            assert_eq!(joined.len(), 1000);
            let expected = numbers(0, 1000);
            assert!(joined.iter().eq(expected.iter()), "{split}");
            assert_eq!(joined.get(1000), None);
            for skipped in [0, 1, 200, 999, 1000, usize::MAX] {
                let rest = |list: &CelList<'static>| {
                    list.iter()
                        .skip(skipped)
                        .map(|of| of.as_int())
                        .collect::<Vec<_>>()
                };
                assert_eq!(rest(&joined), rest(&expected), "{split} {skipped}");
            }
        }
    }

    #[test]
    fn the_length_of_joined_lists_is_bounded() {
        let mut list = numbers(0, 2);
        let mut work = CelWork::new(1_000_000, None);
        let refused = (0..200).any(|_| match list.join(&list, &mut work) {
            Ok(longer) => {
                list = longer;
                false
            }
            Err(_) => true,
        });
        assert!(refused, "a list of 2^200 elements is refused");
    }

    #[test]
    fn appending_does_not_change_clones_of_the_list() {
        let mut list = numbers(0, 2);
        let held = list.clone();
        let mut work = CelWork::new(1_000, None);
        list.append([CelValue::Int(2)], &mut work).unwrap();
        assert_eq!((list.len(), held.len()), (3, 2));
        list.append([CelValue::Int(3)], &mut work).unwrap();
        assert_eq!(list.get(3), Some(CelValue::Int(3)));
    }
}
