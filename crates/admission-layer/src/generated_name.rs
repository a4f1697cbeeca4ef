//! Names of new objects that the client leaves to the server (`generateName`), where a policy reads them.
//!
//! A server generates the name before its policies evaluate the object. So the name is chosen here, and sent with the request, which
//! keeps its `generateName`. If an object has that name already, another one is chosen and the request is evaluated again, as often
//! as the server tries. Webhooks of the server see a name that they would not see otherwise.
//!
//! An audited request and a client's dry run stay as they are: their name is the one in the response. Responses in YAML or CBOR are
//! not read.
//!
//! Source: Kubernetes `apiserver/pkg/registry/generic/registry/store.go` and `apiserver/pkg/storage/names/generate.go`.

use fairgate_admission::Fidelity;
use fairgate_apihttp::random::generated_name;
use fairgate_call::{Call, Refusal, Reply, ReplyBody, RequestProgress};
use fairgate_objects::codec::BodyFormat;
use http::{Response, StatusCode};
use tower::Service;

use crate::{
    evaluate::{Evaluation, Unevaluated},
    guarded::conditional::{CarriedOut, MAX_CONFLICT, RecordAtEnd, guarded},
    limits::body_budget::{self, ReadFailure},
    object::evaluated_object::WriteStrategy,
    object::object_name::{
        ChosenName, NameSource, ObjectName, name_in, prefix_of, says_taken, with_name,
    },
    object::objects,
    replies::reply_copy::CountedReply,
    replies::responses::RefusedRequest,
    request::write_request::WriteVerb,
};

impl Evaluation {
    /// Chooses the name of the object, if a server would generate it and a policy reads it.
    ///
    /// # Errors
    ///
    /// What is lacking for that.
    pub(crate) async fn choose_name(&mut self, call: &mut Call) -> Result<(), Unevaluated> {
        let Some(prefix) = self.prefix_of_read_name().await? else {
            return Ok(());
        };
        if self.plan.facts.dry_run {
            self.plan.fidelity = Fidelity::DryRun;
            self.object_name = ObjectName::OfDryRun;
            return Ok(());
        }
        if !self.share.take(self.body.len()) {
            return Err(RefusedRequest::no_room(self.output).into());
        }
        self.object_name = ObjectName::Chosen(ChosenName {
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
    pub(crate) async fn choose_another_name(&mut self, call: &mut Call) -> Result<(), Unevaluated> {
        let Some(chosen) = self.chosen_name() else {
            return Ok(());
        };
        let name = generated_name(&chosen.prefix).map_err(|error| self.bad(&error))?;
        let format = objects::body_format(&self.content_type).map_err(|error| self.bad(&error))?;
        let (unnamed, given) = (chosen.unnamed.clone(), name.clone());
        let naming = move || with_name(format, &unnamed, &given);
        let named = self.off_core(self.body.len(), naming).await?;
        let unnameable = || Unevaluated::Failed("the object cannot be given a name".to_owned());
        let media = (format == BodyFormat::Json).then_some("application/json");
        self.forward_instead(call, media, named.ok_or_else(unnameable)?.into())?;
        if let ObjectName::Chosen(chosen) = &mut self.object_name {
            chosen.name = name;
            chosen.attempts += 1;
        }
        Ok(())
    }

    /// The name that was chosen for the object.
    pub(crate) fn chosen_name(&self) -> Option<&ChosenName> {
        match &self.object_name {
            ObjectName::Chosen(chosen) => Some(chosen),
            _ => None,
        }
    }

    /// Whether the request is to be tried with another name, if the one that was chosen for it is taken.
    pub(crate) fn may_choose_another_name(&self) -> bool {
        self.chosen_name().is_some_and(|chosen| !chosen.is_last())
    }

    /// Where the name of the object is from, if it is a new one.
    pub(crate) fn name_source(&self) -> NameSource {
        match &self.object_name {
            ObjectName::Chosen(_) => NameSource::Gateway,
            ObjectName::OfServer(name) => NameSource::Server(name.clone()),
            ObjectName::OfClient | ObjectName::OfDryRun => NameSource::Client,
        }
    }

    /// Whether a server may generate the name of the object, and a policy reads it; found without decoding the body.
    pub(crate) fn may_be_unnamed(&self) -> bool {
        let facts = &self.plan.facts;
        let is_creation = facts.verb == WriteVerb::Create && facts.subresource.is_empty();
        // In protobuf a field has no name, and where a text has escapes it may be written otherwise.
        let has_prefix = || {
            matches!(
                objects::body_format(&self.content_type),
                Ok(BodyFormat::Protobuf)
            ) || memchr::memmem::find(&self.body, b"generateName").is_some()
                || memchr::memchr(b'\\', &self.body).is_some()
        };
        self.plan.reads_name && is_creation && has_prefix() && self.may_be_stored()
    }

    /// What the name of the object is to begin with, if a server generates it and a policy reads it.
    async fn prefix_of_read_name(&self) -> Result<Option<String>, Unevaluated> {
        // Other content types come so far only with a dry run, in which the upstream refuses them: those that are too long to be read here do not.
        let Ok(format) = objects::body_format(&self.content_type) else {
            return Ok(None);
        };
        if !self.may_be_unnamed() {
            return Ok(None);
        }
        let (facts, body) = (self.plan.facts.clone(), self.body.clone());
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
        let body = match body {
            Ok(body) => body,
            Err(failure) => {
                let refused = match failure {
                    ReadFailure::NoRoom => RefusedRequest::no_room(self.output),
                    failure => RefusedRequest::failed(&failure.to_string(), self.output),
                };
                return Ok(CarriedOut::Refused(Box::new(call), refused));
            }
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

    /// Takes the name of an audited object from the response, if a server generates it and a policy reads it. Where that has no name,
    /// because the request is refused for example, the object gets one here, as a server would have given it one.
    ///
    /// # Errors
    ///
    /// What is lacking for that.
    pub(crate) async fn take_name(
        &mut self,
        reply: Option<CountedReply>,
    ) -> Result<(), Unevaluated> {
        let Some(prefix) = self.prefix_of_read_name().await? else {
            return Ok(());
        };
        let mut found = None;
        if let Some((bytes, _counted)) = reply {
            let facts = self.plan.facts.clone();
            let length = bytes.len();
            let read = move || name_in(&bytes, &facts);
            found = self.off_core(length, read).await?;
        }
        let name = match found {
            Some(name) => name,
            None => generated_name(&prefix).map_err(|error| self.bad(&error))?,
        };
        self.object_name = ObjectName::OfServer(name);
        Ok(())
    }
}
