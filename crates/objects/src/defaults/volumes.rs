//! The defaults of volumes of pods, of persistent volumes and of claims for them.

use serde_json::{Map, Value};

use super::{
    fields::{
        FieldMap, default_if_nil, default_if_zero, is_zero, items, object, object_or_insert, text,
    },
    image::default_pull_policy,
    resources::{round, round_requirements},
};

/// Who may read files of a volume by default: its owner writes, all read.
const MODE: i32 = 0o644;

/// Validity of a token in a volume, in seconds.
const TOKEN_SECONDS: i64 = 3600;

/// The defaults of a pod's volume.
pub(super) fn volume(volume: &mut FieldMap) {
    let has_source = (volume.iter()).any(|(name, source)| name != "name" && !source.is_null());
    if !has_source {
        volume.insert("emptyDir".to_owned(), Value::Object(Map::new()));
        return;
    }
    if let Some(image) = object(volume, "image")
        && is_zero(image, "pullPolicy")
    {
        let policy = default_pull_policy(text(image, "reference"));
        image.insert("pullPolicy".to_owned(), policy.into());
    }
    for name in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = object(volume, name) {
            default_if_nil(source, "defaultMode", MODE);
        }
    }
    if let Some(source) = object(volume, "downwardAPI") {
        downward_files(source);
    }
    if let Some(projected) = object(volume, "projected") {
        for source in items(projected, "sources") {
            if let Some(source) = object(source, "downwardAPI") {
                downward_files(source);
            }
            if let Some(token) = object(source, "serviceAccountToken") {
                default_if_nil(token, "expirationSeconds", TOKEN_SECONDS);
            }
        }
    }
    disks(volume);
    if let Some(ephemeral) = object(volume, "ephemeral")
        && let Some(template) = object(ephemeral, "volumeClaimTemplate")
        && let Some(spec) = object_or_insert(template, "spec")
    {
        claim_spec(spec);
    }
}

fn downward_files(source: &mut FieldMap) {
    for file in items(source, "items") {
        if let Some(field) = object(file, "fieldRef") {
            field_selector(field);
        }
    }
}

/// The defaults of a reference to a field of a pod.
pub(super) fn field_selector(field: &mut FieldMap) {
    default_if_zero(field, "apiVersion", "v1");
}

/// The defaults of sources that both pods' volumes and persistent volumes may have.
pub(super) fn disks(source: &mut FieldMap) {
    if let Some(path) = object(source, "hostPath") {
        default_if_nil(path, "type", "");
    }
    if let Some(disk) = object(source, "iscsi") {
        default_if_zero(disk, "iscsiInterface", "default");
    }
    if let Some(disk) = object(source, "rbd") {
        default_if_zero(disk, "pool", "rbd");
        default_if_zero(disk, "user", "admin");
        default_if_zero(disk, "keyring", "/etc/ceph/keyring");
    }
    if let Some(disk) = object(source, "azureDisk") {
        default_if_nil(disk, "cachingMode", "ReadWrite");
        default_if_nil(disk, "fsType", "ext4");
        default_if_nil(disk, "readOnly", false);
        default_if_nil(disk, "kind", "Shared");
    }
    if let Some(disk) = object(source, "scaleIO") {
        default_if_zero(disk, "storageMode", "ThinProvisioned");
        default_if_zero(disk, "fsType", "xfs");
    }
}

/// The defaults of what a claim asks for.
fn claim_spec(spec: &mut FieldMap) {
    default_if_nil(spec, "volumeMode", "Filesystem");
    round_requirements(spec, "resources");
}

/// The defaults of a claim.
pub(super) fn claim(claim: &mut FieldMap) {
    if let Some(spec) = object_or_insert(claim, "spec") {
        claim_spec(spec);
    }
    if let Some(status) = object_or_insert(claim, "status") {
        default_if_zero(status, "phase", "Pending");
        round(status, "capacity");
        round(status, "allocatedResources");
    }
}

/// The defaults of a persistent volume.
pub(super) fn persistent_volume(volume: &mut FieldMap) {
    if let Some(status) = object_or_insert(volume, "status") {
        default_if_zero(status, "phase", "Pending");
    }
    if let Some(spec) = object_or_insert(volume, "spec") {
        default_if_zero(spec, "persistentVolumeReclaimPolicy", "Retain");
        default_if_nil(spec, "volumeMode", "Filesystem");
        persistent_source(spec);
    }
}

/// The defaults of a persistent volume that may be part of another object.
pub(super) fn persistent_source(spec: &mut FieldMap) {
    round(spec, "capacity");
    disks(spec);
}
