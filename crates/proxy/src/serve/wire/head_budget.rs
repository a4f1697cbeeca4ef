//! Limits the memory of request heads that are not complete yet.
//!
//! Until a head is complete its user is unknown, so its cost must not depend on how many connections there are.
//! Every connection may hold a few KiB of a head; the rest counts against one budget for the whole process. When the
//! budget is used up, heads are dropped until a quarter of it is free: of the addresses that have held the most bytes for the
//! longest time, and of one address those that have. So a flood from one address drops no head of another, however slowly
//! the gateway reads. Behind one address, a client that sends a large head at normal speed holds it only for a moment, so others
//! go first.
//!
//! The bytes are kept in blocks of one allocation of the budget's size, which is freed when the last block is. The
//! system provides only those pages of so large an allocation that are used, and takes all of them back at once;
//! many small allocations would keep the process as large as it ever was.

use std::{
    collections::{BTreeMap, BinaryHeap, HashMap},
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use futures_util::task::AtomicWaker;
use tokio::{io::ReadBuf, time::Instant};

use crate::serve::limited_address::limited_address;
use fairgate_core::sync::{Mutex, lock};

/// Bytes of a head that every connection may hold without counting against the budget.
pub(crate) const FREE_BYTES_PER_CONNECTION: usize = 8 << 10;

/// The size of a block, in bytes.
pub(crate) const BLOCK_BYTES: usize = 16 << 10;

/// What counts at most of the time for which an address has had unfinished heads: one that many clients share may always have
/// some.
const ADDRESS_TIME: Duration = Duration::from_secs(1);

/// The memory that all unfinished heads of a process may take together (`limits.unfinishedHeaderBytes`).
#[derive(Debug)]
pub struct HeadBudget {
    limit: usize,
    ledger: Mutex<Ledger>,
}

#[derive(Debug, Default)]
struct Ledger {
    total: usize,
    /// The most there ever was, once there was room made for it.
    most: usize,
    next: u64,
    heads: BTreeMap<u64, UnfinishedHead>,
    /// Those that have unfinished heads.
    addresses: HashMap<IpAddr, HeadsOfAddress>,
    pool: BlockPool,
}

#[derive(Debug)]
struct UnfinishedHead {
    address: IpAddr,
    usage: Usage,
    signal: Arc<DropSignal>,
    /// The numbers of the blocks in which it is kept, and its length.
    blocks: Vec<usize>,
    len: usize,
}

/// What the heads of one address hold.
#[derive(Debug)]
struct HeadsOfAddress {
    heads: usize,
    usage: Usage,
}

#[derive(Debug)]
struct Usage {
    /// Bytes that count against the budget.
    bytes: usize,
    since: Instant,
}

impl Usage {
    const fn from(since: Instant) -> Self {
        Self { bytes: 0, since }
    }

    /// What has the highest cost is dropped first. No more than `longest` counts of the time.
    fn cost(&self, now: Instant, longest: Duration) -> u128 {
        let time = now.saturating_duration_since(self.since).min(longest);
        // Plus one, so that large heads that have just come cost more than small ones.
        self.bytes as u128 * (time.as_millis() + 1)
    }
}

/// The allocation that heads are kept in.
#[derive(Debug, Default)]
struct BlockPool {
    memory: Vec<u8>,
    free: Vec<usize>,
    /// Blocks from here on were never used.
    fresh: usize,
}

#[derive(Debug, Default)]
struct DropSignal {
    dropped: AtomicBool,
    waker: AtomicWaker,
}

impl HeadBudget {
    /// A budget of `limit` bytes.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            ledger: Mutex::default(),
        })
    }

    /// Bytes in use, beyond what every connection may hold.
    pub fn used(&self) -> usize {
        lock(&self.ledger).total
    }

    /// The most bytes that were ever in use, also by heads that were dropped meanwhile.
    pub fn most_used(&self) -> usize {
        lock(&self.ledger).most
    }

    /// The number of blocks: those that fit into the budget, and one more, so that there is always one.
    fn block_count(&self) -> usize {
        self.limit / BLOCK_BYTES + 1
    }

    /// Drops heads if the budget is exceeded; returns them.
    fn make_room(&self, ledger: &mut Ledger, now: Instant) -> Vec<Arc<DropSignal>> {
        if ledger.total <= self.limit {
            return Vec::new();
        }
        // A quarter more than needed, because it sorts all heads: a flood cannot make it do so for each block.
        ledger.shrink_to(self.limit - self.limit / 4, now)
    }

    /// Begins to count a head that `remote` sends.
    pub(super) fn charge(self: &Arc<Self>, remote: SocketAddr, now: Instant) -> HeadCharge {
        let signal = Arc::new(DropSignal::default());
        let address = limited_address(remote.ip());
        let held = UnfinishedHead {
            address,
            usage: Usage::from(now),
            signal: Arc::clone(&signal),
            blocks: Vec::new(),
            len: 0,
        };
        let id = lock(&self.ledger).add(held);
        HeadCharge {
            budget: Arc::clone(self),
            id,
            signal,
        }
    }
}

