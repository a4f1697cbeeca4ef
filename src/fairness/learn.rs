//! tmp
use crate::{apf::counts::ListObservation, digest::RequestInfo};
use http::{HeaderMap, StatusCode};
/// tmp
pub struct ListObserver;
impl ListObserver {
    /// tmp
    pub fn new(_: &RequestInfo, _: StatusCode, _: &HeaderMap) -> Option<Self> {
        None
    }
    /// tmp
    pub fn data(&mut self, _: &[u8]) {}
    /// tmp
    pub fn finish(self, _: bool) -> Option<ListObservation> {
        None
    }
}
