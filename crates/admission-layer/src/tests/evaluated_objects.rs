//! Completed objects beside those that a real server shows its policies for the same requests
//! (`corpus/evaluated_objects.jsonl` without the plugin `ServiceAccount`, `corpus/set_by_server.jsonl` with all of them; tests/cluster/README.md
//! says how they are recorded).
//!
//! They must be the same, but for what only a server can know.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::Arc,
};

use bytes::Bytes;
use fairgate_admission::{Fidelity, FieldSetByServer};
use fairgate_apihttp::content_type::patch_type;
use fairgate_core::digest::{RequestInfo, User};
use fairgate_objects::{
    codec::{
        BodyFormat, FieldValidation,
        request_document::{DocumentType, read},
    },
    defaults::DefaultedKinds,
    schema::UnreadParts,
};
use serde_json::Value;
use uuid::Uuid;

use crate::{
    object::body_object::{BodyObject, BodyReading, BodyStrictness},
    object::evaluated_object::{self, Fresh},
    object::object_name::NameSource,
    request::facts::WriteFacts,
    request::write_request::Subject,
    request_document,
};

const CORPUS: &str = include_str!("../../corpus/evaluated_objects.jsonl");
/// The same of a server with all plugins that it has by default, and with objects by which each of them acts.
const SET_BY_SERVER: &str = include_str!("../../corpus/set_by_server.jsonl");

/// Custom kinds without the subresource `status`.
const WITHOUT_STATUS: [&str; 2] = ["limits", "ceilings"];

/// What differs besides the fields that are known to be set by a server: a part of the path of the request, the place, and why.
const KNOWN: [(&str, &str, &str); 2] = [
    ("/things", "/spec/replicas", SCHEMA),
    ("/things", "/spec/size", SCHEMA),
];
const SCHEMA: &str = "a default of the definition, which is not read here";

fn user(line: &Value) -> User {
    let of = &line["user"];
    let texts = |value: &Value| -> Vec<String> {
        let all = value.as_array().into_iter().flatten();
        all.map(|one| one.as_str().unwrap().to_owned()).collect()
    };
    let extra = of["extra"].as_object().into_iter().flatten();
    User {
        name: of["username"].as_str().unwrap_or("u").to_owned(),
        uid: of["uid"].as_str().unwrap_or_default().to_owned(),
        groups: texts(&of["groups"]),
        extra: extra.map(|(key, all)| (key.clone(), texts(all))).collect(),
    }
}

/// The number of the field that is known to be set by a server and has this place in an object of the resource, or the field is in it.
fn set_field(resource: &str, place: &str) -> Option<usize> {
    let names: Vec<String> = (place.split('/').skip(1))
        .map(|name| name.replace("~1", "/"))
        .collect();
    FieldSetByServer::all().iter().position(|field| {
        let path = field.path();
        let is_prefix = path.len() <= names.len();
        let mut steps = path.iter().zip(&names);
        field.shown_resource() == resource
            && is_prefix
            && steps.all(|(step, name)| *step == "*" || *step == name)
    })
}

/// The resource of a request, as fields that are set by a server name it.
fn shown_resource(line: &Value) -> String {
    let text = |key: &str| line[key].as_str().unwrap();
    let info = RequestInfo::from_target(text("method"), text("path")).unwrap();
    let Subject::Write(write) = Subject::of(&info) else {
        return String::new();
    };
    let facts = WriteFacts::new(&write, &Arc::new(user(line)), None);
    let parts = [(".", &facts.group), ("/", &facts.subresource)];
    let parts = parts.into_iter().filter(|(_, part)| !part.is_empty());
    parts.fold(facts.resource.clone(), |shown, (before, part)| {
        shown + before + part
    })
}

/// The object that policies would see for a line that do not read some parts, or no defaults.
fn completed(line: &Value, unread: UnreadParts, has_defaults: bool) -> Result<Value, String> {
    let text = |key: &str| line[key].as_str().unwrap();
    let info = RequestInfo::from_target(text("method"), text("path")).unwrap();
    let Subject::Write(write) = Subject::of(&info) else {
        return Err("no write".to_owned());
    };
    let mut facts = WriteFacts::new(&write, &Arc::new(user(line)), None);
    let sent: Value = serde_json::from_str(text("body")).unwrap();
    let stored = Some(&line["stored"]).filter(|stored| stored.is_object());
    facts.set_kind_by(match stored {
        Some(stored) => stored,
        None => &sent,
    });
    let has_status = !WITHOUT_STATUS.contains(&&*facts.resource);
    let strategy = evaluated_object::strategy(&facts, has_status).ok_or("no strategy")?;
    let reading = match text("method") {
        "PATCH" => BodyReading::Patch(patch_type(text("contentType")).unwrap()),
        _ => BodyReading::Object(BodyFormat::Json),
    };
    let expect = request_document::expected_type(&facts);
    let decoded = expect
        .filter(|_| unread != UnreadParts::NONE)
        .and_then(|expect| {
            let (ty, ignore) = (DocumentType::Object(expect), FieldValidation::Ignore);
            let mut document = read(&ty, BodyFormat::Json, text("body").as_bytes(), ignore).ok()?;
            document.take_object(&expect, unread)
        });
    let mut body = BodyObject {
        bytes: Bytes::from(text("body").to_owned()),
        decoded,
        reading,
        fidelity: Fidelity::Completed,
        strategy: Some(strategy),
        schema: None,
        fresh: Fresh {
            uid: Uuid::nil(),
            seconds: 1_767_225_600,
        },
        is_new: text("method") == "POST",
        name: NameSource::Client,
        owner: None,
        has_defaults,
        account: None,
        strictness: BodyStrictness {
            validation: FieldValidation::Warn,
            duplicates: Vec::new(),
        },
    };
    let object = body.read(&mut facts, stored);
    object.map_err(|error| format!("{error:?}"))
}