impl BlockPool {
    /// Takes a block of the pool, which has `count`. Returns its number.
    fn take(&mut self, count: usize) -> usize {
        if self.memory.is_empty() {
            // Zeroed memory of this size comes untouched from the kernel: blocks that are never used take none. So
            // used ones are taken again first.
            self.memory = vec![0; count * BLOCK_BYTES];
        }
        self.free.pop().unwrap_or_else(|| {
            self.fresh += 1;
            self.fresh - 1
        })
    }

    fn free(&mut self, blocks: Vec<usize>) {
        self.free.extend(blocks);
        if self.free.len() == self.fresh {
            // It is one large allocation, which the allocator returns to the system at once, and only as a whole.
            *self = Self::default();
        }
    }

    fn block(&mut self, number: usize) -> &mut [u8] {
        &mut self.memory[number * BLOCK_BYTES..][..BLOCK_BYTES]
    }
}

impl Ledger {
    /// Adds a head that has no bytes yet. Returns its number.
    fn add(&mut self, head: UnfinishedHead) -> u64 {
        let all = self.addresses.entry(head.address);
        let all = all.or_insert_with(|| HeadsOfAddress {
            heads: 0,
            usage: Usage::from(head.usage.since),
        });
        all.heads += 1;
        let id = self.next;
        self.next += 1;
        self.heads.insert(id, head);
        id
    }

    /// Adds `bytes` to a head. They are counted already, so there are blocks for them.
    fn append(&mut self, id: u64, mut bytes: &[u8], block_count: usize) -> bool {
        let Self { heads, pool, .. } = self;
        let Some(held) = heads.get_mut(&id) else {
            return false;
        };
        while !bytes.is_empty() {
            let (index, at) = (held.len / BLOCK_BYTES, held.len % BLOCK_BYTES);
            if index == held.blocks.len() {
                held.blocks.push(pool.take(block_count));
            }
            let fits = bytes.len().min(BLOCK_BYTES - at);
            pool.block(held.blocks[index])[at..at + fits].copy_from_slice(&bytes[..fits]);
            held.len += fits;
            bytes = &bytes[fits..];
        }
        true
    }

    /// Sets how many bytes a head counts for.
    fn set_bytes(&mut self, id: u64, bytes: usize) {
        if let Some(held) = self.heads.get_mut(&id) {
            let before = std::mem::replace(&mut held.usage.bytes, bytes);
            self.total = self.total - before + bytes;
            if let Some(all) = self.addresses.get_mut(&held.address) {
                all.usage.bytes = all.usage.bytes - before + bytes;
            }
        }
    }

    fn remove(&mut self, id: u64) -> Option<Arc<DropSignal>> {
        self.set_bytes(id, 0);
        let held = self.heads.remove(&id)?;
        if let Some(all) = self.addresses.get_mut(&held.address) {
            all.heads -= 1;
            if all.heads == 0 {
                self.addresses.remove(&held.address);
            }
        }
        self.pool.free(held.blocks);
        Some(held.signal)
    }

