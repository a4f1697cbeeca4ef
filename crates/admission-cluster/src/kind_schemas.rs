//! The fields of the kinds that policies are about, for checking the types of expressions.
//!
//! Those of built-in kinds are tables. All others are read from the upstream's `OpenAPI` documents, of which there is one for each
//! group and version: `/openapi/v3` lists them with their versions, so that a change is noticed by one short request. Only documents are
//! read that have a kind that a policy names.
//!
//! Nobody waits here: whoever asks gets what is known, and asks again when [`changes`](KindSchemas::changes) says so.
//!
//! Source: Kubernetes `apiserver/pkg/cel/openapi/resolver/discovery.go`.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
    time::Duration,
};

use fairgate_admission::{
    CheckedKind, DeclaredType, DeclaredTypeError, KindSchema, OpenApiDocument, PolicyKinds,
    PolicyParamKind, object_kinds, params_kind, typed_kinds,
};
use fairgate_base::{
    background,
    clock::Clock,
    tasks::{self, AbortOnDrop},
};
use fairgate_core::{
    sync::{Mutex, MutexGuard, lock},
    time::Time,
};
use fairgate_objects::kind::Kind;
use fairgate_upstream::{client::ApiClient, path::push_segment};
use futures_util::{StreamExt as _, stream};
use http::{HeaderValue, StatusCode, uri::PathAndQuery};
use serde_json::Value;
use tokio::{
    runtime::Handle,
    sync::{Notify, watch},
};

use crate::{
    discovery::ResourceDiscovery,
    resources::ResourceTable,
    schema_cache::{FoundSchema, OpenApiIndex, ReadSchema, SchemaCache},
};

/// The list of documents.
const INDEX: &str = "/openapi/v3";
/// The media type of all that is read.
const JSON: &str = "application/json";
/// How often the upstream is asked whether its documents have changed. Less often while they do, or while some cannot be read.
const CHECK: Duration = Duration::from_secs(2);
/// The longest pause between two such questions.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The shortest, when somebody asks for a kind.
const SHORTEST_PAUSE: Duration = Duration::from_millis(500);
/// The longest time for one document.
const DOCUMENT_LIMIT: Duration = Duration::from_secs(10);
/// The largest document that is read, in bytes.
const MAX_DOCUMENT: usize = 16 << 20;
/// How many documents are read at a time.
const AT_A_TIME: usize = 2;

/// The kinds of an upstream with their fields, as far as they are known. What is not known is looked for until this is dropped.
pub struct KindSchemas {
    state: Arc<SchemaState>,
    tasks: Vec<AbortOnDrop>,
}

/// What the tasks share with whoever asks.
struct SchemaState {
    client: ApiClient,
    clock: Clock,
    discovery: Arc<ResourceDiscovery>,
    /// Kinds that the gateway has, whether or not the upstream has them.
    own: Vec<&'static Kind>,
    cache: Mutex<SchemaCache>,
    /// A kind was asked for that is not known.
    asked: Notify,
    changes: watch::Sender<u64>,
}

/// The version of a document, and a type of it.
type VersionedType = (Arc<str>, Arc<DeclaredType>);

/// The kinds that one policy names.
pub struct NamedKinds {
    /// The kinds with their fields.
    pub kinds: Arc<dyn PolicyKinds>,
    /// Changes with the kinds; `None` if they never change.
    pub version: Option<u64>,
}

impl fmt::Debug for NamedKinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamedKinds")
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for KindSchemas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KindSchemas").finish_non_exhaustive()
    }
}

impl KindSchemas {
    /// Those of an upstream whose resources nobody else reads. `own` are kinds that the gateway has itself.
    pub fn start(
        client: ApiClient,
        clock: Clock,
        control: &Handle,
        own: Vec<&'static Kind>,
    ) -> Self {
        let discovery = Arc::new(ResourceDiscovery::new(client.clone(), clock.clone()));
        let discovering = AbortOnDrop::new(tasks::spawn(control, Arc::clone(&discovery).run()));
        let mut started = Self::with_discovery(discovery, client, clock, control, own);
        started.tasks.push(discovering);
        started
    }

