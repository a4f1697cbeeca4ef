//! Detects that a client closed its connection, without reading from it.
//!
//! hyper reads from an HTTP/1 connection only when the service polls the body. While a request is queued with its
//! body unread, there is no read, and nobody would notice that the connection has ended: the request would keep
//! its place in the queue. So each core has its own epoll instance, in which connections are registered for the
//! end of the stream only, and which the runtime watches like any other descriptor. This also shows an end
//! behind unread bytes, unless those fill the kernel's buffer, and then
//! [`ClientBody::poll_read_ahead`](fairgate_call::ClientBody::poll_read_ahead) makes room.
//!
//! A client may also close its sending side only, and wait for its reply. Both look the same until something is
//! sent; `connection/disconnect.rs` decides. A registration is also used to wake its connection when the phase of the
//! drain changes.

use std::{
    cell::RefCell,
    io,
    os::fd::{AsFd, OwnedFd},
    rc::Rc,
    task::{Context, Poll, Waker},
};

use rustix::event::{
    Timespec,
    epoll::{self, CreateFlags, Event, EventData, EventFlags},
};
use tokio::io::unix::AsyncFd;

use fairgate_base::local::watch_readable;

/// Watches the connections of one core.
pub(crate) struct HangupWatcher {
    epoll: AsyncFd<OwnedFd>,
    slots: RefCell<HangupRegistrations>,
}

#[derive(Default)]
struct HangupRegistrations {
    all: Vec<HangupRegistration>,
    free: Vec<u32>,
}

/// How a client closed its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HungUp {
    /// It will send nothing more. It may still read, or have closed the connection.
    SendsNoMore,
    /// The connection is closed by both ends, or reset.
    Gone,
}

/// One registration. Its generation makes late events of an earlier connection harmless.
#[derive(Default)]
struct HangupRegistration {
    generation: u32,
    hung_up: Option<HungUp>,
    waker: Option<Waker>,
}

