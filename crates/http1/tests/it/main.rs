//! Responses in pieces, requests that are read back, and both compared with hyper's client.

mod exchange;
mod hyper_client;
mod properties;
mod requests;
mod responses;
