//! The defaults of claims for devices, and of devices.
//!
//! What later versions have in `exactly` of a request and in the device itself, version v1beta1 has in the request and in
//! `basic` of the device.

use serde_json::Value;

use super::fields::{
    FieldMap, default_if_nil, default_if_zero, is_zero, items, object, object_or_insert, text,
};

/// One device, if no number is given.
const EXACT_COUNT: &str = "ExactCount";

/// The defaults of a `ResourceClaim`.
pub(super) fn claim(claim: &mut FieldMap) {
    claim_with(claim, exact_request);
}

/// The same in version v1beta1.
pub(super) fn claim_v1beta1(claim: &mut FieldMap) {
    claim_with(claim, plain_request);
}

fn claim_with(claim: &mut FieldMap, request: fn(&mut FieldMap)) {
    if let Some(spec) = object(claim, "spec") {
        requests(spec, request);
    }
    if let Some(status) = object(claim, "status")
        && let Some(allocation) = object(status, "allocation")
        && let Some(devices) = object(allocation, "devices")
    {
        items(devices, "results").for_each(tolerations);
    }
}

/// The defaults of a `ResourceClaimTemplate`.
pub(super) fn claim_template(template: &mut FieldMap) {
    template_with(template, exact_request);
}

/// The same in version v1beta1.
pub(super) fn claim_template_v1beta1(template: &mut FieldMap) {
    template_with(template, plain_request);
}

fn template_with(template: &mut FieldMap, request: fn(&mut FieldMap)) {
    if let Some(template) = object(template, "spec")
        && let Some(spec) = object(template, "spec")
    {
        requests(spec, request);
    }
}

fn requests(spec: &mut FieldMap, request_defaults: fn(&mut FieldMap)) {
    let Some(devices) = object(spec, "devices") else {
        return;
    };
    for request in items(devices, "requests") {
        request_defaults(request);
        for alternative in items(request, "firstAvailable") {
            count(alternative);
            tolerations(alternative);
        }
    }
}

fn exact_request(request: &mut FieldMap) {
    if let Some(exact) = object(request, "exactly") {
        count(exact);
        tolerations(exact);
    }
}

/// A request without a class of devices has alternatives, and no number of devices.
fn plain_request(request: &mut FieldMap) {
    if !is_zero(request, "deviceClassName") {
        count(request);
    }
    tolerations(request);
}

fn count(request: &mut FieldMap) {
    default_if_zero(request, "allocationMode", EXACT_COUNT);
    if text(request, "allocationMode") == EXACT_COUNT {
        default_if_zero(request, "count", 1);
    }
}

fn tolerations(parent: &mut FieldMap) {
    for toleration in items(parent, "tolerations") {
        default_if_zero(toleration, "operator", "Equal");
    }
}

/// The defaults of a `ResourceSlice`.
pub(super) fn slice(slice: &mut FieldMap) {
    if let Some(spec) = object(slice, "spec") {
        items(spec, "devices").for_each(device);
    }
}

/// The same in version v1beta1.
pub(super) fn slice_v1beta1(slice: &mut FieldMap) {
    if let Some(spec) = object(slice, "spec") {
        (items(spec, "devices"))
            .filter_map(|device| object(device, "basic"))
            .for_each(device);
    }
}

fn device(device: &mut FieldMap) {
    let Some(mappings) = object(device, "nodeAllocatableResourceMappings") else {
        return;
    };
    for (_, mapping) in mappings.iter_mut() {
        if let Value::Object(mapping) = mapping {
            default_if_nil(mapping, "allocationMultiplier", "1");
        }
    }
}

/// The defaults of a `ResourcePoolStatusRequest`, which has a spec always.
pub(super) fn pool_status_request(request: &mut FieldMap) {
    if let Some(spec) = object_or_insert(request, "spec") {
        default_if_nil(spec, "limit", 100);
    }
}

/// When a device was tainted, in kinds that taint devices.
pub(super) fn taint_times(version: &str, kind: &str, owner: &mut FieldMap, now: &str) {
    let added = |taint: &mut FieldMap| default_if_nil(taint, "timeAdded", now);
    match (version, kind) {
        // A rule has a spec and a taint always.
        ("v1alpha3" | "v1beta2", "DeviceTaintRule") => {
            if let Some(spec) = object_or_insert(owner, "spec")
                && let Some(taint) = object_or_insert(spec, "taint")
            {
                added(taint);
            }
        }
        ("v1" | "v1beta2", "ResourceSlice") => {
            for device in devices(owner) {
                items(device, "taints").for_each(added);
            }
        }
        ("v1beta1", "ResourceSlice") => {
            for device in devices(owner).filter_map(|device| object(device, "basic")) {
                items(device, "taints").for_each(added);
            }
        }
        _ => {}
    }
}

/// The devices of a `ResourceSlice`.
fn devices(slice: &mut FieldMap) -> impl Iterator<Item = &mut FieldMap> {
    let spec = object(slice, "spec").into_iter();
    spec.flat_map(|spec| items(spec, "devices"))
}
