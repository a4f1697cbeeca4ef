//! Audit mode: a request is forwarded at once, and judged meanwhile.

use std::rc::Rc;

use fairgate_call::{Call, Refusal, Reply};
use tokio::sync::oneshot;
use tower::Service;

use crate::{
    dry_run::NoDryRuns,
    evaluate::{Evaluated, Evaluation, OldRead, Unjudged},
    side::{AdmissionSide, JUDGE_LIMIT},
};

/// How many requests of a core may be judged while they are already forwarded.
const MAX_AUDITS: usize = 256;

/// A request while it is counted among those that are judged in the background.
struct CountedAudit(Rc<AdmissionSide>);

impl CountedAudit {
    fn new(side: &Rc<AdmissionSide>) -> Self {
        side.audits.set(side.audits.get() + 1);
        Self(Rc::clone(side))
    }
}

impl Drop for CountedAudit {
    fn drop(&mut self) {
        self.0.audits.set(self.0.audits.get() - 1);
    }
}

impl AdmissionSide {
    /// Forwards a request whose body was read, and judges it meanwhile.
    pub(crate) async fn audit<S>(
        self: Rc<Self>,
        call: Call,
        mut evaluation: Evaluation,
        read: Result<(), Unjudged>,
        mut inner: S,
    ) -> Result<Reply, Refusal>
    where
        S: Service<Call, Response = Reply, Error = Refusal>,
    {
        let is_busy = self.audits.get() >= MAX_AUDITS;
        if let (Ok(()), false) = (&read, is_busy) {
            let counted = CountedAudit::new(&self);
            let is_answered = Rc::clone(&evaluation.is_answered);
            let (sender, carried_out) = oneshot::channel();
            evaluation.carried_out = Some(carried_out);
            let named_by = evaluation.await_name();
            let old = evaluation.start_read();
            let audit = BackgroundAudit {
                counted,
                evaluation,
                is_done: false,
            };
            fairgate_base::turns::spawn_local_boxed(audit.judge(old));
            let mut reply = inner.call(call).await;
            let is_success = |reply: &Reply| reply.status().is_success();
            let is_done = reply.as_ref().is_ok_and(is_success);
            if let (Ok(reply), Some(copy), true) = (&mut reply, named_by, is_done) {
                reply.body_mut().hold(copy);
            }
            // What the upstream refuses changes nothing.
            let is_refused = |reply: &Reply| reply.status().is_client_error();
            is_answered.set(!reply.as_ref().is_ok_and(is_refused));
            let _ = sender.send(is_done);
            return reply;
        }
        let unjudged = match read {
            Err(unjudged) => unjudged,
            Ok(()) => Unjudged::Failed("too many requests are being judged".to_owned()),
        };
        let record = self.recorded(&evaluation, Err(&unjudged));
        self.admitter.recorder.record(record);
        if let Unjudged::Inner(refusal) = unjudged {
            return Err(refusal);
        }
        inner.call(call).await
    }
}

/// A request that is judged although it is already forwarded. It is recorded also if the gateway stops before that is done.
struct BackgroundAudit {
    counted: CountedAudit,
    evaluation: Evaluation,
    is_done: bool,
}

impl BackgroundAudit {
    async fn judge(mut self, old: OldRead) {
        let none = None::<(&mut NoDryRuns, &Call)>;
        let judging = self.evaluation.run(old, none);
        let end = tokio::time::timeout(JUDGE_LIMIT, judging).await;
        let end = end.unwrap_or_else(|_elapsed| Err(Unjudged::Failed("timed out".to_owned())));
        self.is_done = true;
        if !matches!(end, Err(Unjudged::Absent)) {
            self.record(end.as_ref());
        }
    }

    fn record(&self, end: Result<&Evaluated, &Unjudged>) {
        let side = &self.counted.0;
        let record = side.recorded(&self.evaluation, end);
        side.admitter.recorder.record(record);
    }
}

impl Drop for BackgroundAudit {
    fn drop(&mut self) {
        if !self.is_done {
            let why = "the gateway stopped before it was judged";
            self.record(Err(&Unjudged::Failed(why.to_owned())));
        }
    }
}
