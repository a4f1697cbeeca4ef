//! What clients may have sent on HTTP/2 streams whose bodies nobody reads, because their requests wait for seats.
//!
//! A client may send as much as the window of a stream allows, read or not, and HTTP/2 keeps it. So a request that is queued before its
//! body is complete is charged what may come: the window, or the rest of the body. A user may have at most as much as is still free; a
//! request for which there is no room is rejected, as if its queue were full.
//!
//! A request that does not have to wait is charged nothing: a seat stands for its window. One of HTTP/1 has no window, as nothing is
//! read from its connection.

use std::{rc::Rc, sync::Arc};

use fairgate_base::account::{ByteBudget, ByteShare};
use fairgate_core::digest::User;
use http_body::SizeHint;

/// The windows of the streams that one core serves.
#[derive(Debug)]
pub struct StreamWindows {
    /// What queued requests of all cores may have.
    budget: Arc<ByteBudget>,
    window: usize,
}

impl StreamWindows {
    /// Streams of so many bytes, of which those that wait are charged to a budget.
    pub fn new(budget: Arc<ByteBudget>, window: usize) -> Rc<Self> {
        Rc::new(Self { budget, window })
    }

    /// What may be unread of a body of which so much is to come.
    pub(super) fn bytes(&self, rest: &SizeHint) -> usize {
        let rest = rest.upper().and_then(|rest| usize::try_from(rest).ok());
        rest.map_or(self.window, |rest| rest.min(self.window))
    }

    /// Whether a request of this user may wait.
    pub(super) fn has_room(&self, user: &User, rest: &SizeHint) -> bool {
        self.budget.has_room(&user.name, self.bytes(rest))
    }

    /// A request of this user waits.
    pub(super) fn waits(&self, user: &Arc<User>, rest: &SizeHint) -> ByteShare {
        let mut share = self.budget.share(user);
        share.take_beyond(self.bytes(rest));
        share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_charged_its_window_or_what_is_left_of_its_body() {
        let budget = ByteBudget::new(1000);
        let windows = StreamWindows::new(Arc::clone(&budget), 100);
        let [many, other] = ["many", "other"].map(|name| Arc::new(User::new(name, [""; 0])));
        let mut waiting = Vec::new();
        let (unknown, short) = (SizeHint::new(), SizeHint::with_exact(7));
        let long = SizeHint::with_exact(u64::MAX);
        for (rest, held) in [(&unknown, 100), (&short, 107), (&long, 207)] {
            assert!(windows.has_room(&many, rest));
            waiting.push(windows.waits(&many, rest));
            assert_eq!(budget.held().now, held);
        }
        while windows.has_room(&many, &unknown) {
            waiting.push(windows.waits(&many, &unknown));
        }
        assert_eq!(budget.held().now, 507);
        assert!(!windows.has_room(&many, &short), "more than is free");
        assert!(windows.has_room(&other, &unknown));
        drop(waiting);
        assert_eq!(budget.held().now, 0);
    }
}
