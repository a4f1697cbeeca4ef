//! A compiled policy as objects again: what is in force, for those who ask a running gateway.
//!
//! Compiling the objects of a policy gives the same policy. What had no effect is not in them: status, labels, schemas whose
//! level does not exist, specs that the built-in one replaced.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::flowcontrol::v1::{
        ExemptPriorityLevelConfiguration, FlowDistinguisherMethod, FlowSchema, FlowSchemaSpec,
        LimitResponse as LimitResponseObject, LimitedPriorityLevelConfiguration,
        PriorityLevelConfiguration, PriorityLevelConfigurationReference,
        PriorityLevelConfigurationSpec, QueuingConfiguration,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::Policy;
use crate::apf::spec::{
    Distinguisher, LevelKind, LevelSpec, LimitResponse, SchemaIndex, TenantRule,
};

impl Policy {
    /// The schemas in matching order, and the levels in the order of their names, built-in ones included. Costs time and memory
    /// in proportion to their rules: not for a data core.
    pub fn to_objects(&self) -> (Vec<FlowSchema>, Vec<PriorityLevelConfiguration>) {
        let indexes = (0..).map(SchemaIndex).take(self.schemas.len());
        let schemas = indexes.map(|index| self.flow_schema(index)).collect();
        let levels = self.levels.iter().map(priority_level).collect();
        (schemas, levels)
    }

    fn flow_schema(&self, index: SchemaIndex) -> FlowSchema {
        let schema = self.schema(index);
        let object = &self.objects[index.0 as usize].object;
        let annotation = || {
            let (key, rule) = (TenantRule::ANNOTATION, schema.tenant.as_str());
            BTreeMap::from([(key.to_owned(), rule.to_owned())])
        };
        FlowSchema {
            metadata: ObjectMeta {
                name: Some(schema.name.to_string()),
                // Flows are hashed by it. One that was made of the name is made again.
                uid: Some(object.uid.to_string()).filter(|uid| !uid.is_empty()),
                annotations: (schema.tenant != TenantRule::Default).then(annotation),
                ..ObjectMeta::default()
            },
            spec: Some(FlowSchemaSpec {
                distinguisher_method: schema.distinguisher.map(|by| FlowDistinguisherMethod {
                    type_: match by {
                        Distinguisher::ByUser => "ByUser".to_owned(),
                        Distinguisher::ByNamespace => "ByNamespace".to_owned(),
                    },
                }),
                matching_precedence: Some(schema.precedence),
                priority_level_configuration: PriorityLevelConfigurationReference {
                    name: self.level(schema.level).name.to_string(),
                },
                rules: Some(self.rules(index)),
            }),
            status: None,
        }
    }
}

fn priority_level(level: &LevelSpec) -> PriorityLevelConfiguration {
    let number = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
    let shares = Some(number(level.shares));
    let lendable_percent = Some(number(level.lendable_percent));
    let spec = match level.kind {
        LevelKind::Exempt => PriorityLevelConfigurationSpec {
            type_: "Exempt".to_owned(),
            exempt: Some(ExemptPriorityLevelConfiguration {
                lendable_percent,
                nominal_concurrency_shares: shares,
            }),
            limited: None,
        },
        LevelKind::Limited {
            borrowing_limit_percent,
            response,
        } => PriorityLevelConfigurationSpec {
            type_: "Limited".to_owned(),
            exempt: None,
            limited: Some(LimitedPriorityLevelConfiguration {
                borrowing_limit_percent: borrowing_limit_percent.map(number),
                lendable_percent,
                limit_response: Some(limit_response(response, number)),
                nominal_concurrency_shares: shares,
            }),
        },
    };
    PriorityLevelConfiguration {
        metadata: ObjectMeta {
            name: Some(level.name.to_string()),
            ..ObjectMeta::default()
        },
        spec: Some(spec),
        status: None,
    }
}

