//! What a dry run shows of a request that is evaluated.

use fairgate_admission::Fidelity;
use fairgate_apihttp::{
    negotiate::{Media, Output},
    posted,
    request::ApiRequest,
};
use fairgate_call::{Call, Refusal};
use serde_json::Value;

use crate::{
    evaluate::{DrySeen, EarlyReply, Evaluation, Unevaluated},
    replies::dry_run::{DryRunEnd, DryRuns},
    replies::responses::RefusedRequest,
};

impl Evaluation {
    /// The result of a dry run, if policies ask for that and the upstream returns the object. The body is then the
    /// upstream's to read, and wrong ones are refused in its words.
    pub(crate) async fn dry_object<D: DryRuns>(
        &mut self,
        old: Option<&Value>,
        dry: Option<(&mut D, &Call)>,
    ) -> Result<DrySeen, Unevaluated> {
        let is_unknown = self.plan.fidelity > Fidelity::AsSent
            && (self.strategy(None).is_none() || self.has_unknown_type());
        if self.plan.fidelity < Fidelity::DryRun && !is_unknown {
            return Ok(DrySeen::default());
        }
        // What the dry run shows is evaluated.
        self.decoded = None;
        if is_unknown {
            self.check_dry_runs()?;
        }
        self.check_duplicates()?;
        let seen = match dry {
            Some((dry, call)) => self.dry_run(old, dry, call).await?,
            None => DrySeen::default(),
        };
        if is_unknown {
            self.plan.fidelity = Fidelity::DryRun;
            if seen.object.is_none() && seen.reply.is_none() {
                return Err(self.unknown_fields());
            }
        } else if seen.object.is_none() {
            self.plan.fidelity = Fidelity::Completed;
        }
        Ok(seen)
    }

    /// The result of server-side apply.
    pub(crate) async fn applied<D: DryRuns>(
        &mut self,
        old: Option<&Value>,
        dry: Option<(&mut D, &Call)>,
    ) -> Result<(Value, Option<EarlyReply>), Unevaluated> {
        let failed = |why: &str| Unevaluated::Failed(why.to_owned());
        let Some((dry, call)) = dry else {
            return Err(failed(
                "server-side apply can only be evaluated by a dry run",
            ));
        };
        self.plan.fidelity = Fidelity::DryRun;
        // An apply that fails says nothing of duplicate fields.
        let seen = self.dry_run(old, dry, call).await;
        let seen = seen.inspect_err(|_| self.is_silent.set(true))?;
        self.check_duplicates()?;
        let applied = seen.object;
        let applied = applied.ok_or_else(|| failed("the dry run of the apply returned no object"));
        Ok((applied?, seen.reply))
    }

    async fn dry_run<D: DryRuns>(
        &mut self,
        old: Option<&Value>,
        dry: &mut D,
        call: &Call,
    ) -> Result<DrySeen, Unevaluated> {
        let end = dry.dry_run(call, &self.body, None, &mut self.share).await;
        if call.context.has_ended() {
            return Err(Unevaluated::Inner(Refusal::ClientGone));
        }
        match end.map_err(Unevaluated::Inner)? {
            DryRunEnd::Object(object, reply, warnings) => {
                self.dry_warnings = warnings;
                self.plan.facts_mut().set_kind_by(&object);
                self.note_hidden_metrics(&object, old).await?;
                // The upstream says itself what it cannot write in the format that the client wants.
                let is_plain =
                    |output: Output| output.form.is_none() && output.media == Media::Json;
                let is_wanted = || posted::output(&ApiRequest::of(call)).is_ok_and(is_plain);
                let reply = Some(reply).filter(|_| self.plan.facts.dry_run && is_wanted());
                Ok(DrySeen {
                    object: Some(object),
                    reply: reply.map(EarlyReply::DryRun),
                })
            }
            DryRunEnd::NoObject => Ok(DrySeen::default()),
            DryRunEnd::Refused(status, refusal) => self.refused_dry_run(status, refusal),
            DryRunEnd::NoRoom => Err(RefusedRequest::no_room(self.output).into()),
            DryRunEnd::Lacking(lack) => Err(Unevaluated::Lacking(lack)),
            DryRunEnd::Failed(why) => Err(Unevaluated::Failed(why)),
        }
    }
}
