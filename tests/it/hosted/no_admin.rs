//! No operator endpoints, for tests that need a hosted API without a gateway.

use std::future::ready;

use fairgate_apiserver::{AdminEndpoints, AdminFuture};

pub struct NoAdmin;

impl AdminEndpoints for NoAdmin {
    fn ask<'a>(&'a self, _: &'a str, _: &'a str, _: bool) -> AdminFuture<'a> {
        Box::pin(ready(None))
    }
}
