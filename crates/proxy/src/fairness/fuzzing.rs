//! Entry points for fuzz targets into private code of this module.

use fairgate_core::{apf::counts::ListObservation, digest::RequestInfo};
use http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{CONTENT_ENCODING, CONTENT_TYPE},
};

use super::list_observer::ListObserver;

/// What is observed of the reply to `GET target` if its body arrives in these pieces.
pub fn observe_list<'a>(
    target: &str,
    content_type: &str,
    encoding: Option<&str>,
    pieces: impl Iterator<Item = &'a [u8]>,
) -> Option<ListObservation> {
    let info = RequestInfo::from_target("GET", target).ok()?;
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_str(content_type).ok()?);
    if let Some(encoding) = encoding {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_str(encoding).ok()?);
    }
    let mut observer = ListObserver::new(&info, StatusCode::OK, &headers)?;
    pieces.for_each(|piece| observer.data(piece));
    observer.finish(true)
}
