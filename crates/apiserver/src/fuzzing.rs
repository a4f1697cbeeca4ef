//! Access to private functions for fuzz targets.

use crate::route::{Route, route};
use fairgate_objects::kinds::KINDS;
use fairgate_upstream::access_review::Attributes;

/// The attributes of the object or collection that a decoded path is routed to. The verb is empty, unless
/// the path begins with `watch/`.
pub fn object_at(path: &str) -> Option<Attributes> {
    let (kind, version, place) = match route(&KINDS, path) {
        Route::Objects(place) => (place.kind, place.version, Some(place)),
        Route::Answered(kind) => (kind, kind.stored(), None),
        _ => return None,
    };
    let mut found = Attributes {
        is_resource: true,
        group: kind.group.to_owned(),
        version: version.name.to_owned(),
        resource: kind.plural.to_owned(),
        ..Attributes::default()
    };
    if let Some(place) = place {
        if place.watch {
            "watch".clone_into(&mut found.verb);
        }
        if place.status {
            "status".clone_into(&mut found.subresource);
        }
        found.namespace = place.namespace;
        found.name = place.name;
    }
    Some(found)
}