    pub(crate) fn with_discovery(
        discovery: Arc<ResourceDiscovery>,
        client: ApiClient,
        clock: Clock,
        control: &Handle,
        own: Vec<&'static Kind>,
    ) -> Self {
        let state = Arc::new(SchemaState {
            client,
            clock,
            discovery,
            own,
            cache: Mutex::default(),
            asked: Notify::new(),
            changes: watch::Sender::default(),
        });
        let reading = tasks::spawn(control, SchemaReader::default().run(Arc::clone(&state)));
        let following = tasks::spawn(control, Arc::clone(&state).follow_resources());
        Self {
            state,
            tasks: [reading, following].map(AbortOnDrop::new).into(),
        }
    }

    /// Counts the changes after which another answer is possible.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.state.changes.subscribe()
    }

    /// The kinds that the rules and `paramKind` of a policy name, as far as the upstream or the gateway has them.
    ///
    /// # Errors
    ///
    /// Why they are not known yet. They will be looked for.
    pub fn kinds_of(&self, policy: &Value) -> Result<NamedKinds, String> {
        self.state.kinds_of(policy)
    }
}

impl SchemaState {
    fn changed(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    fn cache(&self) -> MutexGuard<'_, SchemaCache> {
        lock(&self.cache)
    }

    /// Notes when the upstream has other resources.
    async fn follow_resources(self: Arc<Self>) {
        let mut readings = self.discovery.readings();
        let mut fingerprint = None;
        loop {
            let is_read = *readings.borrow_and_update() > 0;
            let found = is_read.then(|| self.discovery.table().fingerprint());
            if found != fingerprint {
                fingerprint = found;
                self.changed();
            }
            if readings.changed().await.is_err() {
                return;
            }
        }
    }

    fn kinds_of(&self, policy: &Value) -> Result<NamedKinds, String> {
        if !self.discovery.is_read() {
            return Err("the resources of the upstream have not been read yet".to_owned());
        }
        let mut kinds = UpstreamKinds {
            table: arc_swap::Guard::into_inner(self.discovery.table()),
            own: self.own.clone(),
            declared: HashMap::new(),
        };
        let mut named = object_kinds(policy, &kinds);
        named.extend(params_kind(policy));
        let mut version = DefaultHasher::new();
        let mut lack = None;
        for kind in named {
            kind.hash(&mut version);
            if table_of(&kind, &kinds.own).is_some() {
                continue;
            }
            match self.found(&kind, &kinds.table) {
                Ok(Some((at, schema))) => {
                    at.hash(&mut version);
                    kinds.declared.insert(kind, schema);
                }
                Ok(None) => {}
                // The others are still asked for, so that all are read at once and not one after the other.
                Err(why) => lack = Some(why),
            }
        }
        if let Some(why) = lack {
            return Err(why);
        }
        let changes = !names_built_ins_alone(policy);
        Ok(NamedKinds {
            kinds: Arc::new(kinds),
            version: changes.then(|| version.finish()),
        })
    }

    fn found(
        &self,
        kind: &CheckedKind,
        table: &ResourceTable,
    ) -> Result<Option<VersionedType>, String> {
        let changes = *self.changes.borrow();
        let (found, is_new) = self.cache().ask(kind, changes);
        if is_new {
            self.asked.notify_one();
        }
        let shown = |why: &str| {
            format!(
                "the schema of {}/{}, Kind={} is not known: {why}",
                kind.group, kind.version, kind.kind
            )
        };
        match found {
            FoundSchema::Known(at, schema) => Ok(Some((at, schema))),
            FoundSchema::Unread(why) => Err(shown(&why)),
            FoundSchema::Absent { is_final } => {
                let api_version = if kind.group.is_empty() {
                    kind.version.clone()
                } else {
                    format!("{}/{}", kind.group, kind.version)
                };
                let is_served = table.of_kind(&PolicyParamKind {
                    api_version,
                    kind: kind.kind.clone(),
                });
                if is_served.is_some() && !is_final {
                    return Err(shown("the upstream does not publish it yet"));
                }
                Ok(None)
            }
        }
    }
}

/// The kinds of the upstream and of the gateway.
struct UpstreamKinds {
    table: Arc<ResourceTable>,
    own: Vec<&'static Kind>,
    declared: HashMap<CheckedKind, Arc<DeclaredType>>,
}

impl fmt::Debug for UpstreamKinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamKinds").finish_non_exhaustive()
    }
}

