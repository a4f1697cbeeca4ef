//! Deletions of collections: judges the stored objects page by page.

use serde_json::{Value, json};

use crate::{
    abort_on_drop::AbortOnDrop,
    body_budget::ReadFailure,
    dry_run::DryRunRefusal,
    evaluate::{Evaluated, Evaluation, Unjudged},
    guard::JudgedItem,
    responses::{RefusedRequest, reasons},
    upstream_objects::{ListFailure, PAGE, UpstreamPage},
};
use fairgate_admission::AdmissionMode;
use fairgate_base::tasks;
use fairgate_core::digest::is_parameter;

impl Evaluation {
    /// Judges each object of a collection. The request is refused if one of them must not be deleted; the objects after it
    /// are then judged in audit mode only.
    ///
    /// What policies do about the objects is kept as long as there is memory for it. Verdicts count in any case.
    ///
    /// # Errors
    ///
    /// Why there is no verdict.
    pub(crate) async fn collection(&mut self) -> Result<Evaluated, Unjudged> {
        self.set_delete_options().await?;
        let selectors = self.selectors();
        let stops_early = self.admitter.mode == AdmissionMode::Enforce;
        let mut all = Evaluated::default();
        let (mut token, mut limit) = (String::new(), PAGE);
        loop {
            let mut page = match self.page(&selectors, &token, limit).await {
                Err(ListFailure::Unread(ReadFailure::TooLong | ReadFailure::NoRoom))
                    if limit > 1 =>
                {
                    limit = (limit / 8).max(1);
                    continue;
                }
                page => page.map_err(|failure| self.not_listed(failure))?,
            };
            self.check_unanswered()?;
            if self.plan.facts.kind[2].is_empty() {
                self.plan.facts.set_kind(&page.api_version, &page.kind);
            }
            for mut item in std::mem::take(&mut page.items) {
                if let Value::Object(members) = &mut item {
                    members.insert("apiVersion".to_owned(), json!(page.api_version));
                    members.insert("kind".to_owned(), json!(page.kind));
                }
                self.check_deletion(&item)?;
                self.note_item(&item)?;
                let end = self.judge(None, Some(item)).await?;
                self.keep(&mut all, end);
                if stops_early && all.judged.refusal.is_some() {
                    return Ok(all);
                }
                // Many of them must not keep the core from other requests.
                tokio::task::yield_now().await;
            }
            token = page.continue_token;
            if token.is_empty() {
                return Ok(all);
            }
        }
    }

    /// Notes an object whose deletion is judged, if that is to be guarded.
    fn note_item(&mut self, object: &Value) -> Result<(), Unjudged> {
        if self.admitter.guard {
            let item = JudgedItem::of(object);
            if !self.share.take_decoded(item.bytes()) {
                return Err(RefusedRequest::no_room(self.output).into());
            }
            self.judged_items.push(item);
        }
        Ok(())
    }

    /// Adds what policies say about one object.
    fn keep(&mut self, all: &mut Evaluated, mut end: Evaluated) {
        all.judging += end.judging;
        // Nobody counts validations that hold.
        end.judged.checks.retain(|check| check.action.is_some());
        if !self.share.take(end.judged.bytes()) {
            end.judged.forget_texts();
        }
        all.judged.add(end.judged);
    }

    async fn page(
        &self,
        selectors: &str,
        token: &str,
        limit: usize,
    ) -> Result<UpstreamPage, ListFailure> {
        let (upstream, path) = (self.admitter.upstream.clone(), self.path.clone());
        let (selectors, from) = (selectors.to_owned(), token.to_owned());
        let share = self.share.another();
        let reading = async move { upstream.page(&path, &selectors, &from, limit, share).await };
        let mut task = AbortOnDrop(tasks::spawn_with_result(&self.control, reading));
        let page = (&mut task.0).await;
        page.unwrap_or_else(|error| Err(error.to_string().into()))
    }

    fn not_listed(&self, failure: ListFailure) -> Unjudged {
        match failure {
            ListFailure::Refused(code, body) => {
                let refusal = DryRunRefusal {
                    retry_after: None,
                    warnings: Vec::new(),
                    body,
                };
                let mut refused = RefusedRequest::by_upstream(code, refusal, self.output);
                refused.reason = reasons::MALFORMED;
                refused.into()
            }
            ListFailure::Unread(failure) => self.unread("list the stored objects", failure),
        }
    }

    /// The parameters of a collection's query that select objects.
    fn selectors(&self) -> String {
        let pairs = self.raw_query.split('&');
        let selecting =
            pairs.filter(|pair| is_parameter(pair, &["labelSelector", "fieldSelector"]));
        selecting.collect::<Vec<_>>().join("&")
    }
}
