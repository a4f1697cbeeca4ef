//! The bytes of a client's connection, followed before hyper parses them.
//!
//! Where each message begins and ends, so that no part of one request is ever taken for another (`http1` with `head_scan` and `chunked`, `http2`
//! with `http2_frames` and `header_block`); memory for unfinished heads (`head_budget`); floods of frames (`frame_credits`); heads that servers could
//! read in two ways (`head_check`). What is refused is counted (`defence`).
//!
//! Not here: sockets, tasks, requests.

pub(super) mod chunked;
pub(super) mod defence;
pub(super) mod frame_credits;
pub(super) mod head_budget;
pub(super) mod head_check;
pub(super) mod head_limits;
pub(super) mod head_scan;
pub(super) mod header_block;
pub(super) mod held_bytes;
pub(super) mod http1;
pub(super) mod http2;
pub(super) mod http2_frames;
pub(super) mod message_state;
