//! Label selectors of policies.

use fairgate_cel::CelJson;
use fairgate_objects::selector::LabelSelector;
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
        self.selector.matches_by(|key| label(labels?, key))
    }

    pub(crate) fn required(&self) -> Option<(&str, &[String])> {
        let (key, values) = self.required.as_ref()?;
        Some((key, values))
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
