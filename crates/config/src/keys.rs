//! Every key of the configuration, declared once: its default, its range, whether a reload applies it, and what it means.
//!
//! The reader takes the defaults and ranges from here. `config/fairgate.yaml` and `docs/reference/configuration.md` are
//! made from it, in this order. All values are written as in the file, and read by the same code.
//!
//! Not here: how a value is written, which follows from the type of the setting ([`super::values`]), and what several keys
//! must fulfil together ([`super::validate`]).

use fairgate_manifest::yaml;
use serde_json::Value;

/// A key of the configuration, or a mapping of keys.
#[derive(Clone, Copy, Debug)]
pub struct ConfigKey {
    /// The full path, such as `limits.connections`.
    pub path: &'static str,
    /// The lines that explain it, each as it follows `#` in a comment. Without any, it is explained with a key before it, or
    /// with the mapping that it is in.
    pub text: &'static [&'static str],
    /// The default, as written in the file; empty text is written `""`. `None` for a mapping.
    pub default: Option<&'static str>,
    /// The least and the greatest value, where it has bounds.
    pub range: Option<[&'static str; 2]>,
    /// Whether a reload applies it; otherwise it needs a restart.
    pub reload: bool,
    /// Whether it names a file whose changed contents are used without a reload.
    pub followed: bool,
}

impl ConfigKey {
    const fn new(path: &'static str, text: &'static [&'static str]) -> Self {
        Self {
            path,
            text,
            default: None,
            range: None,
            reload: false,
            followed: false,
        }
    }

    const fn default(mut self, default: &'static str) -> Self {
        self.default = Some(default);
        self
    }

    const fn range(mut self, low: &'static str, high: &'static str) -> Self {
        self.range = Some([low, high]);
        self
    }

    const fn reload(mut self) -> Self {
        self.reload = true;
        self
    }

    const fn followed(mut self) -> Self {
        self.followed = true;
        self
    }
}

/// The key with this path, which must be declared.
pub(super) fn declared(path: &str) -> &'static ConfigKey {
    let mut keys = KEYS.iter().filter(|key| key.default.is_some());
    keys.find(|key| key.path == path)
        .unwrap_or_else(|| unreachable!("{path} is read, and not declared as a key"))
}

/// The value that is written so.
pub(super) fn value(written: &str) -> Value {
    let documents = yaml::documents(written.as_bytes()).expect("declared values are YAML");
    // No document is the empty text.
    let value = documents.into_iter().next();
    value.unwrap_or_else(|| Value::String(String::new()))
}