/// The values of an object that are no objects or lists, by their place. What is empty is absent, as in the server's types.
fn leaves(value: &Value, place: &str, into: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                let key = key.replace('/', "~1");
                leaves(value, &format!("{place}/{key}"), into);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                leaves(value, &format!("{place}/{index}"), into);
            }
        }
        Value::Null => {}
        value if value == "" || value == 0 || value == false => {}
        // Who owns which fields is not recorded.
        _ if place.starts_with("/metadata/managedFields") => {}
        value => {
            into.insert(place.to_owned(), value.clone());
        }
    }
}

fn leaves_of(value: &Value) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    leaves(value, "", &mut found);
    found
}

/// Places at which the objects differ, with both values.
fn differences(line: &Value, ours: &Value) -> Vec<(String, String)> {
    let is_new = line["operation"] == "CREATE";
    let [theirs, ours] = [&line["object"], ours].map(leaves_of);
    let body: Value = serde_json::from_str(line["body"].as_str().unwrap()).unwrap();
    let given = leaves_of(&body);
    let is_fresh =
        |place: &str| is_new && ["/metadata/uid", "/metadata/creationTimestamp"].contains(&place);
    let uids = [&ours, &theirs].map(|leaves| leaves.get("/metadata/uid"));
    let mut found = Vec::new();
    for (place, value) in &ours {
        let is_same = match theirs.get(place) {
            // It is in a label, too.
            theirs if place.ends_with("controller-uid") => [Some(value), theirs] == uids,
            Some(theirs) if is_fresh(place) && given.get(place) != Some(theirs) => {
                given.get(place) != Some(value)
            }
            theirs => theirs == Some(value),
        };
        if !is_same {
            found.push((
                place.clone(),
                format!("{value}, server {:?}", theirs.get(place)),
            ));
        }
    }
    for (place, value) in &theirs {
        if !ours.contains_key(place) {
            found.push((place.clone(), format!("missing, server {value}")));
        }
    }
    found
}

/// What differs in a corpus.
#[derive(Default)]
struct CorpusReport {
    lines: usize,
    /// How often and where first, by session, method and place.
    differences: BTreeMap<String, (usize, String)>,
    /// Which of the known differences occur.
    used: [bool; KNOWN.len()],
    /// The numbers of the fields that are known to be set by a server and are.
    set: BTreeSet<usize>,
}

impl CorpusReport {
    fn of(corpus: &str) -> Self {
        let mut report = Self::default();
        for line in corpus.lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            report.lines += 1;
            let found = match completed(&line, UnreadParts::NONE, true) {
                Ok(object) => differences(&line, &object),
                Err(why) => vec![(String::new(), why)],
            };
            for (place, what) in found {
                report.note(&line, &place, &what);
            }
        }
        report
    }

    fn note(&mut self, line: &Value, place: &str, what: &str) {
        let text = |key: &str| line[key].as_str().unwrap();
        // What is added here, or has another value, is never on purpose, but for times.
        let is_missing = what.starts_with("missing, ");
        let is_known = |(part, at, why): &(&str, &str, &str)| {
            (is_missing || why.contains("server adds"))
                && text("path").contains(part)
                && place.starts_with(at)
        };
        if let Some(known) = KNOWN.iter().position(is_known) {
            self.used[known] = true;
            return;
        }
        let field = set_field(&shown_resource(line), place);
        if let Some(field) = field.filter(|_| is_missing) {
            self.set.insert(field);
            return;
        }
        let about = format!("{} {} {place}", text("session"), text("method"));
        let one = self.differences.entry(about).or_default();
        one.0 += 1;
        if one.0 == 1 {
            let body: String = text("body").chars().take(300).collect();
            one.1 = format!("{}\n  {what}\n  {body}", text("path"));
        }
    }

    /// There are no others.
    fn check(&self) {
        let mut text = String::new();
        for (about, (count, example)) in &self.differences {
            let _ = writeln!(text, "{about}: {count} times, first at {example}");
        }
        let (differences, lines) = (self.differences.len(), self.lines);
        assert!(
            text.is_empty(),
            "{differences} differences in {lines} objects\n{text}"
        );
    }
}

