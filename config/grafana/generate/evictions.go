package main

// Panels that the overview has, too.
var (
	whoseEvictionsFail = Panel{Title: "Whose evictions fail, and why (fairgate)", Unit: PerSec, Wide: true, Stacked: true, Ours: true, Empty: "no eviction fails",
		About:   "Evictions each second that ended with a server error, by user, status and reason, of those with most. upstream-error: the upstream answered so; other reasons are those of the gateway. Needs a metric of fairgate.",
		Queries: []Query{{Expr: `topk(10, sum by (user, code, reason) (rate(fairgate_user_failed_evictions_total{@}[$__rate_interval]))) > 0`, Legend: "{{user}}: {{code}} {{reason}}"}}}
	whoseWritesRefused = Panel{Title: "Whose writes admission refuses, and why (fairgate)", Unit: PerSec, Wide: true, Stacked: true, Ours: true, Empty: "none refused",
		About:   "Requests each second that admission refused, by user, status and reason, of those with most: denied by a policy, or not evaluated. Needs a metric of fairgate.",
		Queries: []Query{{Expr: `topk(10, sum by (user, code, reason) (rate(fairgate_user_refusals_total{reason=~"admission.*", @}[$__rate_interval]))) > 0`, Legend: "{{user}}: {{code}} {{reason}}"}}}
)