impl PolicyKinds for UpstreamKinds {
    fn named(&self, group: &str, version: &str, resource: &str) -> Vec<CheckedKind> {
        let own = self.own.named(group, version, resource);
        let upstream = self.table.named(group, version, resource);
        let all: BTreeSet<CheckedKind> = own.into_iter().chain(upstream).collect();
        all.into_iter().collect()
    }

    fn schema(&self, kind: &CheckedKind) -> Option<KindSchema> {
        table_of(kind, &self.own).or_else(|| {
            let declared = self.declared.get(kind)?;
            Some(KindSchema::Declared(Arc::clone(declared)))
        })
    }
}

/// The table of a built-in kind.
fn table_of(kind: &CheckedKind, own: &Vec<&'static Kind>) -> Option<KindSchema> {
    let mut built_in = typed_kinds().iter();
    let table = built_in.find_map(|one| {
        let is_it = one.group == kind.group && one.kind == kind.kind;
        let version = one.version(&kind.version).filter(|_| is_it)?;
        Some(KindSchema::Table(version.shape))
    });
    table.or_else(|| own.schema(kind))
}

/// Whether a policy names kinds of Kubernetes alone, whose fields never change.
fn names_built_ins_alone(policy: &Value) -> bool {
    let built_in = typed_kinds().to_vec();
    let texts = |list: &Value| -> BTreeSet<String> {
        let items = list.as_array().into_iter().flatten();
        let texts = items.filter_map(Value::as_str);
        texts.map(str::to_lowercase).collect()
    };
    let rules = &policy["spec"]["matchConstraints"]["resourceRules"];
    let mut rules = rules.as_array().into_iter().flatten();
    rules.all(|rule| {
        let [groups, versions, resources] =
            ["apiGroups", "apiVersions", "resources"].map(|member| texts(&rule[member]));
        let is_checked = |resource: &&String| !resource.contains(['*', '/']);
        groups
            .iter()
            .chain(&versions)
            // The original checks no types for rules with a wildcard in groups or versions.
            .any(|name| name.contains('*'))
            || resources.iter().filter(is_checked).all(|resource| {
                groups.iter().all(|group| {
                    let mut versions = versions.iter();
                    versions.all(|version| !built_in.named(group, version, resource).is_empty())
                })
            })
    }) && params_kind(policy).is_none_or(|kind| table_of(&kind, &built_in).is_some())
}

/// Reads what is asked for.
#[derive(Default)]
struct SchemaReader {
    index: OpenApiIndex,
    /// The version of the index; none if the server does not tell it.
    version: Option<HeaderValue>,
    pause: Duration,
    began: Time,
}

impl SchemaReader {
    /// Reads for ever.
    async fn run(mut self, schemas: Arc<SchemaState>) {
        loop {
            self.read(&schemas).await;
            self.rest(&schemas).await;
        }
    }

    /// Reads what has changed, if anything is asked for.
    async fn read(&mut self, schemas: &SchemaState) {
        self.began = schemas.clock.now();
        let is_idle = {
            let mut cache = schemas.cache();
            cache.prune(*schemas.changes.borrow());
            cache.is_empty()
        };
        if is_idle {
            return;
        }
        let is_calm = match self.read_index(schemas).await {
            Ok(has_changed) => self.read_documents(schemas).await && !has_changed,
            Err(why) => {
                schemas.cache().fail(&why);
                false
            }
        };
        self.pause = if is_calm && self.version.is_none() {
            // Only the whole index tells whether it has changed.
            LONGEST_PAUSE
        } else if is_calm {
            (self.pause / 2).max(CHECK)
        } else {
            (self.pause * 2).clamp(CHECK, LONGEST_PAUSE)
        };
    }

    /// Waits until something may have changed. Ends early if somebody asks for a kind that is not known.
    async fn rest(&self, schemas: &SchemaState) {
        let passed = schemas.clock.now().since(self.began);
        let is_idle = schemas.cache().is_empty();
        let asked = async {
            tokio::time::sleep(SHORTEST_PAUSE.saturating_sub(passed)).await;
            schemas.asked.notified().await;
        };
        if is_idle {
            return asked.await;
        }
        tokio::select! {
            () = asked => {}
            () = tokio::time::sleep(self.pause.saturating_sub(passed)) => {}
        }
    }

