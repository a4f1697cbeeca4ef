//! What the upstream does not show of an autoscaler of version 1, which has one metric of the utilization of processors: where policies
//! are about version 2, its other metrics are read in the request.

use fairgate_apihttp::content_type::patch_type;
use fairgate_objects::codec::BodyFormat;
use serde_json::Value;

use crate::{
    evaluate::{Evaluation, Unevaluated},
    object::body_object::BodyReading,
    object::evaluated_object::autoscalers,
    request::facts::HiddenMetrics,
    request::write_request::WriteVerb,
};

impl Evaluation {
    /// Notes the metrics that an object of the upstream does not show. `old` is the one before the request, if there is one.
    ///
    /// # Errors
    ///
    /// There is no thread to read the request.
    pub(crate) async fn note_hidden_metrics(
        &mut self,
        shown: &Value,
        old: Option<&Value>,
    ) -> Result<(), Unevaluated> {
        if !autoscalers::may_write_metrics(&self.plan.facts, &self.body) {
            return Ok(());
        }
        let metrics = if self.is_apply() && autoscalers::leaves_target(&self.body) {
            // The target may be another manager's.
            HiddenMetrics::Unknown
        } else {
            self.hidden_metrics(shown, old).await?
        };
        self.plan.facts_mut().metrics = metrics;
        Ok(())
    }

    async fn hidden_metrics(
        &self,
        shown: &Value,
        old: Option<&Value>,
    ) -> Result<HiddenMetrics, Unevaluated> {
        let reading = match patch_type(&self.content_type) {
            _ if self.is_apply() => BodyReading::Object(BodyFormat::Yaml),
            Ok(patch) if self.plan.facts.verb == WriteVerb::Patch => BodyReading::Patch(patch),
            _ => self.reading()?,
        };
        let mut body = self.body_object(reading).await?;
        let (mut facts, old) = ((*self.plan.facts).clone(), old.cloned());
        let read = move || {
            let object = body.read(&mut facts, old.as_ref());
            object.map(|object| (object, facts.metrics))
        };
        // What the gateway cannot read the upstream has read all the same.
        let read = self.off_core(self.body.len(), read).await?.ok();
        let as_shown = read.filter(|(object, _)| autoscalers::show_same(object, shown));
        Ok(as_shown.map_or(HiddenMetrics::Unknown, |(_, metrics)| metrics))
    }
}
