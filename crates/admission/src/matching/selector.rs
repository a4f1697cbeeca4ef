//! Label selectors of policies.

use std::borrow::Cow;

use fairgate_cel::CelJson;
use fairgate_objects::selector::{LabelSelector, LabelSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector as SelectorObject;

/// A label selector, and one label that it requires.
pub(crate) struct LabelRule {
    selector: LabelSelector,
    /// A key that must be there, with one of these values.
    required: Option<(String, Vec<String>)>,
}

impl LabelRule {
    /// Reads a selector.
    ///
    /// # Errors
    ///
    /// The server's text for the first requirement that is wrong.
    pub(crate) fn new(of: &SelectorObject) -> Result<Self, String> {
        let document = serde_json::to_value(of).map_err(|error| error.to_string())?;
        let selector = LabelSelector::from_value(&document).map_err(|error| error.to_string())?;
        Ok(Self {
            selector,
            required: required(of),
        })
    }

    pub(crate) fn is_everything(&self) -> bool {
        self.selector.is_everything()
    }

    /// Whether an object with these labels, a JSON object of strings, is selected.
    pub(crate) fn selects(&self, labels: Option<&CelJson<'_>>) -> bool {
        self.selector.matches(&ObjectLabels(labels))
    }

    pub(crate) fn required(&self) -> Option<(&str, &[String])> {
        let (key, values) = self.required.as_ref()?;
        Some((key, values))
    }
}

/// The labels of an object, if it has any.
struct ObjectLabels<'l>(Option<&'l CelJson<'l>>);

impl ObjectLabels<'_> {
    fn members(&self) -> &[(Cow<'_, str>, CelJson<'_>)] {
        match self.0 {
            Some(CelJson::Object(labels)) => labels.members(),
            _ => &[],
        }
    }
}

impl LabelSet for ObjectLabels<'_> {
    fn count(&self) -> usize {
        self.members().len()
    }

    fn value(&self, key: &str) -> Option<&str> {
        label(self.0?, key)
    }

    fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.members()
            .iter()
            .filter_map(|(key, value)| match value {
                CelJson::String(value) => Some((&**key, &**value)),
                _ => None,
            })
    }
}

/// The value of a label.
pub(crate) fn label<'j>(labels: &'j CelJson<'_>, key: &str) -> Option<&'j str> {
    let CelJson::Object(labels) = labels else {
        return None;
    };
    match labels.get(key)? {
        CelJson::String(value) => Some(value),
        _ => None,
    }
}

fn required(of: &SelectorObject) -> Option<(String, Vec<String>)> {
    let label = of.match_labels.iter().flatten().next();
    if let Some((key, value)) = label {
        return Some((key.clone(), vec![value.clone()]));
    }
    let mut expressions = of.match_expressions.iter().flatten();
    let found = expressions.find(|one| one.operator == "In")?;
    Some((found.key.clone(), found.values.clone().unwrap_or_default()))
}
