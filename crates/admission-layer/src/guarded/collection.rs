//! Deletions of collections: evaluates the stored objects page by page.

use serde_json::{Value, json};

use crate::{
    evaluate::{Evaluation, EvaluationEnd, Unevaluated},
    limits::body_budget::ReadFailure,
    object::guard::EvaluatedItem,
    replies::dry_run::DryRunRefusal,
    replies::responses::{RefusedRequest, reasons},
    upstream::upstream_objects::{ListFailure, PAGE, UpstreamPage},
};
use fairgate_admission::AdmissionMode;
use fairgate_apihttp::list_parameters::ListParameters;
use fairgate_base::tasks;
use fairgate_core::digest::is_parameter;
use fairgate_upstream::path::push_segment;

impl Evaluation {
    /// Evaluates each object of a collection. The request is refused if one of them must not be deleted; the objects after it
    /// are then evaluated in audit mode only.
    ///
    /// What policies do about the objects is kept as long as there is memory for it. Verdicts count in any case.
    ///
    /// # Errors
    ///
    /// Why there is no verdict.
    pub(crate) async fn collection(&mut self) -> Result<EvaluationEnd, Unevaluated> {
        let wanted = self.plan.query.list_parameters();
        let wanted = wanted.map_err(|error| self.bad(&error))?;
        self.set_delete_options().await?;
        let selectors = self.selectors();
        let stops_early = self.evaluator.mode == AdmissionMode::Enforce;
        let mut all = EvaluationEnd::default();
        let deleted = self.deleted_items.number();
        let mut left = usize::try_from(wanted.limit)
            .ok()
            .filter(|limit| *limit > 0)
            .map(|limit| limit.saturating_sub(deleted));
        let (mut from, mut limit) = (first_page(&wanted), PAGE);
        while left != Some(0) {
            // What was deleted before it is evaluated again may still be listed.
            let size = left.map_or(limit, |left| limit.min(left.saturating_add(deleted)));
            let mut page = match self.page(&selectors, &from, size).await {
                Err(ListFailure::Unread(ReadFailure::TooLong | ReadFailure::NoRoom))
                    if size > 1 =>
                {
                    limit = (size / 8).max(1);
                    continue;
                }
                page => page.map_err(|failure| self.not_listed(failure))?,
            };
            self.deleted_items.remove_from(&mut page.items, left);
            left = left.map(|left| left.saturating_sub(page.items.len()));
            self.check_unanswered()?;
            if self.plan.facts.kind[2].is_empty() {
                self.plan
                    .facts_mut()
                    .set_kind(&page.api_version, &page.kind);
            }
            for mut item in std::mem::take(&mut page.items) {
                if let Value::Object(members) = &mut item {
                    members.insert("apiVersion".to_owned(), json!(page.api_version));
                    members.insert("kind".to_owned(), json!(page.kind));
                }
                self.check_deletion(&item)?;
                self.note_item(&item)?;
                let end = self.evaluate(None, Some(item)).await?;
                self.keep(&mut all, end);
                if stops_early && all.evaluated.refusal.is_some() {
                    return Ok(all);
                }
                // Many of them must not keep the core from other requests.
                tokio::task::yield_now().await;
            }
            if page.continue_token.is_empty() {
                break;
            }
            from.clear();
            parameter(&mut from, "continue", &page.continue_token);
        }
        Ok(all)
    }

    /// Notes an object whose deletion is evaluated, if that is to be guarded.
    fn note_item(&mut self, object: &Value) -> Result<(), Unevaluated> {
        if self.evaluator.guard {
            let item = EvaluatedItem::of(object);
            if !self.share.take_decoded(item.bytes()) {
                return Err(RefusedRequest::no_room(self.output).into());
            }
            self.evaluated_items.push(item);
        }
        Ok(())
    }

    /// Adds what policies say about one object.
    fn keep(&mut self, all: &mut EvaluationEnd, mut end: EvaluationEnd) {
        all.evaluating += end.evaluating;
        // Nobody counts validations that hold.
        end.evaluated.checks.retain(|check| check.action.is_some());
        if !self.share.take(end.evaluated.bytes()) {
            end.evaluated.forget_texts();
        }
        all.evaluated.add(end.evaluated);
    }

    async fn page(
        &self,
        selectors: &str,
        from: &str,
        limit: usize,
    ) -> Result<UpstreamPage, ListFailure> {
        let (upstream, path) = (self.evaluator.upstream.clone(), self.path.clone());
        let (selectors, from) = (selectors.to_owned(), from.to_owned());
        let share = self.share.another();
        let reading = async move { upstream.page(&path, &selectors, &from, limit, share).await };
        let task = tasks::spawn_until_dropped(&self.control, reading);
        let page = task.await;
        page.unwrap_or_else(|error| Err(error.to_string().into()))
    }

    fn not_listed(&self, failure: ListFailure) -> Unevaluated {
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

/// Where the list of a collection begins, as the client wants it: a server deletes what was there at a revision if it is asked to.
fn first_page(wanted: &ListParameters) -> String {
    let mut from = String::new();
    let version = &*wanted.resource_version;
    // 0 is any revision.
    if !version.is_empty() && version != "0" {
        parameter(&mut from, "resourceVersion", version);
        let matched = match &*wanted.version_match {
            // Without a page size, a server takes this revision for the oldest one.
            "" if wanted.limit < 0 && wanted.continue_token.is_empty() => "NotOlderThan",
            matched => matched,
        };
        parameter(&mut from, "resourceVersionMatch", matched);
    }
    parameter(&mut from, "continue", &wanted.continue_token);
    from
}

/// Appends a parameter to a query that has some, unless it is empty.
fn parameter(query: &mut String, name: &str, value: &str) {
    if !value.is_empty() {
        query.push('&');
        query.push_str(name);
        query.push('=');
        push_segment(query, value);
    }
}