/// The table: the text of each key as a comment, then its path and default, `in` its range, and `reload` or `followed`.
macro_rules! keys {
    ($($(#[doc = $text:literal])* $path:literal
       $(: $default:literal $(in $low:literal to $high:literal)? $(, $flag:ident)?)?;)*) => {
        /// All keys and mappings, in the order of the sample.
        pub static KEYS: &[ConfigKey] = &[$(
            ConfigKey::new($path, &[$($text),*])$(.default($default)$(.range($low, $high))?$(.$flag())?)?
        ),*];
    };
}

keys! {
    /// The source of the policy objects (FlowSchemas, PriorityLevelConfigurations):
    ///   files       flowControl.policies.directory; all requests go to the upstream.
    ///   standalone  the gateway's own API, which kubectl can use. All other requests go to the upstream, if
    ///               upstream.url names one.
    ///   overlay     the gateway's own API, in the place of the upstream's.
    ///   sidecar     the upstream's API, followed by watch. The gateway's user needs permission to get, list
    ///               and watch the objects. If the upstream is unavailable, the last good policy stays.
    "mode": "files";
    /// Where clients connect.
    "listen";
    /// IP address and port. With port 0 the system chooses one, and the gateway logs it.
    "listen.address": "127.0.0.1:8443";
    /// The serving certificate (PEM, leaf first, then the chain) and its unencrypted key (followed). Without
    /// them the gateway serves plain HTTP: for testing, or behind a proxy on the same host that terminates TLS.
    "listen.tls";
    "listen.tls.certFile": "", followed;
    "listen.tls.keyFile": "", followed;
    /// The API server behind the gateway.
    "upstream";
    /// https://host:port, or http:// for a server on this host. The default is the address of `kubectl
    /// proxy`, for easy trials. Set it to the address of your kube-apiserver. With mode: standalone, the
    /// default means that there is no upstream.
    "upstream.url": "http://127.0.0.1:8001";
    /// Several API servers of one cluster, instead of upstream.url:
    ///   - url: https://10.0.0.1:6443
    ///     seats: 600             # default: an equal part of flowControl.totalSeats
    ///     resolve: false         # true: each address of the name is a server; the name is resolved every 5 s
    ///     caFile: ""             # default: upstream.caFile; its changed contents are used at once
    ///     tlsServerName: ""      # default: upstream.tlsServerName
    /// A request goes to the least loaded server that is healthy, within its seats. See docs/servers.md.
    "upstream.servers": "[]";
    /// How requests are spread over several servers. connection: all requests of a client's connection go to one
    /// server while that has room, so a client that writes and then lists with resourceVersion=0 sees its
    /// write, as far as one server promises that. request: each goes to the least loaded server.
    "upstream.spread": "connection";
    /// CA certificates (PEM) that verify the server's certificate (followed). Required with https:
    /// verification cannot be switched off.
    "upstream.caFile": "", followed;
    /// The name in the server's certificate, if it differs from the host in the URL.
    "upstream.tlsServerName": "";
    /// The gateway's own credential: a client certificate (PEM) with its unencrypted key, or a file with a
    /// bearer token (all followed). Open connections keep the certificate they were opened with.
    "upstream.clientCertificate";
    "upstream.clientCertificate.certFile": "", followed;
    "upstream.clientCertificate.keyFile": "", followed;
    "upstream.tokenFile": "", followed;
    /// How the gateway passes the client's identity to the server.
    "upstream.identity";
    /// impersonate: Impersonate-* headers. Works with every server, and RBAC limits which identities the
    /// gateway can use. requestHeader: as a front proxy, with a certificate of the server's
    /// --requestheader-client-ca-file. Costs the server no authorization, but the holder of that
    /// certificate can act as any user.
    "upstream.identity.mode": "impersonate";
    /// requestHeader only: the header names that the server is configured with
    /// (--requestheader-*-headers).
    "upstream.identity.usernameHeader": "X-Remote-User";
    "upstream.identity.uidHeader": "X-Remote-Uid";
    "upstream.identity.groupHeader": "X-Remote-Group";
    "upstream.identity.extraHeaderPrefix": "X-Remote-Extra-";
    /// requestHeader only: the user name of the gateway for requests in its own name (token reviews,
    /// metrics). Grant this user the permissions; with impersonate they belong to the credential.
    "upstream.identity.gatewayUser": "fairgate";
    /// auto: HTTP/2 if TLS negotiates it, otherwise HTTP/1.1. http1, http2: only that protocol.
    "upstream.protocol": "auto";
    /// Concurrent requests on one HTTP/2 connection; further requests open another one. kube-apiserver
    /// allows 100.
    "upstream.maxStreams": "100" in "1" to "100000";
    /// Concurrent HTTP/2 connections of all cores together, for each kind of traffic. Ordinary requests,
    /// watches, other long-running requests and requests without credentials have separate connections,
    /// opened as needed. If all are full, a watch gets 429, another long-running request gets 503, and an
    /// ordinary request waits for a stream.
    "upstream.maxConnections": "512" in "1" to "100000";
    /// How clients authenticate. Several methods can be enabled. A request with an invalid credential is
    /// refused and never treated as anonymous.
    "authentication";
    /// Client certificates signed by these CAs (PEM): the common name is the user, organizations are the
    /// groups. Needs listen.tls.
    "authentication.clientCertificate";
    "authentication.clientCertificate.caFile": "", reload;
    /// A front proxy that names its clients in headers. It must present a certificate signed by these CAs
    /// (PEM) whose common name is allowed; an empty list allows every name. Never use the CA of ordinary
    /// clients. Needs listen.tls.
    "authentication.requestHeader";
    "authentication.requestHeader.caFile": "", reload;
    "authentication.requestHeader.allowedNames": "[]", reload;
    "authentication.requestHeader.usernameHeaders": "[X-Remote-User]", reload;
    "authentication.requestHeader.uidHeaders": "[X-Remote-Uid]", reload;
    "authentication.requestHeader.groupHeaders": "[X-Remote-Group]", reload;
    "authentication.requestHeader.extraHeaderPrefixes": "[X-Remote-Extra-]", reload;
    /// A CSV file of static tokens: token,user,uid,"group1,group2". For tests and emergencies.
    "authentication.tokenFile": "", reload;
    /// Bearer tokens of any kind, reviewed by the upstream. The gateway's user needs permission to create
    /// tokenreviews.
    "authentication.tokenReview";
    "authentication.tokenReview.enabled": "true";
    /// Audiences to request; empty means the upstream's own.
    "authentication.tokenReview.audiences": "[]";
    /// How long one review may take.
    "authentication.tokenReview.timeout": "10s" in "1ms" to "1m";
    /// How long results are cached: cacheTTL for accepted, refusalTTL for refused tokens. A revoked token
    /// stays valid for up to cacheTTL. 0s disables the cache.
    "authentication.tokenReview.cacheTTL": "10s" in "0s" to "10s";
    "authentication.tokenReview.refusalTTL": "10s" in "0s" to "2m";
    /// Requests without a credential, as system:anonymous: for exactly these paths, or for all paths with
    /// ["*"]. Allow no more than the upstream does. With mode: standalone, /version is allowed by default.
    "authentication.anonymous";
    "authentication.anonymous.enabled": "true", reload;
    "authentication.anonymous.paths": "[/livez, /readyz, /healthz]", reload;
    /// API Priority and Fairness.
    "flowControl";
    /// enforce: requests wait and are rejected as decided. observe: decisions are made, counted and logged,
    /// but every request is forwarded at once; start with this. off: no decisions.
    "flowControl.enforcement": "enforce", reload;
    /// Improved: flows take turns, whatever the width and duration of their requests, and idle seats are lent
    /// at once. Compatible: as in kube-apiserver, known defects included, to compare both.
    "flowControl.semantics": "Improved", reload;
    /// The server concurrency limit in seats, distributed among the priority levels. In kube-apiserver it is
    /// --max-requests-inflight plus --max-mutating-requests-inflight, by default 400 + 200: use the value
    /// of the server behind the gateway. The limit is per gateway: if several gateways share one server,
    /// divide it among them.
    "flowControl.totalSeats": "600" in "1" to "10000000", reload;
    /// What the flows of one tenant weigh together at most in a level, where a flow weighs 1; only with Improved.
    /// A tenant is a user, or the service accounts of a namespace. The more, the more a tenant gains by
    /// spreading its requests over several flows; with 1 it gains nothing. See docs/fair-shares.md.
    "flowControl.tenantWeight": "4" in "1" to "1000", reload;
    /// Key of the hash that deals flows to queues: 32 hex digits (`openssl rand -hex 16`), here or in a file.
    /// Keep it secret: with the key, a client can aim at the queues of another flow. By default each
    /// process generates its own. Set it if several gateways or `fairgate explain` should assign queues alike.
    "flowControl.hashKey": "";
    "flowControl.hashKeyFile": "";
    /// Built-in objects. suggested: the priority levels and FlowSchemas of a new cluster. mandatory: only
    /// `exempt` and `catch-all`. Objects from files override them by the rules of Kubernetes.
    "flowControl.bootstrap": "suggested";
    /// FlowSchemas and PriorityLevelConfigurations: the .yaml, .yml and .json files in this directory, in the
    /// form that kubectl prints. If one object is invalid, the whole set is refused and the last good one
    /// stays.
    "flowControl.policies";
    "flowControl.policies.directory": "", reload;
    /// How often the limits of the levels are adjusted to their demand. "" means 10s with Compatible and
    /// 100ms with Improved, which also adjusts them when a request has to wait or is rejected.
    "flowControl.borrowingPeriod": "" in "100ms" to "1h", reload;
    /// Several gateways that share flowControl.totalSeats, so that together they never use more, and a user who sends to all of them
    /// gets one share: see docs/fleet.md. All gateways must have the same values, except gateway.
    "fleet";
    /// Where the gateways keep what they tell each other. none: this gateway has all seats for itself. kubernetes: Lease objects of
    /// the upstream, read twice a second. etcd: keys of an etcd, read ten times a second; only in builds with the Cargo feature
    /// `etcd`. Whoever may write them controls the limits of all gateways.
    "fleet.engine": "none";
    /// The name of the fleet; the names of its objects begin with it. Each fleet in a namespace needs a name of its own.
    "fleet.name": "fairgate";
    /// The name of this gateway; "" is the name of the host, which in a StatefulSet is that of the pod. No two gateways that run at
    /// the same time may have the same name, and a gateway keeps its name when it is restarted.
    "fleet.gateway": "";
    /// The names of all gateways; with [], gateways may have any names, up to maxGateways different ones.
    "fleet.members": "[]";
    /// The most gateways, by name, if members is not set.
    "fleet.maxGateways": "3" in "1" to "100";
    /// The seats that each gateway keeps when it is cut off from the others. So many times maxGateways cannot follow demand. With
    /// fewer than there are priority levels, levels take turns while a gateway is cut off.
    "fleet.isolatedSeats": "1" in "1" to "100000";
    /// When the seats of a gateway that is no longer heard from are given to others. strict: after requestLimit, when no
    /// server can still work on its requests. prompt: as soon as it has certainly stopped sending requests, after 11 s; for
    /// requestLimit, the servers may then have more to do than flowControl.totalSeats.
    "fleet.reclaim": "strict";
    /// The longest time for which a server goes on with a request after its gateway is gone: the request limit of the
    /// servers (--request-timeout of kube-apiserver). At least timeouts.request.
    "fleet.requestLimit": "60s" in "1ms" to "24h";
    /// kubernetes only: the namespace of the objects, best one that contains nothing else.
    "fleet.kubernetes";
    "fleet.kubernetes.namespace": "fairgate";
    /// etcd only.
    "fleet.etcd";
    /// https://host:2379 of each member. [] means the etcd of the hosted objects (store.etcd), with its credentials.
    "fleet.etcd.endpoints": "[]";
    /// Prefix of all keys; those of a fleet are below it under the fleet's name. Not below store.etcd.prefix.
    "fleet.etcd.prefix": "/fairgate-fleets";
    /// CA certificates (PEM) that verify the certificates of the members (followed). Required with https, not allowed with http.
    "fleet.etcd.caFile": "", followed;
    /// The gateway's client certificate (PEM) with its unencrypted key (followed).
    "fleet.etcd.clientCertificate";
    "fleet.etcd.clientCertificate.certFile": "", followed;
    "fleet.etcd.clientCertificate.keyFile": "", followed;
    /// A user of the etcd; with passwordFile, or without both.
    "fleet.etcd.user": "";
    /// The file with the user's password (followed).
    "fleet.etcd.passwordFile": "", followed;
    /// Whether the gateways compact history older than five minutes, of the whole etcd cluster. For an etcd that is the fleet's alone and does not
    /// compact by itself (--auto-compaction-retention); without endpoints, store.etcd.compaction decides.
    "fleet.etcd.compaction": "false";
    /// Evictions of pods (POST to the subresource eviction), which PodDisruptionBudgets may refuse.
    "eviction";
    /// relay: the upstream decides. precheck: the upstream decides, but what it would certainly refuse is
    /// refused here, after reading the pod and its budgets. authoritative: the gateway decides, charges the
    /// budget and deletes the pod; for an upstream that stores pods and budgets but does not enforce them.
    /// precheck and authoritative need permissions in the upstream: see docs/evictions.md.
    "eviction.mode": "relay";
    /// on: the gateway computes the status of PodDisruptionBudgets, as the disruption controller of
    /// kube-controller-manager does; of several gateways, the one that holds a Lease. For an upstream without
    /// kube-controller-manager, and for budgets that the gateway hosts. It watches all pods and needs permissions in the
    /// upstream: see docs/evictions.md.
    "eviction.controller": "off";
    /// How much the selectors of a namespace's PodDisruptionBudgets may have together for this controller: requirements, values, and
    /// ten more for each budget. The oldest budgets count first. The others allow no eviction, and say so in their status.
    "eviction.selectorTerms": "100000" in "1000" to "100000000";
    /// With authoritative, evictions that their budget refuses can wait for it, in fair order, instead of
    /// being refused: see docs/evictions.md.
    "eviction.wait";
    /// The longest wait, from the arrival of the request; at most 1h. 0s: no eviction waits. It is not cut by
    /// timeouts.request, which limits each attempt instead. A client may ask for less, with the header
    /// X-Fairgate-Eviction-Wait or by its own ?timeout=. Where Karpenter drives, at most 30s: it looks at its deadlines
    /// only between two calls.
    "eviction.wait.limit": "0s" in "0s" to "1h";
    /// Whose evictions wait: users, and groups, such as system:authenticated. Clients need no change for this.
    "eviction.wait.users": "[]";
    "eviction.wait.groups": "[]";
    /// Users whose evictions never wait although they are chosen: of controllers that ask again by themselves and need
    /// the answer at once, such as those of imperative-eviction.
    "eviction.wait.exemptUsers": "[]";
    /// How many wait at a time for one budget, and in total; further ones are refused as without waiting.
    "eviction.wait.perBudget": "500" in "1" to "100000";
    "eviction.wait.total": "1000" in "1" to "100000";
    /// Whether an event EvictionsWaiting on a budget says that evictions wait for it, and whose. fairgate's own user then
    /// needs create and patch of events in the upstream; without these permissions evictions wait all the same, and the log says so.
    "eviction.wait.events": "true";
    /// ValidatingAdmissionPolicies in front of an upstream, evaluated by the gateway on forwarded requests and on writes to hosted
    /// objects: see docs/admission.md.
    "admission";
    /// off: requests are not evaluated. audit: they are, and what the policies find is counted and recorded;
    /// nothing is refused, delayed or sent as a dry run. enforce: requests that a policy denies are refused, and
    /// clients get the warnings.
    "admission.mode": "off";
    /// Where the policies come from.
    "admission.policies";
    /// files: from the files and directories that are listed in files. hosted: from the gateway's own API, with mode
    /// standalone and overlay; clients manage the policies with kubectl. upstream: the upstream's own objects, for a server
    /// that stores policies but does not enforce them; before a kube-apiserver that does, each policy would be
    /// enforced twice. The last two are followed by watch; files are read again all the time. Changes are in force
    /// within a second, and the last good policies stay if new ones are invalid or cannot be read.
    "admission.policies.source": "files";
    /// For how long writes may be evaluated by policies that are not certain to be those of the source: it does not
    /// respond, or its policies are invalid or not compiled yet. After that, writes are refused with 503 until the policies are
    /// confirmed, but not requests for policies and their bindings. 0s: the last good policies stay in force for any time. At least
    /// 5s is sensible. The policies of an upstream are then listed again every third of this time.
    "admission.policies.maxStaleness": "0s" in "0s" to "24h";
    /// Files, and directories whose files end in .yaml, .yml or .json, with ValidatingAdmissionPolicies and
    /// ValidatingAdmissionPolicyBindings. Only these policies may evaluate requests for policies and bindings themselves.
    "admission.policies.files": "[]";
    /// How the object that a policy evaluates is obtained. asSent: the body, as the client sent it. completed: as
    /// the upstream would make it of the body, with defaults, and patches applied to the stored object. dryRun: the response
    /// of the upstream to the same request as a dry run, with mutations and server-side apply, too; each evaluated write is
    /// then sent twice. The annotation fairgate.dev/fidelity of a policy overrides this for the policy.
    "admission.fidelity": "completed";
    /// Whether writes that were evaluated by the stored object become conditional on it: if it has changed since, it is
    /// read and evaluated again, up to five times. Otherwise somebody else may change it between the evaluation and the write.
    /// A PUT that would create an object is then refused with 409.
    "admission.guard": "false";
    /// How up to date the namespaces and params are by which a write is evaluated. cached: as watches have delivered them, mostly within milliseconds;
    /// a write right after a change may be evaluated by the old ones. consistent: they are read from the upstream for each write that a policy may be
    /// about, which takes a request for each of them; if that fails, the write is refused.
    "admission.reads": "cached";
    /// Memory for the bodies of requests that may be subject to policies, and for the stored objects that are read for them,
    /// for each data core. A user may hold at most as many bytes as are still free; a request that needs more is refused with 429.
    "admission.bodyBudget": "64Mi" in "4Mi" to "64Gi";
    /// Threads for large bodies and for evaluations that take long, at a low priority; 0: half as many as data cores, so that
    /// the other half of the cores serves requests even while all of these threads work.
    "admission.workers": "0" in "0" to "256";
    /// The audit log of the policies.
    "admission.audit";
    /// The file to which one line of JSON is appended for each request that a policy denies, warns of or annotates, in the
    /// mode audit for each that it would have denied; - is standard output. It contains names and messages, never objects.
    /// Without an upstream, it is about writes to the objects that the gateway hosts.
    /// fairgate policy report counts it.
    "admission.audit.file": "";
    /// The size at which the file is renamed to FILE.1, an earlier FILE.1 to FILE.2, and so on.
    "admission.audit.maxSize": "100Mi" in "1Mi" to "64Gi";
    /// How many renamed files are kept.
    "admission.audit.maxFiles": "5" in "0" to "1000";
    /// The hosted API of the policy objects, with mode standalone and overlay.
    "hostedApi";
    /// The Kubernetes version that /version reports; clients infer from it what the server supports.
    /// "+fairgate" is appended.
    "hostedApi.kubernetesVersion": "v1.36.3";
    /// Groups whose members may read the objects, /metrics, and the results of rules reviews. Only members
    /// of system:masters may write. With overlay the upstream authorizes instead.
    "hostedApi.readerGroups": "[]";
    /// With overlay, the upstream authorizes requests for policy objects, and in every mode evictions that the
    /// gateway checks or carries out, and what expressions of admission policies ask the authorizer (SubjectAccessReview; the
    /// gateway's user needs permission to create subjectaccessreviews). How long allow and deny decisions are cached; at most
    /// 1h. A revoked permission stays valid for up to authorizedTTL.
    "hostedApi.authorizedTTL": "5m" in "0s" to "1h";
    "hostedApi.unauthorizedTTL": "30s" in "0s" to "1h";
    /// Memory for the bodies of requests for hosted objects, from their arrival until they are served. Users share it: a user may
    /// hold at most as many bytes as are still free; a request that needs more gets 429. A body has at most 3Mi.
    "hostedApi.bodyBudget": "64Mi" in "8Mi" to "64Gi";
    /// How many objects of each kind there may be, and how many bytes they may take as stored; 0: any number. Those of
    /// podDisruptionBudgets are for each namespace, the others for all objects of the kind. A write that would exceed one
    /// gets 403 "exceeded quota". What is over a quota already, in a store that is older than the quota, can be read,
    /// deleted and made smaller. Statuses count; clients that write them may exceed the bytes by half, and the gateway's
    /// own writes are never refused.
    "hostedApi.quota";
    "hostedApi.quota.flowSchemas";
    "hostedApi.quota.flowSchemas.objects": "20000";
    "hostedApi.quota.flowSchemas.bytes": "64Mi" in "0" to "1Ti";
    "hostedApi.quota.podDisruptionBudgets";
    "hostedApi.quota.podDisruptionBudgets.objects": "5000";
    "hostedApi.quota.podDisruptionBudgets.bytes": "16Mi" in "0" to "1Ti";
    "hostedApi.quota.priorityLevelConfigurations";
    "hostedApi.quota.priorityLevelConfigurations.objects": "5000";
    "hostedApi.quota.priorityLevelConfigurations.bytes": "16Mi" in "0" to "1Ti";
    "hostedApi.quota.validatingAdmissionPolicies";
    "hostedApi.quota.validatingAdmissionPolicies.objects": "5000";
    "hostedApi.quota.validatingAdmissionPolicies.bytes": "64Mi" in "0" to "1Ti";
    "hostedApi.quota.validatingAdmissionPolicyBindings";
    "hostedApi.quota.validatingAdmissionPolicyBindings.objects": "5000";
    "hostedApi.quota.validatingAdmissionPolicyBindings.bytes": "16Mi" in "0" to "1Ti";
    /// Everything in the store together. The memory of the gateway follows from it: see docs/standalone.md.
    "hostedApi.quota.total";
    "hostedApi.quota.total.objects": "200000";
    "hostedApi.quota.total.bytes": "256Mi" in "0" to "1Ti";
    /// Where the objects of the hosted API are stored.
    "store";
    /// local: in a file that only this gateway uses. etcd: in an etcd that several gateways can share.
    "store.type": "local";
    /// Only with the type local.
    "store.local";
    /// "" means fairgate.redb in the directory of this file.
    "store.local.path": "";
    /// Only in builds with the Cargo feature `etcd`.
    "store.etcd";
    /// https://host:2379 of each member.
    "store.etcd.endpoints": "[]";
    /// Prefix of all keys. Foreign keys below it are an error.
    "store.etcd.prefix": "/fairgate";
    /// CA certificates (PEM) that verify the certificates of the members (followed). Required with https, not allowed with http.
    "store.etcd.caFile": "", followed;
    /// The gateway's client certificate (PEM) with its unencrypted key (followed).
    "store.etcd.clientCertificate";
    "store.etcd.clientCertificate.certFile": "", followed;
    "store.etcd.clientCertificate.keyFile": "", followed;
    /// A user of the etcd; with passwordFile, or without both.
    "store.etcd.user": "";
    /// The file with the user's password (followed).
    "store.etcd.passwordFile": "", followed;
    /// Whether the gateways compact history older than five minutes, of the whole etcd cluster. Leave it
    /// off if the etcd serves others, or compacts by itself (--auto-compaction-retention).
    "store.etcd.compaction": "false";
    /// What the gateway keeps for its next start.
    "state";
    /// The directory of the last good policies: those that came into force last from flowControl.policies.directory, from the
    /// upstream with mode: sidecar, from the store with mode: standalone and overlay, and the last valid ones of admission.policies.files. The gateway starts with them if their source has
    /// errors then, or an upstream or a store does not respond, says so in its log, in /readyz?verbose and with
    /// fairgate_policy_synced and fairgate_admission_synced, and goes on to follow the source. A source without errors always wins,
    /// however little it has. Without this directory the gateway does not start with policies that have errors; with those of
    /// its own store it starts with the built-in policy.
    /// "" means the directory `state` beside the file of store.local, with mode standalone and overlay; otherwise none. It is
    /// created with mode 0700, and its files have mode 0600. Nobody but the user of the gateway may be able to write to it: what
    /// others could have written is not used.
    "state.directory": "";
    /// Limits on what clients can use, whatever their priority.
    "limits";
    /// Concurrent client connections. The process raises its limit of open files accordingly.
    "limits.connections": "16384" in "1" to "1000000";
    /// Concurrent requests on one HTTP/2 connection.
    "limits.streamsPerConnection": "250" in "1" to "100000";
    /// Size of a request head. kube-apiserver accepts 1 MiB.
    "limits.headerBytes": "1Mi" in "8Ki" to "16Mi";
    /// Memory for the incomplete request heads of all clients together, beyond 8 KiB of each connection; from
    /// 1Mi to 1Gi and at least headerBytes. A client is unknown until its head is complete, so this limits
    /// what clients without a credential can use. When it is used up, the addresses that have held the most
    /// bytes for the longest time lose heads first, and of one address the connections that have: they get 431
    /// and are closed. So a flood from one address drops no head of another.
    /// `fairgate_refused_heads_total` counts them with the reason "memory".
    "limits.unfinishedHeaderBytes": "64Mi" in "1Mi" to "1Gi";
    /// Waiting requests of all levels together. This limits memory; the queues of the levels limit waiting.
    "limits.queuedRequests": "20000" in "1" to "10000000", reload;
    /// Long-running requests other than watches (exec, attach, port-forward, log, proxy). They bypass flow
    /// control, and any client can choose such a path, hence these limits. A request counts until the
    /// upstream has ended it, or until timeouts.request after its client has disconnected, because the
    /// upstream may ignore the disconnect.
    "limits.longRunningPerUser": "500" in "1" to "1000000", reload;
    /// The same for all users together.
    "limits.longRunningTotal": "5000" in "1" to "1000000", reload;
    /// Watches; further watches get 429. Each takes one stream of an upstream connection while it lasts, and
    /// about 5 KiB of memory. The total can be at most 0.9 * upstream.maxConnections * upstream.maxStreams.
    "limits.watchesPerUser": "4000" in "1" to "10000000", reload;
    /// The same for all users together.
    "limits.watchesTotal": "40000" in "1" to "10000000", reload;
    /// A client that reads its response slowly would hold its seat for as long as it likes. Instead the
    /// gateway reads up to this many bytes of the rest into memory, and the seat becomes free when the
    /// upstream is done. 1Mi holds most responses except long lists.
    "limits.spoolPerAnswer": "1Mi" in "0" to "1Gi", reload;
    /// The same for all such responses together. Users share it: a user may hold at most as many bytes as are still free, so alone half of it.
    "limits.spoolTotal": "64Mi" in "0" to "1Ti", reload;
    /// Memory for the responses that the gateway makes itself: lists and objects of the hosted API, large objects in watches, merged documents, dumps. A
    /// response is charged to its user from its encoding until the client has read it. A user may hold at most as many bytes as are still free,
    /// and one response that is longer than that at a time. A request for which there is no room waits for 15 s at most, in the turn of its user, and then gets 429.
    /// Responses that are read more slowly than minReadRate, or for 30 s, are given up for a user who has less. 1Mi to 1Ti.
    "limits.responseBudget": "64Mi" in "1Mi" to "1Ti";
    /// The rate, in bytes per second, at which a client must read a response that does not fit, while its
    /// level has no free seat. A client that is slower for two seconds is disconnected. The same applies while
    /// its user has as much of spoolTotal as is left for all. A client with 1 Mbit/s is just fast enough. 0: no client is disconnected.
    "limits.minReadRate": "128Ki" in "0" to "1Gi", reload;
    /// A request that holds a seat while its client still sends the body would keep the seat from others. So a
    /// body of up to 16Ki is read before its request gets a seat, and must be complete within the time that a
    /// request may wait. This many bytes may be in use for such requests, 2Ki for each and the bytes of its
    /// body. Users share them: nobody has more than as many as are still free for all. A request for which
    /// there is no room gets its seat first, as one with a longer body does. 0: every request does.
    "limits.unfinishedBodyBytes": "32Mi" in "0" to "1Ti";
    /// Over HTTP/2 a client may send 256 KiB of a body before the gateway reads it, and 4 MiB on a connection. While a request is
    /// queued, what its client may have sent is charged to its user: 256 KiB, or the rest of the body if that is shorter. So many
    /// bytes may be charged at a time, beyond that by at most 256 KiB for each core. Users share them: a user may have at most as many as are still free.
    /// A request for which there is no room gets 429, as if its queue were full.
    "limits.queuedBodyBytes": "128Mi" in "1Mi" to "1Ti";
    /// Memory for the heads of requests, beyond 8 KiB of each, from authentication to the end of the request or watch. Users share it: a user may
    /// have at most as many bytes as are still free, so alone half of them. A request for which there is no room gets 429
    /// `too-many-long-heads`. At least twice headerBytes.
    "limits.longHeaderBytes": "64Mi" in "1Mi" to "1Ti", reload;
    /// Memory for requests whose bearer tokens are being reviewed by the upstream: their heads, what clients may send of HTTP/2
    /// bodies before the gateway reads them, and 2 KiB for each. Addresses of clients share it (IPv6: networks of 64 bits): an address may have at most as many bytes as are
    /// still free, so alone half of them. Requests with a token that was accepted in the last five minutes count for the token
    /// instead. A request for which there is no room gets 429 `too-many-token-reviews`. At least four times headerBytes.
    "limits.tokenReviewBytes": "64Mi" in "1Mi" to "1Ti";
    /// The rate, in bytes per second, at which a client must send a body while its request holds a seat and no
    /// seat of its level is free. A request whose client is slower for two seconds gets 408.
    /// 0: a client may take as long as timeouts.bodyIdle and timeouts.request allow.
    "limits.minSendRate": "64Ki" in "0" to "1Gi", reload;
    /// Timeouts.
    "timeouts";
    /// The TLS handshake of a client, and receiving its request head.
    "timeouts.handshake": "10s" in "1ms" to "24h";
    "timeouts.headerRead": "32s" in "1ms" to "24h";
    /// A client connection without a request; clients keep theirs for 90 s.
    "timeouts.idle": "120s" in "1ms" to "24h";
    /// A request from arrival to response, as --request-timeout of kube-apiserver; `?timeout=` can shorten it.
    /// A request waits in a queue for at most a quarter of it. Watches and other long-running requests have no
    /// such limit.
    "timeouts.request": "60s" in "1ms" to "24h", reload;
    /// The longest pause between two bytes of a request or response body, except for long-running requests. Also the longest time for
    /// which a client may leave data unread that is ready for it; for a watch, too: its client can watch again.
    "timeouts.bodyIdle": "60s" in "1ms" to "24h";
    /// The longest pause between two bytes of an upgraded connection (exec, port-forward). Also the longest time, at least bodyIdle, for
    /// which the client of a long-running request other than a watch (such as a log) may leave data unread.
    "timeouts.tunnelIdle": "4h" in "1ms" to "24h";
    /// Connecting to the upstream, including TLS.
    "timeouts.upstreamConnect": "5s" in "1ms" to "24h";
    /// An upstream connection without a request; kube-apiserver closes its own after 90 s.
    "timeouts.upstreamIdle": "60s" in "1ms" to "24h";
    /// Number of cores that serve requests, one thread each; 0 means all cores. Everything else runs on one
    /// more thread.
    "dataCores": "0" in "0" to "1024";
    /// The admin port: /metrics, /livez, /readyz, /healthz and the debug dumps, in plain HTTP and without
    /// authentication. In a pod it has to listen on the pod's address for probes and scrapes.
    "admin";
    "admin.address": "127.0.0.1:9080";
    /// Names by which clients may address it, such as fairgate.ops.svc, besides localhost and IP addresses. Requests for another
    /// host are refused: a web page in a browser on this host could otherwise read this port by a name of its own.
    "admin.hosts": "[]";
    /// The same with TLS, for Prometheus on other hosts. Users authenticate as on the main port (authentication.*),
    /// and the server authorizes them by SubjectAccessReview for the path, as for kube-apiserver's own /metrics;
    /// with mode: standalone, members of system:masters and of hostedApi.readerGroups are authorized.
    "admin.secure";
    /// IP address and port, such as "[::]:9443"; "" serves nothing.
    "admin.secure.address": "";
    /// The serving certificate and its key (followed); without them, those of listen.tls.
    "admin.secure.tls";
    "admin.secure.tls.certFile": "", followed;
    "admin.secure.tls.keyFile": "", followed;
    /// Flows of each priority level that have metrics of their own (fairgate_flow_*): so many with the most waiting requests
    /// and seats, and as many that wait longest. Also users (fairgate_user_*): so many of each level with the most refusals and
    /// seat-seconds, and so many with the most watches. Their labels name users or namespaces; 0 exposes none.
    "admin.topFlows": "5" in "0" to "100";
    /// Logging, to standard error.
    "log";
    /// text or json.
    "log.format": "text", reload;
    /// error, warn, info, debug or trace.
    "log.level": "info", reload;
    /// One line per request with its FlowSchema, priority level, seats and waiting time.
    "log.access": "false", reload;
    /// Value of the label `apiserver` of the metrics; "" means host:port of upstream.url.
    "apiserver": "";
    /// Shutdown on SIGTERM.
    "drain";
    /// The gateway becomes unready at once, and keeps serving for this time so that load balancers notice.
    "drain.delay": "5s" in "0s" to "1h";
    /// Then it stops accepting connections. Running requests have this time to end, and watches are ended
    /// spread over it. Connections that remain after that are closed.
    "drain.grace": "60s" in "0s" to "24h";
}
