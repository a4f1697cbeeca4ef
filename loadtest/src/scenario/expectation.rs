//! What a scenario expects: `mouse.p99 <= 5 x alone`.
//!
//! An expectation is `WHO.MEASURE RELATION BOUND`. WHO is a client, or `all`. BOUND is a number, a duration, or a
//! multiple of a reference: `alone` (the same measure while only this client sends), `without` (without fairness)
//! or `ideal` (of `share`, what max-min fair sharing gives).

use std::{fmt, time::Duration};

use serde::Serialize;

use fairgate_gotext::parse_duration;

/// One expectation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Expectation {
    /// A client's name; `None` for all.
    pub(crate) who: Option<String>,
    pub(crate) measure: Measure,
    pub(crate) relation: Relation,
    pub(crate) bound: ExpectedBound,
    /// The text as it was written.
    pub(crate) text: String,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Measure {
    P50,
    P90,
    P99,
    P999,
    Max,
    /// Responses with success, a second.
    Rate,
    /// Requests with response 429 that were not repeated with success.
    Refused,
    /// Requests with any other outcome than success or 429, unanswered ones included.
    Errors,
    /// The mean number of seats that it used.
    Share,
    /// Jain's index over the users' rates: 1 is equal.
    Jain,
}

/// How the measure and its bound compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relation {
    AtMost,
    AtLeast,
    Equal,
}

/// What a measure is compared with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ExpectedBound {
    /// Seconds for a latency, otherwise a number.
    Number(f64),
    /// A multiple of a reference.
    Times(f64, ComparisonBase),
}

/// What a bound may refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ComparisonBase {
    Alone,
    Without,
    Ideal,
}

const MEASURES: &[(&str, Measure)] = &[
    ("p50", Measure::P50),
    ("p90", Measure::P90),
    ("p99", Measure::P99),
    ("p999", Measure::P999),
    ("max", Measure::Max),
    ("rate", Measure::Rate),
    ("refused", Measure::Refused),
    ("errors", Measure::Errors),
    ("share", Measure::Share),
    ("jain", Measure::Jain),
];

/// The notation, for messages.
const EXAMPLE: &str =
    "write it as \"mouse.p99 <= 5 x alone\", \"mouse.p99 <= 200ms\" or \"all.errors == 0\"";

impl Measure {
    /// Whether it is a time.
    pub(crate) fn is_latency(self) -> bool {
        matches!(
            self,
            Self::P50 | Self::P90 | Self::P99 | Self::P999 | Self::Max
        )
    }

    fn name(self) -> &'static str {
        let found = MEASURES.iter().find(|(_, measure)| *measure == self);
        found.map_or("?", |(name, _)| name)
    }

    /// `value` of this measure for people.
    pub(crate) fn written(self, value: f64) -> String {
        if value.is_infinite() {
            return "unbounded".to_owned();
        }
        if self.is_latency() {
            let ms = value * 1000.0;
            return match ms {
                ms if ms < 10.0 => format!("{ms:.2} ms"),
                ms if ms < 1000.0 => format!("{ms:.0} ms"),
                _ => format!("{value:.2} s"),
            };
        }
        match self {
            Self::Refused | Self::Errors => format!("{value:.0}"),
            Self::Rate => format!("{value:.1}/s"),
            _ => format!("{value:.3}"),
        }
    }
}

impl Relation {
    /// Whether it holds between a measured value and its bound.
    #[expect(clippy::float_cmp, reason = "only counts are compared for equality")]
    pub(crate) fn holds(self, actual: f64, bound: f64) -> bool {
        match self {
            // A latency without success is infinite: it meets no bound, not even an infinite one.
            Self::AtMost => actual.is_finite() && actual <= bound,
            Self::AtLeast => actual >= bound,
            Self::Equal => actual == bound,
        }
    }
}

impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Expectation {
    /// Reads an expectation.
    ///
    /// # Errors
    ///
    /// The problem, and the remedy.
    pub(crate) fn parse(text: &str) -> Result<Self, (String, String)> {
        let wrong = |problem: String| (problem, EXAMPLE.to_owned());
        let words: Vec<&str> = text.split_whitespace().collect();
        let (subject, relation, bound) = match words.as_slice() {
            [subject, relation, bound @ ..] if !bound.is_empty() => (*subject, *relation, bound),
            _ => {
                return Err(wrong(format!(
                    "{text:?} has no measure, relation and bound"
                )));
            }
        };
        let (who, name) = subject
            .rsplit_once('.')
            .ok_or_else(|| wrong(format!("{subject:?} is not CLIENT.MEASURE")))?;
        let measure = MEASURES.iter().find(|(word, _)| *word == name);
        let measure = measure.map(|(_, measure)| *measure).ok_or_else(|| {
            let names: Vec<&str> = MEASURES.iter().map(|(name, _)| *name).collect();
            (
                format!("{name:?} is not a measure"),
                format!("write one of {}", names.join(", ")),
            )
        })?;
        let relation = match relation {
            "<=" => Relation::AtMost,
            ">=" => Relation::AtLeast,
            "==" if matches!(measure, Measure::Refused | Measure::Errors) => Relation::Equal,
            "==" => {
                return Err((
                    format!("{name} is never exactly equal to anything"),
                    "write <= or >=".to_owned(),
                ));
            }
            other => {
                return Err((
                    format!("{other:?} is not a relation"),
                    "write <=, >= or ==".to_owned(),
                ));
            }
        };
        let bound = bound_of(bound, measure).map_err(wrong)?;
        Ok(Self {
            who: (who != "all").then(|| who.to_owned()),
            measure,
            relation,
            bound,
            text: words.join(" "),
        })
    }

    /// Whether it refers to `reference`.
    pub(crate) fn refers_to(&self, reference: ComparisonBase) -> bool {
        matches!(self.bound, ExpectedBound::Times(_, of) if of == reference)
    }

    /// Who and what is measured, such as `mouse.p99`.
    pub(crate) fn subject(&self) -> String {
        format!(
            "{}.{}",
            self.who.as_deref().unwrap_or("all"),
            self.measure.name()
        )
    }
}

fn bound_of(words: &[&str], measure: Measure) -> Result<ExpectedBound, String> {
    let text = words.join(" ");
    match words {
        [factor, "x", reference] => {
            let factor: f64 = factor
                .parse()
                .map_err(|_| format!("{factor:?} is not a number"))?;
            let reference = match *reference {
                "alone" => ComparisonBase::Alone,
                "without" => ComparisonBase::Without,
                "ideal" if measure == Measure::Share => ComparisonBase::Ideal,
                "ideal" => return Err("only share has an ideal".to_owned()),
                other => return Err(format!("{other:?} is not a reference")),
            };
            Ok(ExpectedBound::Times(factor, reference))
        }
        [time] if measure.is_latency() => {
            let parsed = parse_duration(time.as_bytes());
            let time = parsed.map_err(|_| format!("{time:?} is not a duration"))?;
            Ok(ExpectedBound::Number(Duration::as_secs_f64(&time)))
        }
        [number] => {
            let number = number.parse::<f64>();
            number
                .map(ExpectedBound::Number)
                .map_err(|_| format!("{text:?} is not a number"))
        }
        _ => Err(format!("{text:?} is not a bound")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expectation_has_a_measure_a_relation_and_a_bound() {
        let parsed = Expectation::parse("mouse.p99  <= 5 x alone").unwrap();
        assert_eq!(parsed.who.as_deref(), Some("mouse"));
        assert_eq!(
            (parsed.measure, parsed.relation),
            (Measure::P99, Relation::AtMost)
        );
        assert_eq!(
            parsed.bound,
            ExpectedBound::Times(5.0, ComparisonBase::Alone)
        );
        assert_eq!(parsed.to_string(), "mouse.p99 <= 5 x alone");

        let parsed = Expectation::parse("all.errors == 0").unwrap();
        assert_eq!(
            (parsed.who, parsed.bound),
            (None, ExpectedBound::Number(0.0))
        );
        let parsed = Expectation::parse("mouse.max <= 1m0.5s").unwrap();
        assert_eq!(parsed.bound, ExpectedBound::Number(60.5));
    }

    #[test]
    fn an_invalid_expectation_is_reported_with_a_remedy() {
        for (text, problem) in [
            ("", "has no measure"),
            ("mouse <= 5", "is not CLIENT.MEASURE"),
            ("mouse.p98 <= 5ms", "is not a measure"),
            ("mouse.p99 < 5ms", "is not a relation"),
            ("mouse.p99 == 5ms", "never exactly equal"),
            ("mouse.p99 <= 5", "is not a duration"),
            ("mouse.p99 <= 5 x ideal", "only share"),
            ("mouse.p99 <= 5 x ever", "is not a reference"),
            ("mouse.p99 <= 5 times alone", "is not a bound"),
        ] {
            let (found, remedy) = Expectation::parse(text).unwrap_err();
            assert!(found.contains(problem), "{text}: {found}");
            assert!(!remedy.is_empty());
        }
    }
}
