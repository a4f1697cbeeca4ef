//! The object that policies see: from the body, the stored object, and what the server sets, keeps and drops.

pub(crate) mod body_checks;
pub(crate) mod body_object;
pub(crate) mod deleted_items;
pub(crate) mod deletions;
pub(crate) mod empty_lists;
pub(crate) mod evaluated_object;
pub(crate) mod guard;
pub(crate) mod object_errors;
pub(crate) mod object_name;
pub(crate) mod objects;
pub(crate) mod static_resources;
pub(crate) mod token_account;
