//! Virtual time: the pure core driven by an event heap.