var evictions = Board{
	UID:   "fairgate-evictions",
	Title: "fairgate / Evictions and admission",
	About: "Are nodes drained, are budgets computed, and are admission policies evaluated? All panels need metrics of fairgate, and most are empty unless eviction or admission is configured.",
	Rows: []Row{
		{Title: "At a glance", Panels: []Panel{
			{Title: "Evictions that fail (fairgate)", Kind: Stat, Unit: Fraction, Ours: true, Bounds: failing, Empty: "no evictions",
				About:   "The part of the evictions that end with a server error. FairgateEvictionsFail fires at a tenth. Needs a metric of fairgate.",
				Queries: []Query{{Expr: `sum(rate(fairgate_evictions_total{outcome="failed", @}[$__rate_interval])) / (sum(rate(fairgate_evictions_total{@}[$__rate_interval])) > 0)`, Legend: "failed"}}},
			{Title: "Budgets are computed (fairgate)", Kind: Stat, Unit: Boolean, Ours: true, Bounds: is, Empty: "no disruption controller here",
				About:   "Whether one of these gateways runs the disruption controller (eviction.controller). Needs a metric of fairgate.",
				Queries: []Query{{Expr: `max(fairgate_disruption_controller_leader{@})`, Legend: "leader"}}},
			{Title: "Admission policies are up to date (fairgate)", Kind: Stat, Unit: Boolean, Ours: true, Bounds: is, Empty: "no admission policies",
				About:   "Whether the admission policies in force are those of their source, and what they need of the cluster is known, on all gateways. Needs a metric of fairgate.",
				Queries: []Query{{Expr: `min(fairgate_admission_synced{@})`, Legend: "synced"}}},
			{Title: "Writes without a verdict (fairgate)", Kind: Stat, Unit: Fraction, Ours: true, Bounds: failing, Empty: "no writes to evaluate",
				About:   "The part of the requests that admission policies are for that were refused because the policies could not be evaluated. FairgateAdmissionFails fires at a tenth. Needs metrics of fairgate.",
				Queries: []Query{{Expr: notJudged, Legend: "no verdict"}}},
		}},
		{Title: "Who, and why", Panels: []Panel{whoseEvictionsFail, whoseWritesRefused}},
		{Title: "Evictions", Panels: []Panel{
			{Title: "Evictions by outcome (fairgate)", Unit: PerSec, Stacked: true, Ours: true, Empty: "no evictions",
				About:   "Evictions each second by how they ended. Refused are those whose budget allows none now. Needs a metric of fairgate.",
				Queries: []Query{{Expr: `sum by (outcome) (rate(fairgate_evictions_total{@}[$__rate_interval])) > 0`, Legend: "{{outcome}}"}}},
			{Title: "Evictions that wait (fairgate)", Unit: Count, Ours: true, Empty: "evictions do not wait: no eviction.wait",
				About:   "Evictions that wait for their budgets now. Needs a metric of fairgate.",
				Queries: []Query{{Expr: `sum by (instance) (fairgate_evictions_waiting{@})`, Legend: "{{instance}}"}}},
			{Title: "Wait for a budget, 99th percentile (fairgate)", Unit: Seconds, Ours: true, Bounds: &Bounds{Warn: 30, Bad: 300}, Empty: "no eviction waited",
				About:   "99 of 100 evictions waited less for their budgets, by how they ended. Karpenter wants at most 30 s. Needs a metric of fairgate.",
				Queries: []Query{{Expr: `histogram_quantile(0.99, sum by (le, outcome) (rate(fairgate_eviction_wait_duration_seconds_bucket{@}[$__rate_interval])))`, Legend: "{{outcome}}"}}},
		}},
		{Title: "Disruption budgets", Panels: []Panel{
			{Title: "Budgets (fairgate)", Unit: Count, Ours: true, Empty: "no disruption controller here",
				About: "Budgets, those that allow no disruption now, and those that allow none because their namespace has too many selectors. Needs metrics of fairgate.",
				Queries: []Query{
					{Expr: `sum(fairgate_disruption_budgets{@})`, Legend: "all"},
					{Expr: `sum(fairgate_disruption_budgets_exhausted{@})`, Legend: "exhausted"},
					{Expr: `sum(fairgate_disruption_budgets_over_limit{@})`, Legend: "too many selectors"}}},
			{Title: "Syncs by outcome (fairgate)", Unit: PerSec, Stacked: true, Ours: true, Empty: "no disruption controller here",
				About:   "Budgets each second whose status was computed, by outcome. Needs a metric of fairgate.",
				Queries: []Query{{Expr: `sum by (outcome) (rate(fairgate_disruption_syncs_total{@}[$__rate_interval]))`, Legend: "{{outcome}}"}}},
			{Title: "Age of the last sync (fairgate)", Unit: Seconds, Ours: true, Bounds: &Bounds{Warn: 60, Bad: 600}, Empty: "no disruption controller here",
				About:   "Time since a status of a budget was last computed or found up to date. Needs a metric of fairgate.",
				Queries: []Query{{Expr: `max by (instance) (fairgate_disruption_sync_age_seconds{@})`, Legend: "{{instance}}"}}},
		}},
		{Title: "Admission policies", Panels: []Panel{
			{Title: "Requests by decision (fairgate)", Unit: PerSec, Stacked: true, Ours: true, Empty: "no request that a policy is for",
				About:   "Requests each second that admission policies are for, by decision. notJudged were forwarded although policies could not be evaluated, failed were refused because of that. Needs a metric of fairgate.",
				Queries: []Query{{Expr: `sum by (mode, decision) (rate(fairgate_admission_requests_total{@}[$__rate_interval])) > 0`, Legend: "{{mode}}: {{decision}}"}}},
			{Title: "Refusals of admission by reason (fairgate)", Unit: PerSec, Stacked: true, Ours: true, Bounds: unusual, Empty: "none refused",
				About:   "Requests each second that admission refused, by reason: denied by a policy, or not evaluated. Needs a metric of fairgate.",
				Queries: []Query{{Expr: `sum by (reason) (rate(fairgate_refusals_total{reason=~"admission.*", @}[$__rate_interval])) > 0`, Legend: "{{reason}}"}}},
			{Title: "Policies that fail or deny", Unit: PerSec, Stacked: true, Empty: "no validation failed",
				About:   "Failed validations and errors each second, by policy and what follows from them. With admission.mode: audit nothing is denied.",
				Queries: []Query{{Expr: `topk(10, sum by (policy, enforcement_action, error_type) (rate(apiserver_validating_admission_policy_check_total{@}[$__rate_interval]))) > 0`, Legend: "{{policy}}: {{enforcement_action}} {{error_type}}"}}},
			{Title: "Time of policies, 99th percentile (fairgate)", Unit: Seconds, Ours: true, Bounds: &Bounds{Warn: 0.01, Bad: 0.1}, Empty: "no policy was evaluated",
				About:   "99 of 100 evaluations of each policy took less, of the ten slowest. Needs a metric of fairgate.",
				Queries: []Query{{Expr: `topk(10, histogram_quantile(0.99, sum by (le, policy) (rate(fairgate_admission_policy_duration_seconds_bucket{@}[$__rate_interval]))))`, Legend: "{{policy}}"}}},
			{Title: "Policies in force (fairgate)", Unit: Count, Ours: true, Empty: "no admission policies",
				About:   "Admission policies with a binding that are in force. Needs a metric of fairgate.",
				Queries: []Query{{Expr: `max by (instance) (fairgate_admission_policies{@})`, Legend: "{{instance}}"}}},
			{Title: "Audit records that were lost (fairgate)", Unit: PerSec, Ours: true, Bounds: unusual, Empty: "no audit log",
				About:   "Records of evaluated requests each second that were neither counted nor written. Needs a metric of fairgate.",
				Queries: []Query{{Expr: `sum(rate(fairgate_admission_audit_dropped_total{@}[$__rate_interval]))`, Legend: "lost"}}},
		}},
	},
}
