//! Compares what was measured with what the scenario expects.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    figures::{self, ClientFigures},
    scenario::{
        Expectation,
        expectation::{ComparisonBase, ExpectedBound, Measure},
    },
};

/// Everything that expectations refer to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Evidence {
    /// The results of the clients in the run that is judged.
    pub(crate) clients: Vec<ClientFigures>,
    /// Each client while it sends alone.
    pub(crate) alone: BTreeMap<String, Vec<ClientFigures>>,
    /// All clients without fairness.
    pub(crate) without: Option<Vec<ClientFigures>>,
}

/// The outcome of one expectation.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Judgement {
    /// The expectation as it was written.
    pub(crate) expectation: String,
    pub(crate) outcome: ExpectationOutcome,
    /// The values that were compared, or why they could not be.
    pub(crate) detail: String,
}

/// Whether an expectation holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ExpectationOutcome {
    Holds,
    Fails,
    /// What the expectation refers to was not measured.
    Unknown,
}

/// Judges all expectations.
pub(crate) fn judge(expectations: &[Expectation], evidence: &Evidence) -> Vec<Judgement> {
    expectations
        .iter()
        .map(|expectation| judge_one(expectation, evidence))
        .collect()
}

/// Whether no expectation fails, and at least one could be judged.
pub(crate) fn holds(judgements: &[Judgement]) -> bool {
    let none_fails = judgements
        .iter()
        .all(|j| j.outcome != ExpectationOutcome::Fails);
    none_fails
        && judgements
            .iter()
            .any(|j| j.outcome == ExpectationOutcome::Holds)
}

fn judge_one(expectation: &Expectation, evidence: &Evidence) -> Judgement {
    let judgement = |outcome, detail| Judgement {
        expectation: expectation.text.clone(),
        outcome,
        detail,
    };
    let (who, measure) = (expectation.who.as_deref(), expectation.measure);
    let Some(actual) = figures::value(&evidence.clients, who, measure) else {
        let detail = format!(
            "{} is unknown: no request was measured",
            expectation.subject()
        );
        // Not unknown: a client that was to send and got no response is what expectations are to find.
        return judgement(ExpectationOutcome::Fails, detail);
    };
    if let ExpectedBound::Times(_, ComparisonBase::Alone) = expectation.bound
        && base(expectation, ComparisonBase::Alone, evidence).is_ok_and(f64::is_infinite)
    {
        // Any latency would meet a bound that is infinite because nobody served the client while it sent alone.
        let detail = format!(
            "{} is unbounded while the client sends alone",
            expectation.subject()
        );
        return judgement(ExpectationOutcome::Fails, detail);
    }
    let bound = match expectation.bound {
        ExpectedBound::Number(number) => Ok((number, String::new())),
        ExpectedBound::Times(factor, reference) => {
            base(expectation, reference, evidence).map(|base| {
                (
                    factor * base,
                    format!(" ({factor} x {})", measure.written(base)),
                )
            })
        }
    };
    match bound {
        Ok((bound, explained)) => {
            let outcome = if expectation.relation.holds(actual, bound) {
                ExpectationOutcome::Holds
            } else {
                ExpectationOutcome::Fails
            };
            let subject = expectation.subject();
            let (actual, bound) = (measure.written(actual), measure.written(bound));
            let why = match (outcome, measure) {
                (ExpectationOutcome::Fails, Measure::Errors) => last_error(&evidence.clients, who),
                _ => String::new(),
            };
            judgement(
                outcome,
                format!("{subject} is {actual}, the bound {bound}{explained}{why}"),
            )
        }
        Err(reason) => judgement(ExpectationOutcome::Unknown, reason),
    }
}

/// What the last error of `who` was, or that of all clients, for the end of a sentence.
fn last_error(clients: &[ClientFigures], who: Option<&str>) -> String {
    let of = |client: &&ClientFigures| who.is_none_or(|who| client.name == who);
    let mut errors = clients
        .iter()
        .filter(of)
        .filter_map(|client| client.last_error.as_ref());
    errors
        .next()
        .map(|error| format!("; the last: {error}"))
        .unwrap_or_default()
}

/// The value of the reference of an expectation.
fn base(
    expectation: &Expectation,
    reference: ComparisonBase,
    evidence: &Evidence,
) -> Result<f64, String> {
    let (who, measure) = (expectation.who.as_deref(), expectation.measure);
    let (clients, missing) = match reference {
        ComparisonBase::Alone => (
            who.and_then(|who| evidence.alone.get(who)),
            "no client was measured alone",
        ),
        ComparisonBase::Without => (
            evidence.without.as_ref(),
            "it was not measured without fairness; use the command local, or --simulate",
        ),
        ComparisonBase::Ideal => {
            let ideal = |client: &ClientFigures| client.ideal_share;
            let of = |name: &str| {
                evidence
                    .clients
                    .iter()
                    .find(|client| client.name == name)
                    .map(ideal)
            };
            let value = who.map_or_else(|| Some(evidence.clients.iter().map(ideal).sum()), of);
            return value.ok_or_else(|| "the ideal is unknown".to_owned());
        }
    };
    let clients = clients.ok_or_else(|| missing.to_owned())?;
    figures::value(clients, who, measure).ok_or_else(|| missing.to_owned())
}

