//! Names of new objects that the client leaves to the server (`generateName`), where a policy reads them.
//!
//! A server generates the name before its policies judge the object. So the name is chosen here, and sent with the request, which
//! keeps its `generateName`. If an object has that name already, another one is chosen and the request is judged again, as often
//! as the server tries. Webhooks of the server see a name that they would not see otherwise.
//!
//! An audited request and a client's dry run stay as they are: their name is the one in the response.
//!
//! Source: Kubernetes `apiserver/pkg/registry/generic/registry/store.go` and `apiserver/pkg/storage/names/generate.go`.

use fairgate_admission::Fidelity;
use fairgate_apiserver::generated_name;
use fairgate_call::{Call, Refusal, Reply, ReplyBody, RequestProgress};
use fairgate_objects::codec::BodyFormat;
use http::{Response, StatusCode};
use tower::Service;

use crate::{
    body_budget,
    conditional::{CarriedOut, MAX_CONFLICT, RecordAtEnd, guarded},
    evaluate::{Evaluation, Unjudged},
    judged_object::WriteStrategy,
    object_name::{ChosenName, NameSource, name_in, prefix_of, says_taken, with_name},
    objects,
    reply_copy::ReplyCopy,
    responses::RefusedRequest,
    write_request::WriteVerb,
};

impl Evaluation {
    /// Chooses the name of the object, if a server would generate it and a policy reads it.
    ///
    /// # Errors
    ///
    /// What is lacking for that.
    pub(crate) async fn choose_name(&mut self, call: &mut Call) -> Result<(), Unjudged> {
        let Some(prefix) = self.prefix_of_read_name().await? else {
            return Ok(());
        };
        if self.plan.facts.dry_run {
            self.plan.fidelity = Fidelity::DryRun;
            return Ok(());
        }
        if !self.share.take(self.body.len()) {
            return Err(RefusedRequest::no_room(self.output).into());
        }
        self.chosen_name = Some(ChosenName {
            name: String::new(),
            prefix,
            unnamed: self.body.clone(),
            attempts: 0,
        });
        self.choose_another_name(call).await
    }

    /// Gives the object another name than before.
    ///
    /// # Errors
    ///
    /// What is lacking for that.
    pub(crate) async fn choose_another_name(&mut self, call: &mut Call) -> Result<(), Unjudged> {
        let Some(chosen) = &self.chosen_name else {
            return Ok(());
        };
        let name = generated_name(&chosen.prefix).map_err(|error| self.bad(&error))?;
        let format = objects::body_format(&self.content_type).map_err(|error| self.bad(&error))?;
        let (unnamed, given) = (chosen.unnamed.clone(), name.clone());
        let naming = move || with_name(format, &unnamed, &given);
        let named = self.off_core(self.body.len(), naming).await?;
        let unnameable = || Unjudged::Failed("the object cannot be given a name".to_owned());
        let media = (format == BodyFormat::Json).then_some("application/json");
        self.forward_instead(call, media, named.ok_or_else(unnameable)?.into())?;
        if let Some(chosen) = &mut self.chosen_name {
            chosen.name = name;
            chosen.attempts += 1;
        }
        Ok(())
    }

    /// Whether the request is to be tried with another name, if the one that was chosen for it is taken.
    pub(crate) fn may_choose_another_name(&self) -> bool {
        let chosen = self.chosen_name.as_ref();
        chosen.is_some_and(|chosen| !chosen.is_last())
    }

    /// Where the name of the object is from, if it is a new one.
    pub(crate) fn name_source(&self) -> NameSource {
        match (&self.chosen_name, &self.answered_name) {
            (Some(_), _) => NameSource::Gateway,
            (None, Some(name)) => NameSource::Server(name.clone()),
            (None, None) => NameSource::Client,
        }
    }

    /// What the name of the object is to begin with, if a server generates it and a policy reads it.
    async fn prefix_of_read_name(&self) -> Result<Option<String>, Unjudged> {
        let facts = &self.plan.facts;
        let is_creation = facts.verb == WriteVerb::Create && facts.subresource.is_empty();
        if !(self.plan.reads_name && is_creation && self.may_be_stored()) {
            return Ok(None);
        }
        // Other content types are refused later.
        let Ok(format) = objects::body_format(&self.content_type) else {
            return Ok(None);
        };
        let is_text = format != BodyFormat::Protobuf;
        if is_text && memchr::memmem::find(&self.body, b"generateName").is_none() {
            return Ok(None);
        }
        let (facts, body) = (facts.clone(), self.body.clone());
        let read = move || {
            let object = objects::decode(format, &body, &facts, Fidelity::AsSent).ok()?;
            prefix_of(&object).map(str::to_owned)
        };
        self.off_core(self.body.len(), read).await
    }

    /// Whether the body may become an object of the server, which then has a name.
    fn may_be_stored(&self) -> bool {
        match self.strategy(None) {
            Some(WriteStrategy::Resource(of)) => of.is_stored,
            Some(WriteStrategy::Subresource(_)) => false,
            None => true,
        }
    }

    /// Forwards a request whose name was chosen here.
    pub(crate) async fn forward_named<S>(
        &self,
        call: Call,
        inner: &mut S,
        record: &mut RecordAtEnd<'_>,
        chosen: &ChosenName,
    ) -> Result<CarriedOut, Refusal>
    where
        S: Service<Call, Response = Reply, Error = Refusal>,
    {
        let reply = inner.call(guarded(&call, &self.body, None)).await?;
        if reply.status() != StatusCode::CONFLICT || chosen.is_last() {
            return Ok(CarriedOut::Reply(reply));
        }
        let (head, body) = reply.into_parts();
        let body = body_budget::collect(body, MAX_CONFLICT, &mut self.share.another()).await;
        let Ok(body) = body else {
            let why = "the response of the upstream is incomplete or too long";
            let refused = RefusedRequest::failed(why, self.output);
            return Ok(CarriedOut::Refused(Box::new(call), refused));
        };
        if !says_taken(&body, &chosen.name) {
            let reply = Response::from_parts(head, ReplyBody::full(body));
            return Ok(CarriedOut::Reply(reply));
        }
        // The upstream is done with it, and nothing has been changed.
        call.context.progress.set(RequestProgress::NotSent);
        record.cancel();
        Ok(CarriedOut::NameTaken(Box::new(call)))
    }

    /// Prepares to take the name of an audited object from the response. Returns what is to be held with that, if the server
    /// generates the name and a policy reads it.
    pub(crate) async fn await_name(&mut self) -> Option<Box<ReplyCopy>> {
        self.prefix_of_read_name().await.ok()??;
        let (copy, answer) = ReplyCopy::new(self.share.another());
        self.answer = Some(answer);
        Some(copy)
    }

    /// Waits for the response that names an audited object. What is refused has no name; any other is as good.
    pub(crate) async fn read_answered_name(&mut self) -> Result<(), Unjudged> {
        let Some(answer) = self.answer.take() else {
            return Ok(());
        };
        if let Ok((bytes, _counted)) = answer.await {
            let facts = self.plan.facts.clone();
            let length = bytes.len();
            let read = move || name_in(&bytes, &facts);
            self.answered_name = self.off_core(length, read).await?;
        }
        if self.answered_name.is_none() {
            let prefix = self.prefix_of_read_name().await?.unwrap_or_default();
            self.answered_name = generated_name(&prefix).ok();
        }
        Ok(())
    }
}
