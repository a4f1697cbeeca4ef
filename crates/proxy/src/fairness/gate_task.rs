//! The task of a core's gate: it reads the mailbox, and takes back seats that are held for too long.

use std::{future::poll_fn, rc::Rc};

use super::{
    gate::Gate,
    message::GateMessage,
    slow_readers::{CHECK_INTERVAL, SlowReaders},
};

impl Gate {
    /// Reads this core's mailbox and checks the replies that hold seats; never completes.
    pub async fn run(self: Rc<Self>) {
        let mut messages = Vec::new();
        let mut checks = tokio::time::interval(CHECK_INTERVAL);
        let mut slow_readers = SlowReaders::default();
        loop {
            let mailbox = self.flow_control().mailbox(self.core());
            tokio::select! {
                () = poll_fn(|cx| mailbox.poll_fetch(cx, &mut messages)) => {}
                _ = checks.tick() => {
                    self.release_overdue();
                    slow_readers.check(&self);
                }
            }
            for message in messages.drain(..) {
                self.receive(message);
            }
        }
    }

    fn receive(self: &Rc<Self>, message: GateMessage) {
        match message {
            GateMessage::Granted(waiter, ticket) => self.start(waiter, ticket),
            GateMessage::Policy(policy) => self.set_policy(policy),
            GateMessage::Describe(requests, reply) => {
                // The dump may have been cancelled meanwhile.
                let _ = reply.send(self.describe(requests));
            }
        }
    }
}
