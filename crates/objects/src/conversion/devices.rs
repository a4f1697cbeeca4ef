//! Claims for devices, and devices: version v1beta1 has in a request what later versions have in its `exactly`, and in `basic`
//! of a device what they have in the device itself.
//!
//! A list that is there and empty counts as absent, as everywhere in canonical form. In a server, such a list in a request of
//! version v1beta1 makes an `exactly` without a class of devices, which validation refuses.

use serde_json::{Map, Value, json};

/// What a request for devices of one class has, besides its name.
const REQUEST: [&str; 7] = [
    "deviceClassName",
    "selectors",
    "allocationMode",
    "count",
    "adminAccess",
    "tolerations",
    "capacity",
];

const CLAIM_REQUESTS: &str = "/spec/devices/requests";
const TEMPLATE_REQUESTS: &str = "/spec/spec/devices/requests";
const DEVICES: &str = "/spec/devices";

/// A `ResourceClaim` of version v1beta1 in a later one.
pub(super) fn claim_of_v1beta1(claim: Value) -> Value {
    with_each(claim, CLAIM_REQUESTS, group_request)
}

/// The other way.
pub(super) fn claim_to_v1beta1(claim: Value) -> Value {
    with_each(claim, CLAIM_REQUESTS, spread_request)
}

/// A `ResourceClaimTemplate` of version v1beta1 in a later one.
pub(super) fn template_of_v1beta1(template: Value) -> Value {
    with_each(template, TEMPLATE_REQUESTS, group_request)
}

/// The other way.
pub(super) fn template_to_v1beta1(template: Value) -> Value {
    with_each(template, TEMPLATE_REQUESTS, spread_request)
}

/// A `ResourceSlice` of version v1beta1 in a later one. That a slice has no name of a node, or is not for all nodes, is an
/// absent field there, and a zero one here: canonical form does that.
pub(super) fn slice_of_v1beta1(slice: Value) -> Value {
    with_each(slice, DEVICES, |device| {
        if let Some(Value::Object(basic)) = device.remove("basic") {
            device.extend(basic);
        }
    })
}

/// The other way.
pub(super) fn slice_to_v1beta1(slice: Value) -> Value {
    with_each(slice, DEVICES, |device| {
        let name = device.remove_entry("name");
        let basic = std::mem::take(device);
        device.extend(name);
        device.insert("basic".to_owned(), Value::Object(basic));
    })
}

/// The object with all items of the list at `path` changed.
fn with_each(object: Value, path: &str, change: fn(&mut Map<String, Value>)) -> Value {
    let mut object = object;
    let items = object.pointer_mut(path).and_then(Value::as_array_mut);
    (items.into_iter().flatten())
        .filter_map(Value::as_object_mut)
        .for_each(change);
    object
}

/// A request that has nothing but alternatives has no `exactly`.
fn group_request(request: &mut Map<String, Value>) {
    let taken = REQUEST
        .iter()
        .filter_map(|name| request.remove_entry(*name));
    let exactly: Map<String, Value> = taken.filter(|(_, value)| value != "").collect();
    if !exactly.is_empty() {
        request.insert("exactly".to_owned(), json!(exactly));
    }
}

fn spread_request(request: &mut Map<String, Value>) {
    if let Some(Value::Object(exactly)) = request.remove("exactly") {
        request.extend(exactly);
    }
}
