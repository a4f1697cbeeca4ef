//! The task of a core's gate: it reads the mailbox, and takes back seats that are held for too long.

use std::{future::poll_fn, rc::Rc};

use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::{
    gate::Gate,
    message::GateMessage,
    slow_readers::{CHECK_INTERVAL, SlowReaders},
    slow_senders::SlowSenders,
};

impl Gate {
    /// Reads this core's mailbox and checks the clients of requests that hold seats; never completes.
    pub async fn run(self: Rc<Self>) {
        let mut messages = Vec::new();
        let mut checks = check_ticks(self.clock().instant(self.now()));
        let mut slow_readers = SlowReaders::default();
        let mut slow_senders = SlowSenders::default();
        loop {
            let mailbox = self.flow_control().mailbox(self.core());
            tokio::select! {
                // In this order, so that no flood of messages puts the checks off; without a random number each time.
                biased;
                _ = checks.tick() => {
                    self.release_overdue();
                    slow_readers.check(&self);
                    slow_senders.check(&self);
                }
                () = poll_fn(|cx| mailbox.poll_fetch(cx, &mut messages)) => {}
            }
            for message in messages.drain(..) {
                self.receive(message);
            }
        }
    }

    fn receive(self: &Rc<Self>, message: GateMessage) {
        match message {
            GateMessage::Granted(waiter, ticket) => self.start(waiter, ticket),
            GateMessage::Replaced(waiter) => self.replace(waiter),
            GateMessage::Policy(policy) => self.set_policy(policy),
            GateMessage::Describe(requests, reply) => {
                // The dump may have been cancelled meanwhile.
                let _ = reply.send(self.describe(requests));
            }
        }
    }
}

/// When to check: at `first`, and then every [`CHECK_INTERVAL`].
///
/// A core that was blocked continues with a single check. Clients read nothing between checks that follow each other at
/// once, so all of them would seem slow.
fn check_ticks(first: Instant) -> Interval {
    let mut ticks = interval_at(first, CHECK_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use fairgate_base::clock::Clock;

    use super::*;

    #[test]
    fn a_core_that_was_blocked_does_not_make_up_for_the_checks_that_it_missed() {
        const MISSED: u32 = 20;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let checks = runtime.block_on(async {
            let clock = Clock::system();
            let mut ticks = check_ticks(clock.instant(clock.now()) - MISSED * CHECK_INTERVAL);
            let mut checks = 0;
            for _ in 0..MISSED {
                checks +=
                    poll_fn(|cx| Poll::Ready(u32::from(ticks.poll_tick(cx).is_ready()))).await;
            }
            checks
        });
        assert!((1..MISSED / 2).contains(&checks), "{checks}");
    }
}
