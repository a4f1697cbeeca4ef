//! Reads `hostedApi` and `store`: the API of the policy objects with its quotas, and where they are stored.

use std::path::PathBuf;

use serde_json::Value;

use super::pem_files;
use crate::{
    config::{GatewayMode, HostedApiConfig, HostedQuotaConfig, ObjectQuota, StoreConfig},
    etcd::{EtcdConfig, EtcdFiles, password},
    file_version::FileVersion,
    pem,
    secret::Secret,
    section::ConfigSection,
    url::UpstreamUrl,
    values::{self, InvalidValue, Keyword},
};

/// What is wrong with `etcd` as a value where it is not built in.
pub(super) const WITHOUT_ETCD: &str = "this fairgate was built without etcd";

pub(super) fn hosted_api(section: &mut ConfigSection<'_>) -> HostedApiConfig {
    HostedApiConfig {
        kubernetes_version: section.get_with("kubernetesVersion", kubernetes_version),
        reader_groups: section.get("readerGroups"),
        authorized_ttl: section.get("authorizedTTL"),
        unauthorized_ttl: section.get("unauthorizedTTL"),
        body_budget: section.get("bodyBudget"),
        quota: section.section("quota", quota),
    }
}

/// The keys of the quotas of kinds.
const QUOTAS: [&str; 5] = [
    "flowSchemas",
    "podDisruptionBudgets",
    "priorityLevelConfigurations",
    "validatingAdmissionPolicies",
    "validatingAdmissionPolicyBindings",
];

fn quota(section: &mut ConfigSection<'_>) -> HostedQuotaConfig {
    let mut read = |key| {
        section.section(key, |quota| ObjectQuota {
            objects: limit(quota.get::<u32>("objects").into()),
            bytes: limit(quota.get("bytes")),
        })
    };
    HostedQuotaConfig {
        kinds: QUOTAS.map(|key| (key, read(key))).into(),
        total: read("total"),
    }
}

/// 0 stands for no limit.
fn limit(written: u64) -> Option<u64> {
    (written > 0).then_some(written)
}

/// Where the last good policies are kept by default: beside the store, if the gateway has one of its own.
pub(super) fn default_state(mode: GatewayMode, store: &StoreConfig) -> Option<PathBuf> {
    match store {
        StoreConfig::Local { path } if mode.hosts() => Some(path.with_file_name("state")),
        StoreConfig::Local { .. } | StoreConfig::Etcd(_) => None,
    }
}

pub(super) fn store(section: &mut ConfigSection<'_>) -> StoreConfig {
    let kind = section.get("type");
    let path = section.section("local", |local| {
        let path = local.path("path");
        path.unwrap_or_else(|| local.reader.relative_path("fairgate.redb"))
    });
    let etcd = section.section("etcd", etcd_client);
    match kind {
        StoreKind::Local => StoreConfig::Local { path },
        StoreKind::Etcd => {
            if !cfg!(feature = "etcd") {
                let field = section.field("type");
                let remedy = "build it with --features etcd, or use local";
                section.reader.error(&field, WITHOUT_ETCD, remedy);
            }
            let field = section.field("etcd.endpoints");
            if etcd.endpoints.is_empty() && !section.reader.has_error(&field) {
                section.reader.error(
                    &field,
                    "empty",
                    "name at least one, such as https://etcd-0:2379",
                );
            }
            StoreConfig::Etcd(etcd)
        }
    }
}

/// `v1.36.3`: clients parse it as a semantic version.
fn kubernetes_version(value: &Value) -> Result<String, InvalidValue> {
    let text = values::text(value)?;
    let numbers = text.strip_prefix('v').map(|rest| rest.split('.'));
    let is_version = numbers.is_some_and(|numbers| {
        let numbers: Vec<&str> = numbers.collect();
        let is_number = |part: &&str| {
            !part.is_empty() && part.len() < 6 && part.bytes().all(|byte| byte.is_ascii_digit())
        };
        numbers.len() == 3 && numbers.iter().all(is_number)
    });
    if is_version {
        return Ok(text);
    }
    Err(InvalidValue::new(
        format!("{text:?} is not a Kubernetes version"),
        "write it as v1.36.3",
    ))
}