    /// Drops heads of the addresses that have held the most bytes for the longest time, and of one address those that have,
    /// until no more than `limit` bytes are held. It sorts all heads, but a quarter of the budget has to be filled again
    /// before the next time.
    fn shrink_to(&mut self, limit: usize, now: Instant) -> Vec<Arc<DropSignal>> {
        let heads = self.heads.iter();
        let mut heads: Vec<_> = heads
            .map(|(id, held)| (held.usage.cost(now, Duration::MAX), *id, held.address))
            .collect();
        heads.sort_unstable();
        let mut of_address: HashMap<_, Vec<_>> = HashMap::new();
        for (_, id, address) in heads {
            of_address.entry(address).or_default().push(id);
        }
        let addresses = self.addresses.iter();
        let mut order: BinaryHeap<_> = addresses
            .map(|(address, all)| (all.usage.cost(now, ADDRESS_TIME), *address))
            .collect();
        let mut dropped = Vec::new();
        while self.total > limit
            && let Some((_, address)) = order.pop()
        {
            let costliest = of_address.get_mut(&address).and_then(Vec::pop);
            dropped.extend(costliest.and_then(|id| self.remove(id)));
            let left = self.addresses.get(&address);
            order.extend(left.map(|all| (all.usage.cost(now, ADDRESS_TIME), address)));
        }
        dropped
    }
}

fn notify(dropped: Vec<Arc<DropSignal>>) {
    for signal in dropped {
        signal.dropped.store(true, Ordering::Release);
        signal.waker.wake();
    }
}

/// The share of the budget that an unfinished head uses. Returned when dropped.
#[derive(Debug)]
pub(super) struct HeadCharge {
    budget: Arc<HeadBudget>,
    id: u64,
    signal: Arc<DropSignal>,
}

impl HeadCharge {
    /// Adds `bytes` to those that are kept; all of them count. If the budget is exceeded, heads are dropped, which may
    /// include this one. False if this head was dropped. It costs a copy under the budget's lock.
    pub(super) fn keep(&self, bytes: &[u8], now: Instant) -> bool {
        let mut ledger = lock(&self.budget.ledger);
        let Some(held) = ledger.heads.get(&self.id) else {
            return false;
        };
        let blocks = (held.len + bytes.len()).div_ceil(BLOCK_BYTES);
        // Counted, and paid for by dropped heads, before blocks are taken: the pool has as many as the budget
        // allows, and one.
        ledger.set_bytes(self.id, blocks * BLOCK_BYTES);
        let dropped = self.budget.make_room(&mut ledger, now);
        ledger.most = ledger.most.max(ledger.total);
        let kept = ledger.append(self.id, bytes, self.budget.block_count());
        drop(ledger);
        // After the lock: the tasks that this wakes take it.
        notify(dropped);
        kept
    }

    /// Copies what is kept, from `start` on, to `buf`, as far as there is room. Returns how many bytes; 0 if the head
    /// was dropped.
    pub(super) fn copy(&self, start: usize, buf: &mut ReadBuf<'_>) -> usize {
        let mut ledger = lock(&self.budget.ledger);
        let Ledger { heads, pool, .. } = &mut *ledger;
        let Some(held) = heads.get(&self.id) else {
            return 0;
        };
        let mut at = start;
        while at < held.len && buf.remaining() > 0 {
            let here = (BLOCK_BYTES - at % BLOCK_BYTES)
                .min(held.len - at)
                .min(buf.remaining());
            let block = pool.block(held.blocks[at / BLOCK_BYTES]);
            buf.put_slice(&block[at % BLOCK_BYTES..][..here]);
            at += here;
        }
        at - start
    }

    /// Ready once the head was dropped. Wakes the last task that polled.
    pub(super) fn poll_dropped(&self, cx: &mut Context<'_>) -> Poll<()> {
        // Registered before it looks: a head that is dropped in between would wake nobody.
        self.signal.waker.register(cx.waker());
        if self.signal.dropped.load(Ordering::Acquire) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

impl Drop for HeadCharge {
    fn drop(&mut self) {
        lock(&self.budget.ledger).remove(self.id);
    }
}

#[cfg(test)]
mod tests {
    use std::{net::Ipv4Addr, task::Waker};

    use super::*;
    use fairgate_base::clock::Clock;

    const CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 1000);

    fn now() -> Instant {
        let clock = Clock::system();
        clock.instant(clock.now())
    }

    fn is_dropped(charge: &HeadCharge) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        charge.poll_dropped(&mut cx).is_ready()
    }