    /// Reads the list of documents, if it has changed. Returns whether it has.
    async fn read_index(&mut self, schemas: &SchemaState) -> Result<bool, String> {
        let target = PathAndQuery::from_static(INDEX);
        if let Some(version) = &self.version {
            let asking = schemas.client.has_changed(target, JSON, version.clone());
            match tokio::time::timeout(DOCUMENT_LIMIT, asking).await {
                Ok(Ok(false)) => return Ok(false),
                Ok(Ok(true)) => {}
                Ok(Err(error)) => return Err(format!("{INDEX}: {error}")),
                Err(_elapsed) => return Err(too_slow(INDEX)),
            }
        }
        let (version, body) = read(&schemas.client, INDEX).await?;
        let index: Value =
            serde_json::from_slice(&body).map_err(|error| format!("{INDEX}: {error}"))?;
        let index = versions(&index);
        let has_changed = self.index != index && !self.index.is_empty();
        (self.index, self.version) = (index, version);
        Ok(has_changed)
    }

    /// Reads the documents that are out of date. Returns whether all could be read.
    async fn read_documents(&self, schemas: &SchemaState) -> bool {
        let (stale, mut has_changed) = schemas.cache().stale(&self.index);
        let reading = stale.into_iter().map(|(path, kinds)| {
            let client = schemas.client.clone();
            async move {
                let found = declared(&client, &path, kinds.clone()).await;
                (path, kinds, found)
            }
        });
        let mut reading = stream::iter(reading).buffer_unordered(AT_A_TIME);
        let mut are_read = true;
        while let Some((path, kinds, found)) = reading.next().await {
            let Some(at) = self.index.get(&path) else {
                continue;
            };
            if let Err(why) = &found {
                tracing::debug!(path, %why, "cannot read an OpenAPI document of the upstream");
            }
            let mut found = found.unwrap_or_else(|why| {
                let failed = kinds.iter().map(|kind| (kind.clone(), Err(why.clone())));
                failed.collect()
            });
            let mut cache = schemas.cache();
            for kind in kinds {
                let read = found.remove(&kind).unwrap_or(Ok(None));
                are_read &= read.is_ok();
                has_changed |= cache.take(&kind, at, read);
            }
        }
        if has_changed {
            schemas.changed();
        }
        are_read
    }
}

/// The documents that an index lists, with their versions.
fn versions(index: &Value) -> OpenApiIndex {
    let paths = index["paths"].as_object().into_iter().flatten();
    let versions = paths.filter_map(|(path, of)| {
        let version = of["serverRelativeURL"].as_str()?;
        Some((path.clone(), version.into()))
    });
    versions.collect()
}

/// What the document of a group and version says about these kinds.
async fn declared(
    client: &ApiClient,
    path: &str,
    kinds: Vec<CheckedKind>,
) -> Result<BTreeMap<CheckedKind, ReadSchema>, String> {
    let mut target = INDEX.to_owned();
    for segment in path.split('/') {
        target.push('/');
        push_segment(&mut target, segment);
    }
    let (_, body) = read(client, &target).await?;
    let parsing = background::run(move || {
        let document = OpenApiDocument::parse(&body).map_err(|error| error.to_string())?;
        let found = kinds.into_iter().map(|kind| {
            let declared = match document.declared(&kind) {
                // As in the original, nothing is checked against a schema that refers to nothing.
                Err(DeclaredTypeError::Absent(_)) => Ok(None),
                declared => declared.map_err(|error| error.to_string()),
            };
            (kind, declared)
        });
        Ok(found.collect())
    });
    let parsed = parsing.await.map_err(|error| error.to_string())?;
    parsed.map_err(|why: String| format!("{target}: {why}"))
}

async fn read(
    client: &ApiClient,
    path: &str,
) -> Result<(Option<HeaderValue>, bytes::Bytes), String> {
    let target = PathAndQuery::try_from(path).map_err(|error| format!("{path}: {error}"))?;
    let reading = client.get_with_version(target, JSON, MAX_DOCUMENT);
    let read = tokio::time::timeout(DOCUMENT_LIMIT, reading).await;
    let read = read.map_err(|_elapsed| too_slow(path))?;
    let (status, version, body) = read.map_err(|error| format!("{path}: {error}"))?;
    if status != StatusCode::OK {
        return Err(format!("{path}: the upstream answered {status}"));
    }
    Ok((version, body))
}

fn too_slow(path: &str) -> String {
    format!("{path}: the response took too long")
}