impl HangupWatcher {
    /// A watcher for the calling core. Its task runs until the runtime ends.
    ///
    /// # Errors
    ///
    /// When the process is out of descriptors.
    pub(crate) fn start() -> io::Result<Rc<Self>> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let watcher = Rc::new(Self {
            epoll: watch_readable(epoll)?,
            slots: RefCell::default(),
        });
        let task = watcher.clone();
        fairgate_base::turns::spawn_local_boxed(async move {
            if let Err(error) = task.run().await {
                tracing::error!(%error, "this core no longer detects that clients close their connections");
            }
        });
        Ok(watcher)
    }

    /// Watches `connection` until the registration is dropped.
    ///
    /// # Errors
    ///
    /// When the kernel cannot watch one more.
    pub(crate) fn watch(self: &Rc<Self>, connection: &impl AsFd) -> io::Result<Hangup> {
        let (index, generation) = self.slots.borrow_mut().take();
        let hangup = Hangup {
            watcher: self.clone(),
            index,
            generation,
        };
        epoll::add(
            self.epoll.get_ref(),
            connection,
            EventData::new_u64(key(index, generation)),
            // Edge-triggered: a connection that has hung up stays so, and would wake the core again and again.
            EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR | EventFlags::ET,
        )?;
        Ok(hangup)
    }

    /// Wakes every connection, because the state of the core has changed.
    pub(crate) fn wake_all(&self) {
        let wakers: Vec<Waker> = self
            .slots
            .borrow_mut()
            .all
            .iter_mut()
            .filter_map(|slot| slot.waker.take())
            .collect();
        wakers.into_iter().for_each(Waker::wake);
    }

    async fn run(&self) -> io::Result<()> {
        const NOW: Timespec = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let mut events: Vec<Event> = Vec::with_capacity(256);
        loop {
            let mut ready = self.epoll.readable().await?;
            events.clear();
            epoll::wait(
                self.epoll.get_ref(),
                rustix::buffer::spare_capacity(&mut events),
                Some(&NOW),
            )?;
            if events.is_empty() {
                // Not before: there may be more events than fit into one call.
                ready.clear_ready();
            }
            for event in &events {
                let (data, flags) = (event.data, event.flags);
                let how = if flags.intersects(EventFlags::HUP | EventFlags::ERR) {
                    HungUp::Gone
                } else {
                    HungUp::SendsNoMore
                };
                self.hung_up(data.u64(), how);
            }
        }
    }

    fn hung_up(&self, key: u64, how: HungUp) {
        let waker = self.slots.borrow_mut().hung_up(key, how);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl HangupRegistrations {
    fn take(&mut self) -> (u32, u32) {
        if let Some(index) = self.free.pop() {
            return (index, self.all[index as usize].generation);
        }
        let index = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        self.all.push(HangupRegistration::default());
        (index, 0)
    }

    fn hung_up(&mut self, key: u64, how: HungUp) -> Option<Waker> {
        let index = usize::try_from(key & u64::from(u32::MAX)).ok()?;
        let slot = self.all.get_mut(index)?;
        if u64::from(slot.generation) != key >> 32 {
            return None;
        }
        slot.hung_up = slot.hung_up.max(Some(how));
        slot.waker.take()
    }

    fn give_back(&mut self, index: u32) {
        let slot = &mut self.all[index as usize];
        *slot = HangupRegistration {
            generation: slot.generation.wrapping_add(1),
            ..HangupRegistration::default()
        };
        self.free.push(index);
    }
}

fn key(index: u32, generation: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(index)
}

/// A watched connection. Dropping it ends the registration; later events of the connection have no effect.
pub(crate) struct Hangup {
    watcher: Rc<HangupWatcher>,
    index: u32,
    generation: u32,
}

impl Hangup {
    /// Ready once the client closed its sending side, or more. Wakes the last task that polled, then and at any
    /// later change.
    pub(crate) fn poll_hung_up(&self, cx: &mut Context<'_>) -> Poll<HungUp> {
        let mut slots = self.watcher.slots.borrow_mut();
        let slot = &mut slots.all[self.index as usize];
        debug_assert_eq!(slot.generation, self.generation, "a slot has one owner");
        match &mut slot.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        slot.hung_up.map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for Hangup {
    fn drop(&mut self) {
        // The kernel forgets the connection when it is closed. Until then the generation tells its events from
        // those of the next.
        self.watcher.slots.borrow_mut().give_back(self.index);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write as _,
        net::{Shutdown, TcpListener, TcpStream},
    };

    use super::*;

    impl Hangup {
        /// Completes once the client has disconnected.
        async fn hung_up(&self) -> HungUp {
            std::future::poll_fn(|cx| self.poll_hung_up(cx)).await
        }
    }

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    fn on_a_core(test: impl AsyncFnOnce()) {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build_local(tokio::runtime::LocalOptions::default())
            .unwrap()
            .block_on(test());
    }

    #[test]
    fn an_end_behind_unread_bytes_is_noticed() {
        on_a_core(async || {
            let watcher = HangupWatcher::start().unwrap();
            let (mut client, server) = pair();
            let hangup = watcher.watch(&server).unwrap();
            client.write_all(b"never read").unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            hangup.hung_up().await;
        });
    }

    #[test]
    fn a_client_that_disconnected_before_it_was_watched_is_noticed() {
        on_a_core(async || {
            let watcher = HangupWatcher::start().unwrap();
            let (client, server) = pair();
            drop(client);
            watcher.watch(&server).unwrap().hung_up().await;
        });
    }

    #[test]
    fn a_reset_is_distinguished_from_the_end_of_what_a_client_sends() {
        on_a_core(async || {
            let watcher = HangupWatcher::start().unwrap();
            let (client, server) = pair();
            let hangup = watcher.watch(&server).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            assert_eq!(hangup.hung_up().await, HungUp::SendsNoMore);
            // Unread bytes make the client's kernel reset the connection.
            rustix::net::send(&server, b"unread", rustix::net::SendFlags::empty()).unwrap();
            while rustix::net::recv(&client, &mut [0; 1], rustix::net::RecvFlags::PEEK)
                .unwrap()
                .0
                == 0
            {}
            drop(client);
            while hangup.hung_up().await != HungUp::Gone {
                tokio::task::yield_now().await;
            }
        });
    }

    #[test]
    fn a_reused_entry_gets_no_event_of_the_former_connection() {
        on_a_core(async || {
            let watcher = HangupWatcher::start().unwrap();
            let (first_client, first) = pair();
            let old = watcher.watch(&first).unwrap();
            drop(first_client);
            drop(old);
            let (client, second) = pair();
            let new = watcher.watch(&second).unwrap();
            assert_eq!(new.index, 0, "the slot is used again");
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            assert!(
                new.poll_hung_up(&mut Context::from_waker(Waker::noop()))
                    .is_pending()
            );
            drop(client);
            new.hung_up().await;
        });
    }
}
