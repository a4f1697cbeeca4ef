//! Amounts of resources: rounding, requests that default to limits, and those of a whole pod.
//!
//! Source: `SetDefaults_ResourceList` and `SetDefaults_Pod`, and `k8s.io/component-helpers/resource`.

use std::{cmp::Ordering, collections::BTreeMap};

use serde_json::Value;

use super::fields::{FieldMap, is_zero, object, object_or_insert, text};
use fairgate_gotext::quantity::{Summand, rounded_to_milli};

const HUGE_PAGES: &str = "hugepages-";

/// What containers ask for, by the name of the resource. None instead of an amount that is too large to be added.
type Totals = BTreeMap<String, Option<Summand>>;

/// Rounds the amounts in a map up to thousandths.
pub(super) fn round(parent: &mut FieldMap, name: &str) {
    let Some(amounts) = object(parent, name) else {
        return;
    };
    for (_, amount) in amounts.iter_mut() {
        let rounded = amount.as_str().and_then(rounded_to_milli);
        if let Some(rounded) = rounded {
            *amount = Value::String(rounded);
        }
    }
}

/// Rounds the limits and requests in a field that is there.
pub(super) fn round_requirements(parent: &mut FieldMap, name: &str) {
    if let Some(resources) = object(parent, name) {
        round(resources, "limits");
        round(resources, "requests");
    }
}

/// Copies the amounts of one map to another in which they are absent.
pub(super) fn fill_from(parent: &mut FieldMap, source: &str, target: &str) {
    if !parent.get(source).is_some_and(Value::is_object) || is_zero(parent, source) {
        return;
    }
    if let [Some(from), Some(to)] =
        [source, target].map(|name| parent.get(name).and_then(Value::as_object))
        && from.keys().all(|name| to.contains_key(name))
    {
        return;
    }
    // Taken out for a moment, so that both maps can be used.
    let Some(source_amounts) = parent.remove(source) else {
        return;
    };
    if let Some(target) = object_or_insert(parent, target)
        && let Some(amounts) = source_amounts.as_object()
    {
        for (name, amount) in amounts {
            if !target.contains_key(name) {
                target.insert(name.clone(), amount.clone());
            }
        }
    }
    parent.insert(source.to_owned(), source_amounts);
}

/// Sets limits and requests of a pod as a whole, if some are set already.
pub(super) fn of_pod(spec: &mut FieldMap) {
    let Some(resources) = spec.get("resources").and_then(Value::as_object) else {
        return;
    };
    if is_zero(resources, "limits") && is_zero(resources, "requests") {
        return;
    }
    let mut limits = totals(spec, "limits");
    limits.retain(|name, _| name.starts_with(HUGE_PAGES));
    let totals = totals(spec, "requests");
    let Some(resources) = object(spec, "resources") else {
        return;
    };
    if let Some(Value::Object(requests)) = resources.get("requests") {
        limits.retain(|name, _| !requests.contains_key(name));
    }
    add_missing(resources, "limits", &limits);
    if is_zero(resources, "limits") {
        return;
    }
    let requests = totals
        .into_iter()
        .filter(|(name, _)| is_overcommitted(name));
    add_missing(resources, "requests", &requests.collect());
    let of_pods = |name: &str| is_overcommitted(name) || name.starts_with(HUGE_PAGES);
    let Some(Value::Object(limits)) = resources.get("limits") else {
        return;
    };
    let limits: Vec<_> = (limits.iter())
        .filter(|(name, _)| of_pods(name))
        .map(|(name, amount)| (name.clone(), amount.clone()))
        .collect();
    if !limits.is_empty()
        && let Some(requests) = object_or_insert(resources, "requests")
    {
        for (name, amount) in limits {
            requests.entry(name).or_insert(amount);
        }
    }
}

/// Whether a resource that pods can have as a whole may be promised more often than it is there.
fn is_overcommitted(name: &str) -> bool {
    matches!(name, "cpu" | "memory")
}

/// Adds amounts to a map in which they are absent.
fn add_missing(parent: &mut FieldMap, name: &str, totals: &Totals) {
    if totals.is_empty() {
        return;
    }
    let Some(target) = object_or_insert(parent, name) else {
        return;
    };
    for (resource, total) in totals {
        if let Some(total) = total
            && !target.contains_key(resource)
        {
            target.insert(resource.clone(), Value::String(total.text()));
        }
    }
}

/// What the containers of a pod ask for together: all at once, or more if an init container needs it. Init containers
/// that are restarted run along with all that start after them.
fn totals(spec: &FieldMap, what: &str) -> Totals {
    let mut sum = Totals::new();
    for container in containers(spec, "containers") {
        add(&mut sum, &asked(container, what));
    }
    let mut restarted = Totals::new();
    let mut most = Totals::new();
    for container in containers(spec, "initContainers") {
        let mut asked = asked(container, what);
        if text(container, "restartPolicy") == "Always" {
            add(&mut sum, &asked);
            add(&mut restarted, &asked);
            take(&mut asked, &restarted);
        } else {
            add_known(&mut asked, &restarted);
        }
        // What else runs along was compared when it was added; to compare it each time would cost the square of their number.
        keep_larger(&mut most, &asked);
    }
    keep_larger(&mut sum, &most);
    sum
}

fn containers<'o>(spec: &'o FieldMap, name: &str) -> impl Iterator<Item = &'o FieldMap> {
    let containers = spec.get(name).and_then(Value::as_array);
    (containers.into_iter().flatten()).filter_map(Value::as_object)
}

/// What a container asks for.
fn asked(container: &FieldMap, what: &str) -> Totals {
    let amounts = container.get("resources").and_then(|all| all.get(what));
    let amounts = amounts.and_then(Value::as_object);
    (amounts.into_iter().flatten())
        .map(|(name, amount)| (name.clone(), amount.as_str().and_then(Summand::read)))
        .collect()
}

fn add(sum: &mut Totals, other: &Totals) {
    for (name, amount) in other {
        match sum.get_mut(name) {
            Some(sum) => *sum = sum.zip(*amount).and_then(|(sum, amount)| sum.plus(amount)),
            None => _ = sum.insert(name.clone(), *amount),
        }
    }
}

/// [`add`], to resources that `sum` has.
fn add_known(sum: &mut Totals, other: &Totals) {
    for (name, sum) in sum {
        if let Some(amount) = other.get(name) {
            *sum = sum.zip(*amount).and_then(|(sum, amount)| sum.plus(amount));
        }
    }
}

/// Replaces the amounts of `some` by those in `from`.
fn take(some: &mut Totals, from: &Totals) {
    for (name, amount) in some {
        if let Some(from) = from.get(name) {
            *amount = *from;
        }
    }
}

fn keep_larger(most: &mut Totals, other: &Totals) {
    for (name, amount) in other {
        let larger = match most.get(name) {
            Some(Some(most)) => {
                amount.is_none_or(|amount| amount.compare(*most) == Ordering::Greater)
            }
            Some(None) => false,
            None => true,
        };
        if larger {
            most.insert(name.clone(), *amount);
        }
    }
}
