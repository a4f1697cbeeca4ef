//! Seats shared by several gateways.
pub mod book;
pub mod coordinator;
pub mod gateway;
pub mod grants;
pub mod identity;
pub mod records;
mod rules;
pub mod settings;
#[cfg(test)]
mod search;
