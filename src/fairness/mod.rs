//! Fairness in the path of a request: from a call to a seat, and from the seat's end to the next.

#[cfg_attr(
    not(test),
    expect(dead_code, reason = "the layer that uses it is not here yet")
)]
mod learn;