/// The measures of `expectations` that matter to the client `who`, for a short summary: latency first.
pub(crate) fn headline(expectations: &[Expectation]) -> Option<(&str, Measure)> {
    let latency = expectations
        .iter()
        .find(|e| e.who.is_some() && e.measure.is_latency());
    latency.and_then(|e| e.who.as_deref().map(|who| (who, e.measure)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::LatencyFigures;

    fn mouse(p99: f64) -> Vec<ClientFigures> {
        vec![ClientFigures {
            name: "mouse".to_owned(),
            requests: 5,
            ok: 5,
            share: 1.0,
            ideal_share: 2.0,
            latency: LatencyFigures {
                p99,
                ..LatencyFigures::default()
            },
            ..ClientFigures::default()
        }]
    }

    fn outcome(text: &str, evidence: &Evidence) -> ExpectationOutcome {
        let expectation = Expectation::parse(text).unwrap();
        judge(&[expectation], evidence)[0].outcome
    }

    #[test]
    fn a_bound_may_refer_to_other_measurements() {
        let evidence = Evidence {
            clients: mouse(0.1),
            alone: BTreeMap::from([("mouse".to_owned(), mouse(0.05))]),
            without: Some(mouse(1.0)),
        };
        for (text, expected) in [
            ("mouse.p99 <= 2.1 x alone", ExpectationOutcome::Holds),
            ("mouse.p99 <= 1.9 x alone", ExpectationOutcome::Fails),
            ("mouse.p99 <= 0.2 x without", ExpectationOutcome::Holds),
            ("mouse.p99 <= 90ms", ExpectationOutcome::Fails),
            ("mouse.share >= 0.4 x ideal", ExpectationOutcome::Holds),
            ("mouse.share >= 0.6 x ideal", ExpectationOutcome::Fails),
            ("all.errors == 0", ExpectationOutcome::Holds),
        ] {
            assert_eq!(outcome(text, &evidence), expected, "{text}");
        }
    }

    #[test]
    fn errors_that_were_not_expected_name_the_last() {
        let mut clients = mouse(0.1);
        clients[0].errors = 3;
        clients[0].last_error = Some("no response within 8.0 s".to_owned());
        let evidence = Evidence {
            clients,
            ..Evidence::default()
        };
        let detail = |text: &str| {
            let expectation = Expectation::parse(text).unwrap();
            judge_one(&expectation, &evidence).detail
        };
        let expected = "mouse.errors is 3, the bound 0; the last: no response within 8.0 s";
        assert_eq!(detail("mouse.errors == 0"), expected);
        assert_eq!(
            detail("mouse.errors <= 3"),
            "mouse.errors is 3, the bound 3"
        );
    }

    #[test]
    fn what_was_not_measured_is_unknown_and_proves_nothing() {
        let evidence = Evidence {
            clients: mouse(0.1),
            ..Evidence::default()
        };
        assert_eq!(
            outcome("mouse.p99 <= 2 x alone", &evidence),
            ExpectationOutcome::Unknown
        );
        let expectations = [Expectation::parse("mouse.p99 <= 2 x without").unwrap()];
        assert!(!holds(&judge(&expectations, &evidence)));
    }

    #[test]
    fn a_client_that_gets_nothing_meets_no_bound() {
        let mut not_measured = mouse(0.0);
        not_measured[0].requests = 0;
        for clients in [mouse(f64::INFINITY), not_measured] {
            let evidence = Evidence {
                clients,
                without: Some(mouse(f64::INFINITY)),
                ..Evidence::default()
            };
            for text in ["mouse.p99 <= 1h", "mouse.p99 <= 0.5 x without"] {
                assert_eq!(
                    outcome(text, &evidence),
                    ExpectationOutcome::Fails,
                    "{text}"
                );
            }
        }
    }

    #[test]
    fn a_client_that_is_not_served_alone_meets_no_bound_relative_to_that() {
        let evidence = Evidence {
            clients: mouse(0.1),
            alone: BTreeMap::from([("mouse".to_owned(), mouse(f64::INFINITY))]),
            ..Evidence::default()
        };
        assert_eq!(
            outcome("mouse.p99 <= 2 x alone", &evidence),
            ExpectationOutcome::Fails
        );
    }

    #[test]
    fn a_served_client_meets_a_bound_relative_to_one_that_gets_nothing() {
        let evidence = Evidence {
            clients: mouse(0.1),
            without: Some(mouse(f64::INFINITY)),
            ..Evidence::default()
        };
        assert_eq!(
            outcome("mouse.p99 <= 0.5 x without", &evidence),
            ExpectationOutcome::Holds
        );
    }
}
