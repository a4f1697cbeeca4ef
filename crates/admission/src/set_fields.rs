//! Which expressions of a policy read what a server sets: for tools that review policies.

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use serde::Deserialize as _;
use serde_json::Value;

use crate::policy::CompiledPolicy;
use crate::set_by_server::FieldSetByServer;

/// An expression of a policy, and what it reads that a server sets.
#[derive(Clone, Debug)]
pub struct ExpressionFields {
    /// The field of the expression, such as `spec.validations[0].expression`.
    pub field: String,
    /// What it may read, of any resource.
    pub set_by_server: Vec<&'static FieldSetByServer>,
}

/// The expressions of a policy that may read fields which a server sets. A variable counts where it is used.
///
/// # Errors
///
/// When it is not a policy. Expressions that do not compile cause no error, and read nothing.
pub fn expressions_about_set_fields(
    policy: &Value,
) -> Result<Vec<ExpressionFields>, serde_json::Error> {
    let policy = ValidatingAdmissionPolicy::deserialize(policy)?;
    let compiled = CompiledPolicy::unbound(&policy);
    let spec = policy.spec.unwrap_or_default();
    let mut found = Vec::new();
    compiled.visit_reads(&spec, &mut |(role, index), reads| {
        let set_by_server: Vec<_> = FieldSetByServer::read_by(&reads).collect();
        if !set_by_server.is_empty() {
            found.push(ExpressionFields {
                field: role.field(index),
                set_by_server,
            });
        }
    });
    Ok(found)
}