fn limit_response(response: LimitResponse, number: impl Fn(u32) -> i32) -> LimitResponseObject {
    match response {
        LimitResponse::Reject => LimitResponseObject {
            type_: "Reject".to_owned(),
            queuing: None,
        },
        LimitResponse::Queue(queuing) => LimitResponseObject {
            type_: "Queue".to_owned(),
            queuing: Some(QueuingConfiguration {
                hand_size: Some(number(queuing.hand_size)),
                queue_length_limit: Some(number(queuing.queue_length_limit)),
                queues: Some(number(queuing.queues)),
            }),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        apf::{
            objects::{Bootstrap, ObjectSet},
            policy::{PolicySettings, Semantics},
        },
        digest::{RequestDigest, RequestInfo, User},
    };

    fn compiled(objects: Vec<Value>, bootstrap: Bootstrap) -> Policy {
        let documents = objects.into_iter().map(|object| ("here", object));
        let settings = PolicySettings {
            total_seats: 600,
            semantics: Semantics::Improved,
            hash_key: [7; 16],
            tenant_weight: PolicySettings::DEFAULT_TENANT_WEIGHT,
        };
        let objects = ObjectSet::read(documents).with_bootstrap(bootstrap);
        Policy::compile(&objects, &settings).unwrap().policy
    }

    fn own_objects() -> Vec<Value> {
        let level = |name: &str, spec: Value| {
            json!({"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
                "metadata": {"name": name}, "spec": spec})
        };
        let schema = |name: &str, level: &str, metadata: Value, by: Value| {
            let mut object = json!({"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
            "metadata": metadata, "spec": {
                "priorityLevelConfiguration": {"name": level}, "matchingPrecedence": 7,
                "distinguisherMethod": by,
                "rules": [{
                    "subjects": [{"kind": "User", "user": {"name": name}},
                        {"kind": "ServiceAccount", "serviceAccount": {"name": "*", "namespace": "a"}}],
                    "resourceRules": [{"verbs": ["list"], "apiGroups": ["*"], "resources": ["pods"],
                        "namespaces": ["a"], "clusterScope": true}],
                    "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["/x/*"]}],
                }],
            }});
            object["metadata"]["name"] = json!(name);
            object
        };
        let queue = json!({"type": "Queue", "queuing": {"queues": 16, "handSize": 3, "queueLengthLimit": 9}});
        vec![
            level(
                "queues",
                json!({"type": "Limited", "limited": {"nominalConcurrencyShares": 5, "lendablePercent": 40,
                    "borrowingLimitPercent": 0, "limitResponse": queue}}),
            ),
            level(
                "rejects",
                json!({"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}),
            ),
            level(
                "exempt",
                json!({"type": "Exempt", "exempt": {"lendablePercent": 3}}),
            ),
            schema(
                "alice",
                "queues",
                json!({"uid": "u-1", "annotations": {"fairgate.dev/tenant": "flow"}}),
                json!({"type": "ByNamespace"}),
            ),
            schema("bob", "rejects", json!({}), Value::Null),
            schema("dangles", "nowhere", json!({}), Value::Null),
        ]
    }

    #[test]
    fn compiling_the_objects_of_a_policy_gives_the_same_policy() {
        for bootstrap in [Bootstrap::Suggested, Bootstrap::Mandatory] {
            let policy = compiled(own_objects(), bootstrap);
            let (schemas, levels) = policy.to_objects();
            let schemas = schemas
                .iter()
                .map(|object| serde_json::to_value(object).unwrap());
            let levels = levels
                .iter()
                .map(|object| serde_json::to_value(object).unwrap());
            let again = compiled(schemas.chain(levels).collect(), Bootstrap::Mandatory);
            assert_eq!(again.schemas(), policy.schemas());
            assert_eq!(again.levels(), policy.levels());
            for index in (0..).map(SchemaIndex).take(policy.schemas().len()) {
                assert_eq!(again.rules(index), policy.rules(index));
            }
            let info = RequestInfo::from_target("GET", "/api/v1/namespaces/a/pods").unwrap();
            let user = std::sync::Arc::new(User::new("alice", &[] as &[String]));
            let digest = RequestDigest { info, user };
            let flow = policy.classify(&digest);
            assert_eq!(&*policy.schema(flow.schema).name, "alice");
            assert_eq!(again.classify(&digest), flow);
        }
    }
}
