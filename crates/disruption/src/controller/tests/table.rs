//! The worked examples of the specification.

use serde_json::{Value, json};

use super::{Cluster, Owner, owner};

/// Columns: bound; pods by owner, ready (+) or not (-); replicas of the owners; allowed, healthy, desired, expected.
const EXAMPLES: &str = "
    minAvailable 3     |                               |             | 0,0,3,0
    minAvailable 3     | + + + +                       |             | 1,4,3,4
    minAvailable 3     | + + + -                       |             | 0,3,3,4
    maxUnavailable 2   | rs+                           | rs=7        | 0,1,5,7
    maxUnavailable 30% | rs+                           | rs=7        | 0,1,4,7
    maxUnavailable 30% | rs+                           | rs=3        | 0,1,2,3
    minAvailable 34%   | rc+ rc+ rc+                   | rc=3        | 1,3,2,3
    minAvailable 34%   | rc+ rc+ rc+ +                 | rc=3        | 2,4,2,3
    minAvailable 28%   | rc+ rc+ rc+ rc+ rc+ rs+ rs+ rs+ rs+ | rc=11 rs=11 | 2,9,7,22
    maxUnavailable 1   | +                             |             | 0,1,0,0
    maxUnavailable 5   | custom+ custom+ custom+ custom+ | custom=10 | 0,4,5,10
    minAvailable 0     | -                             |             | 0,0,0,1
    none 0             | +                             |             | 0,1,0,0
";

/// The owner for a name in the examples.
fn named(name: &str, replicas: i32) -> Owner {
    match name {
        "rs" => owner("apps/v1", "ReplicaSet", replicas),
        "rc" => owner("v1", "ReplicationController", replicas),
        _ => Owner {
            is_custom: true,
            ..owner("example.com/v1", "Widget", replicas)
        },
    }
}

#[test]
fn the_worked_examples_give_these_figures() {
    for example in EXAMPLES.trim().lines() {
        let cells: Vec<&str> = example.split('|').map(str::trim).collect();
        let [bound, pods, owners, figures] = cells[..] else {
            panic!("four cells: {example}");
        };
        let (field, bound) = bound.split_once(' ').unwrap();
        let bound = bound
            .parse::<i32>()
            .map_or_else(|_| json!(bound), Value::from);
        let spec = match field {
            "none" => json!({}),
            field => json!({field: bound}),
        };
        let mut cluster = Cluster::with_budget(spec);
        for owner in owners.split_whitespace() {
            let (name, replicas) = owner.split_once('=').unwrap();
            let owner = named(name, replicas.parse().unwrap());
            cluster.owners.insert(name.to_owned(), owner);
        }
        for (index, pod) in pods.split_whitespace().enumerate() {
            let (owner, ready) = pod.split_at(pod.len() - 1);
            let owner = Some(owner).filter(|owner| !owner.is_empty());
            cluster.put_pod(&format!("p{index}"), owner, ready == "+");
        }
        cluster.settle();
        let (allowed, healthy, desired, expected) = cluster.figures();
        let found = format!("{allowed},{healthy},{desired},{expected}");
        assert_eq!(found, figures, "{example}");
        // The counters are there, also when they are 0.
        assert!(cluster.status()["disruptionsAllowed"].is_number());
    }
}
