//! Writes of objects that do not exist.
//!
//! The API has no condition for that, and forwarded, a write would be carried out on an object that was created meanwhile, and
//! that no policy has seen. So the gateway answers itself what the server would. A PUT was evaluated as a creation, so where `admission.guard`
//! is off it is forwarded. Only a server-side apply is forwarded with the guard, too, with a version that no object has: it creates the object,
//! and is a conflict if there is one.

use crate::{
    evaluate::Evaluation,
    object::object_errors,
    replies::responses::{RefusedRequest, reasons},
};

impl Evaluation {
    /// The response to a write of an object that does not exist.
    pub(crate) fn absent(&self) -> RefusedRequest {
        let facts = &self.plan.facts;
        let error = if object_errors::creates_by_put(facts) {
            let why = "the object does not exist, and a PUT cannot be kept from changing one that is created meanwhile \
                       (admission.guard of fairgate): create it with POST";
            object_errors::conflict(facts, why)
        } else {
            object_errors::not_found(facts)
        };
        RefusedRequest::error(&error, reasons::MALFORMED, self.output)
    }
}
