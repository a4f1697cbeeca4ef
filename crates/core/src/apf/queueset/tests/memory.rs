//! How much memory flows and tenants take, whatever names arrive.

use allocation_counter::{AllocationInfo, measure};

use super::*;

const SEATS: Seats = 32;
/// A power of two: so many entries fill the memory that is allocated for them.
const PRESENT: u32 = 1 << 11;

/// What arrivals take, each under the name that `name` gives it. [`PRESENT`] of them stay; before each of the others the oldest
/// is cancelled or ends.
fn memory_of(arrivals: u64, name: impl Fn(u64) -> u64) -> AllocationInfo {
    let mut kept = None;
    let info = measure(|| {
        let mut set = improved::<u64>(queues(1, PRESENT, 1), SEATS);
        let mut present = VecDeque::new();
        for number in 0..arrivals {
            let now = at(number * 10);
            let mut events = QueueSetEvents::default();
            if present.len() == PRESENT as usize {
                let oldest = present.pop_front().unwrap();
                if !set.cancel(now, oldest, &mut events) {
                    set.finish(now, oldest, &mut events);
                }
            }
            let name = name(number);
            let request = ArrivingRequest {
                waiter: number,
                schema: 0,
                hash: name.wrapping_mul(0x9e37_79b9_7f4a_7c15),
                tenant: name,
                work: Work::ONE,
            };
            match set.arrive(now, request, &mut events) {
                Admission::Execute(id) | Admission::Wait(id) => present.push_back(id),
                Admission::Reject(reason) => panic!("{reason:?}"),
            }
        }
        kept = Some((set, present));
    });
    drop(kept);
    info
}

#[test]
fn a_flow_with_a_tenant_of_its_own_takes_so_much_memory() {
    let present = u64::from(PRESENT);
    let one = memory_of(present, |_| 1);
    let many = memory_of(present, |number| number);
    let waiting = one.bytes_current / i64::from(PRESENT);
    let flow = (many.bytes_current - one.bytes_current) / i64::from(PRESENT);
    println!("a waiting request {waiting} bytes, its flow and tenant {flow} bytes");
    assert!(waiting <= 177, "{waiting}");
    assert!(flow <= 304, "{flow}");
}

#[test]
fn names_that_come_and_go_take_no_memory() {
    let present = u64::from(PRESENT);
    let few = memory_of(4 * present, |number| number);
    let many = memory_of(200 * present, |number| number);
    assert!(
        many.bytes_max <= few.bytes_max + few.bytes_max / 50,
        "{few:?} {many:?}"
    );
}