/// How an etcd is reached.
pub(super) fn etcd_client(section: &mut ConfigSection<'_>) -> EtcdConfig {
    let endpoints = section.get_with("endpoints", endpoints);
    let prefix = section.get_with("prefix", etcd_prefix);
    let ca_path = section.path("caFile");
    let authorities = ca_path.as_ref().and_then(|path| {
        pem_files::read_file(section, "caFile", path, |text| {
            pem::authorities(path, text).map(|bundle| (text.to_vec(), bundle.file))
        })
    });
    let client = section.section("clientCertificate", pem_files::certificate_and_key_pem);
    validate_scheme(section, &endpoints, ca_path.is_some(), client.is_some());
    let user = section.get::<String>("user");
    let password_file = section.path("passwordFile");
    let password = password_file.as_ref().and_then(|path| {
        pem_files::read_file(section, "passwordFile", path, |contents| {
            password(contents).map(|password| (password, FileVersion::new(path, contents)))
        })
    });
    if user.is_empty() != password_file.is_none() {
        let field = section.field("user");
        section.reader.error(
            &field,
            "user and passwordFile must be set together",
            "set both, or neither",
        );
    }
    let (authorities_pem, authorities) = authorities.unzip();
    let (client_pem, client) = client.unzip();
    let (password, password_file) = password.filter(|_| !user.is_empty()).unzip();
    EtcdConfig {
        endpoints,
        prefix,
        authorities_pem,
        client_pem,
        user: password.map(|password| (user, Secret::new(password))),
        compaction: section.get("compaction"),
        files: Box::new(EtcdFiles {
            authorities,
            client,
            password: password_file,
        }),
    }
}

/// Endpoints speak TLS, with a CA that verifies them, or all speak plain HTTP without certificates.
fn validate_scheme(section: &mut ConfigSection<'_>, endpoints: &[String], ca: bool, client: bool) {
    let scheme = if ca { "https://" } else { "http://" };
    if let Some(wrong) = endpoints
        .iter()
        .find(|endpoint| !endpoint.starts_with(scheme))
    {
        let field = section.field("endpoints");
        let (problem, remedy) = if ca {
            (
                "is not https, and caFile is set",
                "write https://, or remove caFile",
            )
        } else {
            (
                "is https, and caFile is not set",
                "set caFile: the system's CAs are not used",
            )
        };
        section
            .reader
            .error(&field, format!("{wrong:?} {problem}"), remedy);
    } else if client && !ca && !endpoints.is_empty() {
        let field = section.field("clientCertificate");
        let problem = "the endpoints do not speak TLS, so no certificate is shown";
        section
            .reader
            .error(&field, problem, "remove it, or use https and set caFile");
    }
}

fn endpoints(value: &Value) -> Result<Vec<String>, InvalidValue> {
    let endpoints = values::texts(value)?;
    let wrong = (endpoints.iter()).find_map(|endpoint| UpstreamUrl::parse(endpoint).err());
    match wrong {
        None => Ok(endpoints),
        Some(InvalidValue { problem, .. }) => Err(InvalidValue::new(
            problem,
            "write it as https://host:2379; user and passwordFile have the credential",
        )),
    }
}

fn etcd_prefix(value: &Value) -> Result<String, InvalidValue> {
    let prefix = values::text(value)?;
    let rest = prefix.strip_prefix('/').unwrap_or_default();
    let is_path = !rest.is_empty() && rest.split('/').all(|segment| !segment.is_empty());
    if is_path && rest != "registry" && !rest.starts_with("registry/") {
        return Ok(prefix);
    }
    Err(InvalidValue::new(
        format!("{prefix:?} is not a valid prefix"),
        "write a path such as /fairgate; /registry belongs to kube-apiserver",
    ))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StoreKind {
    Local,
    Etcd,
}

impl Keyword for StoreKind {
    const WORDS: &'static [(&'static str, Self)] = &[("local", Self::Local), ("etcd", Self::Etcd)];
}
