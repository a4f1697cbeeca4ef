//! What the tests over the recorded corpora share: values as JSON, environments as Kubernetes builds them.

use fairgate_cel::{
    CelEnvironment, CelEnvironmentBuilder, CelObjectType, CelType, CelValue, go_float, library,
};
use serde_json::{Value, json};

/// The lines of a corpus.
pub(crate) fn cases(name: &str) -> Vec<Value> {
    let path = format!("{}/tests/corpus/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// A value as the corpora write it; see oracle/values.go.
pub(crate) fn json_of(value: &CelValue<'_>) -> Value {
    match value {
        CelValue::Null => Value::Null,
        CelValue::Bool(value) => json!(value),
        CelValue::Int(value) => json!({"int": value}),
        CelValue::Uint(value) => json!({"uint": value}),
        CelValue::Double(value) => json!({"double": go_float(*value)}),
        CelValue::String(text) => json!(&**text),
        CelValue::Bytes(bytes) => json!({"bytes": base64(bytes)}),
        CelValue::Duration(span) => json!({"duration": span.nanoseconds()}),
        CelValue::Timestamp(time) => json!({"timestamp": time.in_utc().to_string()}),
        CelValue::Type(of) => json!({"type": of.runtime_name()}),
        CelValue::Optional(None) => json!({"optional": []}),
        CelValue::Optional(Some(of)) => json!({"optional": [json_of(of.value())]}),
        CelValue::Opaque(value) => json!({value.type_name(): value.print()}),
        CelValue::List(list) => list.iter().map(|value| json_of(&value)).collect(),
        CelValue::Map(map) => {
            let mut entries: Vec<Value> = (0..map.len())
                .map(|at| {
                    let (key, value) = map.entry_at(at).unwrap().unwrap();
                    json!([json_of(&key), json_of(&value)])
                })
                .collect();
            entries.sort_by_key(|entry| entry[0].to_string());
            json!({"map": entries})
        }
    }
}

/// The value that a corpus writes as `value`; the inverse of [`json_of`].
pub(crate) fn value_of(value: &Value) -> CelValue<'static> {
    match value {
        Value::Null => CelValue::Null,
        Value::Bool(value) => CelValue::Bool(*value),
        Value::String(text) => CelValue::from(text.clone()),
        Value::Array(elements) => CelValue::list(elements.iter().map(value_of).collect()).unwrap(),
        Value::Number(_) => panic!("numbers have a type"),
        Value::Object(object) => {
            let (tag, value) = object.iter().next().unwrap();
            match &**tag {
                "int" => CelValue::Int(value.as_i64().unwrap()),
                "uint" => CelValue::Uint(value.as_u64().unwrap()),
                "bytes" => CelValue::Bytes(from_base64(value.as_str().unwrap()).into()),
                "type" => CelValue::type_value(CelType::opaque(value.as_str().unwrap())),
                "double" => CelValue::Double(value.as_str().unwrap().parse().unwrap()),
                "map" => {
                    let entries = value.as_array().unwrap().iter();
                    let entries = entries.map(|entry| (value_of(&entry[0]), value_of(&entry[1])));
                    CelValue::Map(fairgate_cel::CelMap::new(entries.collect()).unwrap())
                }
                other => panic!("no value of {other} is bound"),
            }
        }
    }
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let group = [
            chunk[0],
            *chunk.get(1).unwrap_or(&0),
            *chunk.get(2).unwrap_or(&0),
        ];
        let bits = u32::from_be_bytes([0, group[0], group[1], group[2]]);
        for at in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * at)) as usize & 63];
            out.push(if at > chunk.len() {
                '='
            } else {
                char::from(digit)
            });
        }
    }
    out
}

fn from_base64(text: &str) -> Vec<u8> {
    // There are 256 first bytes; all but short texts would take long this way.
    assert!(text.len() <= 4, "bytes that are bound are short");
    let candidates = (0..=255).map(|byte| vec![byte]).chain([Vec::new()]);
    let mut candidates = candidates.filter(|bytes| base64(bytes) == text);
    candidates.next().unwrap()
}

/// A type as cel-go's `String` prints it.
pub(crate) fn type_text(of: &CelType) -> String {
    let parameters: Vec<_> = of.parameters().iter().map(type_text).collect();
    if parameters.is_empty() {
        return of.runtime_name().to_owned();
    }
    format!("{}({})", of.runtime_name(), parameters.join(", "))
}

fn field(object: CelObjectType, name: &str, of: &CelType) -> CelObjectType {
    object.field(name, of.clone())
}

/// Functions of libraries that the crate has not yet; cases with them wait.
const AWAITED: &[&str] = &[
    "add(",
    "addr",
    "asApproximateFloat(",
    "asInteger(",
    "charAt(",
    "cidr(",
    "compareTo(",
    "containsCIDR(",
    "containsIP(",
    "distinct(",
    "family(",
    "find(",
    "findAll(",
    "flatten(",
    "format(",
    "format.",
    "getEscapedPath(",
    "getHost(",
    "getHostname(",
    "getPort(",
    "getQuery(",
    "getScheme(",
    "indexOf(",
    "ip(",
    "ip.",
    "isCIDR(",
    "isGlobalUnicast(",
    "isGreaterThan(",
    "isIP(",
    "isInteger(",
    "isLessThan(",
    "isLinkLocal",
    "isLoopback(",
    "isQuantity(",
    "isSemver(",
    "isSorted(",
    "isURL(",
    "isUnspecified(",
    "join(",
    "lastIndexOf(",
    "lists.",
    "lowerAscii(",
    "major(",
    "masked(",
    "max(",
    "min(",
    "minor(",
    "patch(",
    "prefixLength(",
    "quantity(",
    "quote(",
    "replace(",
    "reverse(",
    "semver(",
    "sets.",
    "sign(",
    "slice(",
    "sort(",
    "sortBy(",
    "split(",
    "sub(",
    "substring(",
    "sum(",
    "trim(",
    "upperAscii(",
    "url(",
    "validate(",
    "includes(",
    "net.",
    "kubernetes.",
    "authorizer",
    "error(",
    "errored(",
    "allowed(",
    "check(",
    "reason(",
    "group(",
    "resource(",
];

