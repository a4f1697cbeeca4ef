//! The grammars of field and label selectors.
//!
//! Everything is bytes, because a decoded query need not be UTF-8. Classification only needs to know whether a selector
//! decodes; `fairgate-objects` turns the result into selectors and error messages.
//!
//! Not here: matching objects.

mod field;
mod label;

pub(super) use self::{field::FieldTerms, label::is_label_selector};
pub use self::{
    field::{FieldTerm, FieldTermError, field_terms},
    label::{
        ExpectedToken, LabelOperator, LabelRequirement, LabelSelectorParser, LabelSyntaxError,
    },
};
