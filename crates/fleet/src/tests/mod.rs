//! What needs the whole protocol: the search for schedules that break it, and its figures.

mod figures;
mod search;