/// Messages of protocol buffers that the original can make in expressions, which no policy needs.
const MESSAGES: &[&str] = &["Value{", "google.protobuf.", "NullValue"];

/// Whether a case needs functions that the crate has not yet, or messages that it does not make.
pub(crate) fn waits(expression: &str) -> bool {
    let times = ["google.protobuf.Timestamp", "google.protobuf.Duration"];
    let plain = times
        .iter()
        .fold(expression.to_owned(), |text, name| text.replace(name, ""));
    let makes = times
        .iter()
        .any(|name| expression.contains(&format!("{name}{{")));
    makes
        || MESSAGES
            .iter()
            .chain(AWAITED)
            .any(|name| plain.contains(name))
}

/// The variables of expressions in policies.
pub(crate) fn policy_variables(builder: CelEnvironmentBuilder) -> CelEnvironmentBuilder {
    let text = CelType::String;
    let of_kind = |name: &str, last: &str| {
        let object = field(CelObjectType::new(name), "group", &text);
        field(field(object, "version", &text), last, &text)
    };
    let texts = CelType::list(text.clone());
    let map = CelType::map(text.clone(), text.clone());
    let user = CelObjectType::new("kubernetes.UserInfo")
        .field("username", text.clone())
        .field("uid", text.clone())
        .field("groups", texts.clone())
        .field("extra", CelType::map(text.clone(), texts.clone()));
    let kind = CelType::object("kubernetes.GroupVersionKind");
    let resource = CelType::object("kubernetes.GroupVersionResource");
    let mut request = CelObjectType::new("kubernetes.AdmissionRequest")
        .field("kind", kind.clone())
        .field("requestKind", kind)
        .field("resource", resource.clone())
        .field("requestResource", resource)
        .field("userInfo", CelType::object("kubernetes.UserInfo"))
        .field("dryRun", CelType::Bool)
        .field("options", CelType::Dyn);
    for name in [
        "subResource",
        "requestSubResource",
        "name",
        "namespace",
        "operation",
    ] {
        request = request.field(name, text.clone());
    }
    let mut metadata = CelObjectType::new("kubernetes.NamespaceMetadata")
        .field("labels", map.clone())
        .field("annotations", map)
        .field("creationTimestamp", CelType::Timestamp)
        .field("deletionTimestamp", CelType::Timestamp)
        .field("deletionGracePeriodSeconds", CelType::Int)
        .field("generation", CelType::Int)
        .field("finalizers", texts.clone());
    for name in [
        "name",
        "generateName",
        "namespace",
        "UID",
        "resourceVersion",
    ] {
        metadata = metadata.field(name, text.clone());
    }
    let condition = CelObjectType::new("kubernetes.NamespaceCondition")
        .field("status", text.clone())
        .field("type", text.clone())
        .field("lastTransitionTime", CelType::Timestamp)
        .field("message", text.clone())
        .field("reason", text.clone());
    let conditions = CelType::list(CelType::object("kubernetes.NamespaceCondition"));
    let namespace = CelObjectType::new("kubernetes.Namespace")
        .field("metadata", CelType::object("kubernetes.NamespaceMetadata"))
        .field("spec", CelType::object("kubernetes.NamespaceSpec"))
        .field("status", CelType::object("kubernetes.NamespaceStatus"));
    builder
        .object_type(of_kind("kubernetes.GroupVersionKind", "kind"))
        .object_type(of_kind("kubernetes.GroupVersionResource", "resource"))
        .object_type(user)
        .object_type(request)
        .object_type(metadata)
        .object_type(condition)
        .object_type(CelObjectType::new("kubernetes.NamespaceSpec").field("finalizers", texts))
        .object_type(
            CelObjectType::new("kubernetes.NamespaceStatus")
                .field("conditions", conditions)
                .field("phase", text),
        )
        .object_type(namespace)
        .object_type(CelObjectType::new("kubernetes.variables"))
        .variable("variables", CelType::object("kubernetes.variables"))
        .variable("object", CelType::Dyn)
        .variable("oldObject", CelType::Dyn)
        .variable("params", CelType::Dyn)
        .variable("request", CelType::object("kubernetes.AdmissionRequest"))
        .variable("namespaceObject", CelType::object("kubernetes.Namespace"))
}

/// An environment with all that Kubernetes' has.
pub(crate) fn kubernetes() -> CelEnvironmentBuilder {
    CelEnvironment::builder()
        .library(&library::OptionalTypes)
        .library(&library::TwoVariableComprehensions)
        .homogeneous_literals(true)
        .literal_validators(true)
}