/// The fields of these numbers.
fn shown_fields(numbers: impl IntoIterator<Item = usize>) -> Vec<String> {
    let shown = |number: usize| {
        let field = &FieldSetByServer::all()[number];
        format!("{field} of {} ({})", field.shown_resource(), field.by())
    };
    numbers.into_iter().map(shown).collect()
}

#[test]
fn completed_objects_are_those_that_a_server_shows_its_policies() {
    let report = CorpusReport::of(CORPUS);
    assert!(report.lines > 1000, "{}", report.lines);
    report.check();
    let set = shown_fields(report.set);
    assert!(set.len() >= 9, "{set:?}");
    let used = report.used;
    assert!(
        used.iter().all(|used| *used),
        "a known difference no longer occurs: {used:?}"
    );
}

/// What a server sets with its default plugins is what the table has, and no more and no less: who reads it is told by it.
#[test]
fn the_fields_that_a_server_sets_are_those_of_the_table() {
    let report = CorpusReport::of(SET_BY_SERVER);
    report.check();
    let all = 0..FieldSetByServer::all().len();
    let unseen = shown_fields(all.filter(|number| !report.set.contains(number)));
    assert_eq!(unseen, [""; 0], "no server has set these");
}

/// Removes what is at a path, in which `*` is any element or member.
fn remove(value: &mut Value, path: &[&str]) {
    match (value, path) {
        (Value::Object(members), ["*"]) => members.clear(),
        (Value::Object(members), [last]) => {
            members.remove(*last);
        }
        (Value::Object(members), ["*", rest @ ..]) => {
            for (_, member) in members.iter_mut() {
                remove(member, rest);
            }
        }
        (Value::Object(members), [name, rest @ ..]) => {
            if let Some(value) = members.get_mut(*name) {
                remove(value, rest);
            }
        }
        (Value::Array(items), ["*", rest @ ..]) => {
            for item in items {
                remove(item, rest);
            }
        }
        _ => {}
    }
}

#[test]
fn parts_that_no_policy_reads_change_nothing_else_of_an_object() {
    let paths: Vec<_> = UnreadParts::paths().collect();
    let mut parts: Vec<UnreadParts> = paths.iter().map(|(part, _)| *part).collect();
    parts.dedup();
    let mut left_out = 0;
    for line in [CORPUS, SET_BY_SERVER].into_iter().flat_map(str::lines) {
        let line: Value = serde_json::from_str(line).unwrap();
        if line["method"] != "POST" {
            continue;
        }
        for part in parts.iter().copied().chain([UnreadParts::ALL]) {
            let [whole, without] =
                [UnreadParts::NONE, part].map(|unread| completed(&line, unread, true));
            let (Ok(mut whole), Ok(mut without)) = (whole, without) else {
                continue;
            };
            left_out += usize::from(whole != without);
            for (_, path) in paths.iter().filter(|(of, _)| part.without(*of) != part) {
                remove(&mut whole, path);
                remove(&mut without, path);
            }
            assert_eq!(without, whole, "{part:?} {line}");
        }
    }
    assert!(left_out >= 50, "{left_out} objects have such parts");
}

/// What is shown to policies that read no field with a default is what is shown to others, but for these fields.
#[test]
fn defaults_that_no_policy_reads_change_nothing_else_of_an_object() {
    let mut changed: BTreeMap<String, usize> = BTreeMap::new();
    for line in [CORPUS, SET_BY_SERVER].into_iter().flat_map(str::lines) {
        let line: Value = serde_json::from_str(line).unwrap();
        let [whole, without] = [true, false].map(|has| completed(&line, UnreadParts::NONE, has));
        let (Ok(mut whole), Ok(mut without)) = (whole, without) else {
            continue;
        };
        let api_version = whole["apiVersion"].as_str().unwrap_or_default();
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let kind = whole["kind"].as_str().unwrap_or_default().to_owned();
        let of = DefaultedKinds::of(group, &kind);
        if whole != without {
            *changed.entry(kind).or_default() += 1;
        }
        let places = DefaultedKinds::places().filter(|(kind, _)| of.meets(*kind));
        let counted: [&[&str]; 2] = [
            &["metadata", "generation"],
            &[
                "metadata",
                "annotations",
                "deprecated.daemonset.template.generation",
            ],
        ];
        for place in places.map(|(_, place)| place).chain(counted) {
            remove(&mut whole, place);
            remove(&mut without, place);
        }
        assert_eq!(without, whole, "{line}");
    }
    assert!(changed.len() >= 20, "{changed:?}");
    assert!(
        changed["Pod"] >= 25 && changed["Deployment"] > 5,
        "{changed:?}"
    );
}
