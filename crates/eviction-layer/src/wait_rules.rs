//! Which evictions may wait for their budgets, and for how long.

use std::{collections::BTreeSet, time::Duration};

use http::{HeaderMap, HeaderName};

use fairgate_call::{Call, Refusal};
use fairgate_core::digest::{User, Verb};
use fairgate_disruption::waiting::WaitLimits;
use fairgate_gotext::parse_duration;

/// In this header a client says how long its eviction may wait at most.
const WAIT_HEADER: HeaderName = HeaderName::from_static("x-fairgate-eviction-wait");

/// Which evictions may wait for their budgets, and how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvictionWaitRules {
    /// The longest wait. With zero, no eviction waits.
    pub limit: Duration,
    /// Users whose evictions wait.
    pub users: BTreeSet<String>,
    /// Groups whose members' evictions wait.
    pub groups: BTreeSet<String>,
    /// Users whose evictions never wait.
    pub exempt_users: BTreeSet<String>,
    /// The maximum number of evictions that wait at a time.
    pub places: WaitLimits,
}

impl EvictionWaitRules {
    /// Rules by which no eviction waits.
    pub fn none() -> Self {
        Self {
            limit: Duration::ZERO,
            users: BTreeSet::new(),
            groups: BTreeSet::new(),
            exempt_users: BTreeSet::new(),
            places: WaitLimits {
                per_budget: 0,
                total: 0,
            },
        }
    }

    /// How long the eviction that `call` requests may wait, counted from its arrival: the configured
    /// limit, or less, down to zero, if the client requests that. `None` if evictions of its user do not wait.
    ///
    /// A client that limits its own time (`?timeout=`) gets its response in the last quarter of that time.
    ///
    /// # Errors
    ///
    /// [`Refusal::Malformed`] if the header is not a duration. For users whose evictions do not wait the header is
    /// not parsed.
    pub(crate) fn limit_of(&self, call: &Call) -> Result<Option<Duration>, Refusal> {
        let info = &call.digest.info;
        if self.limit.is_zero() || info.verb != Verb::Create || !self.chooses(&call.digest.user) {
            return Ok(None);
        }
        let wanted = wanted(call.request.headers())?.unwrap_or(Duration::MAX);
        let patience = match &info.timeout {
            Some(Ok(timeout)) if !timeout.is_zero() => *timeout / 4 * 3,
            _ => Duration::MAX,
        };
        Ok(Some(self.limit.min(wanted).min(patience)))
    }

    fn chooses(&self, user: &User) -> bool {
        let is_in_group = || user.groups.iter().any(|group| self.groups.contains(group));
        !self.exempt_users.contains(&user.name)
            && (self.users.contains(&user.name) || is_in_group())
    }
}

fn wanted(headers: &HeaderMap) -> Result<Option<Duration>, Refusal> {
    let Some(value) = headers.get(&WAIT_HEADER) else {
        return Ok(None);
    };
    let wanted = parse_duration(value.as_bytes());
    wanted.map(Some).map_err(|_| {
        Refusal::Malformed("the header X-Fairgate-Eviction-Wait is not a duration, such as 30s")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str, group: &str) -> User {
        User {
            name: name.to_owned(),
            groups: vec![group.to_owned()],
            ..User::anonymous()
        }
    }

    #[test]
    fn users_are_chosen_by_name_or_group() {
        let rules = EvictionWaitRules {
            limit: Duration::from_secs(60),
            users: ["alice".to_owned()].into(),
            groups: ["drainers".to_owned()].into(),
            exempt_users: ["carol".to_owned()].into(),
            ..EvictionWaitRules::none()
        };
        assert!(rules.chooses(&user("alice", "devs")));
        assert!(rules.chooses(&user("bob", "drainers")));
        assert!(!rules.chooses(&user("bob", "alice")));
        assert!(!rules.chooses(&user("drainers", "devs")));
        assert!(!rules.chooses(&user("carol", "drainers")));
    }

    #[test]
    fn the_header_is_a_duration() {
        let of = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(WAIT_HEADER, value.parse().unwrap());
            wanted(&headers)
        };
        assert_eq!(wanted(&HeaderMap::new()).unwrap(), None);
        assert_eq!(of("90s").unwrap(), Some(Duration::from_secs(90)));
        assert_eq!(of("0").unwrap(), Some(Duration::ZERO));
        for bad in ["", "soon", "10"] {
            assert!(matches!(of(bad), Err(Refusal::Malformed(_))), "{bad}");
        }
    }
}
