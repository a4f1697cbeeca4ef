//! Seats shared by several gateways.
pub mod book;
pub mod coordinator;
pub mod division;
pub mod gateway;
pub mod grants;
pub mod identity;
pub mod records;
pub mod remote;
mod rules;
pub mod settings;
#[cfg(test)]
mod search;
#[cfg(test)]
mod figures;