    #[test]
    fn slow_large_heads_are_dropped_and_quick_ones_are_not() {
        let budget = HeadBudget::new(10 * BLOCK_BYTES);
        let start = now();
        let old: Vec<_> = (0..10).map(|_| budget.charge(CLIENT, start)).collect();
        for charge in &old {
            assert!(charge.keep(&[0; BLOCK_BYTES], start));
        }
        assert!(
            !old.iter().any(is_dropped),
            "the budget is full, but not exceeded"
        );
        let later = start + Duration::from_secs(1);
        let new = budget.charge(CLIENT, later);
        assert!(new.keep(&vec![0; 2 * BLOCK_BYTES], later));
        assert!(!is_dropped(&new));
        assert_eq!(old.iter().filter(|charge| is_dropped(charge)).count(), 5);
        assert!(budget.used() <= 75 * BLOCK_BYTES / 10, "{}", budget.used());
        drop((old, new));
        assert_eq!(budget.used(), 0);
    }

    /// A flood keeps many heads for a moment each; another client's head is read slowly, because the gateway is busy.
    #[test]
    fn heads_of_the_address_that_holds_the_most_are_dropped() {
        let budget = HeadBudget::new(100 * BLOCK_BYTES);
        let start = now();
        let mut flood = vec![budget.charge(CLIENT, start)];
        assert!(flood[0].keep(&[0; BLOCK_BYTES], start));
        let other = SocketAddr::new(Ipv4Addr::new(192, 0, 2, 2).into(), 1000);
        let other = budget.charge(other, start + Duration::from_millis(1));
        for round in 0..1000 {
            let later = start + Duration::from_millis(10 * round);
            flood.push(budget.charge(CLIENT, later));
            assert!(flood.last().unwrap().keep(&vec![0; 2 * BLOCK_BYTES], later));
            if round < 20 {
                assert!(other.keep(&[0; BLOCK_BYTES], later));
            }
        }
        assert!(
            !is_dropped(&other),
            "it sent less than the flood, and later"
        );
        assert!(flood.iter().filter(|head| is_dropped(head)).count() > 950);
        drop((flood, other));
        let ledger = lock(&budget.ledger);
        assert!(ledger.total == 0 && ledger.addresses.is_empty());
    }

    #[test]
    fn stored_bytes_are_returned_unchanged_and_freed() {
        let budget = HeadBudget::new(1 << 20);
        let all: Vec<u8> = (0..100_000_u32).map(|i| (i % 251) as u8).collect();
        let (one, other) = (budget.charge(CLIENT, now()), budget.charge(CLIENT, now()));
        for piece in all.chunks(7_777) {
            assert!(one.keep(piece, now()));
            assert!(other.keep(&[7; 5], now()));
        }
        let (mut out, mut room) = (Vec::new(), [0; 10_001]);
        while out.len() < all.len() {
            let mut buf = ReadBuf::new(&mut room);
            assert_eq!(one.copy(out.len(), &mut buf), buf.filled().len());
            out.extend_from_slice(buf.filled());
        }
        assert!(out == all);
        assert_eq!(budget.used(), 8 * BLOCK_BYTES);
        drop((one, other));
        assert_eq!(lock(&budget.ledger).pool.memory.capacity(), 0);
    }

    #[test]
    fn the_blocks_of_a_dropped_head_are_free_for_others() {
        let budget = HeadBudget::new(10 * BLOCK_BYTES);
        let start = now();
        let (old, new) = (budget.charge(CLIENT, start), budget.charge(CLIENT, start));
        assert!(old.keep(&vec![1; 6 * BLOCK_BYTES], start));
        let later = start + Duration::from_secs(1);
        assert!(new.keep(&vec![2; 5 * BLOCK_BYTES], later));
        assert!(is_dropped(&old) && !is_dropped(&new));
        assert!(!old.keep(&[1], later));
        assert!(new.keep(&vec![2; 5 * BLOCK_BYTES], later));
        let mut room = [0; 10];
        assert_eq!(old.copy(0, &mut ReadBuf::new(&mut room)), 0);
        assert_eq!(new.copy(0, &mut ReadBuf::new(&mut room)), 10);
        assert_eq!(room, [2; 10]);
    }
}
