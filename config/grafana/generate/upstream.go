package main

// slowOnAverage is for the mean time to the response: API servers answer a request within tens of milliseconds, large lists
// within a second.
var slowOnAverage = &Bounds{Warn: 0.3, Bad: 1}

// slowUpstream is on the overview, too: an upstream that is up may be slow.
var slowUpstream = Panel{Title: "Upstream takes for a response, mean (fairgate)", Kind: Stat, Unit: Seconds, Ours: true, Bounds: slowOnAverage, Empty: "nothing sent upstream",
	About:   "From sending a request to the head of the response, on average, without watches and other long-running requests: an upstream that can be reached may be slow. Needs a metric of fairgate.",
	Queries: []Query{{Expr: `sum(rate(fairgate_request_phase_duration_seconds_sum{phase="upstream", @}[$__rate_interval])) / (sum(rate(fairgate_request_phase_duration_seconds_count{phase="upstream", @}[$__rate_interval])) > 0)`, Legend: "upstream"}}}

var upstream = Board{
	UID:   "fairgate-upstream",
	Title: "fairgate / Upstream",
	About: "The API server behind the gateway, as the gateway sees it. All panels need metrics of fairgate.",
	Rows: []Row{
		{Title: "Connections", Panels: []Panel{
			{Title: "An API server can be reached (fairgate)", Kind: Stat, Unit: Boolean, Ours: true, Bounds: is, Empty: "not connected yet",
				About:   "Whether the upstream can be reached: no if the last attempt to connect failed, or if it speaks TLS and upstream.url says http://. Of several API servers one is enough. Needs a metric of fairgate.",
				Queries: []Query{{Expr: `min(fairgate_upstream_up{@})`, Legend: "up"}}},
			slowUpstream,
			{Title: "HTTP/2 streams, of their limit (fairgate)", Kind: Stat, Unit: Fraction, Ours: true, Bounds: nearLimit, Empty: "none used",
				About:   "Streams in use divided by their limit, of what is nearest to it. Needs metrics of fairgate.",
				Queries: []Query{{Expr: `max(fairgate_upstream_streams{@} / (fairgate_upstream_streams_limit{@} > 0))`, Legend: "streams"}}},
			{Title: "Connections lost or not opened (fairgate)", Kind: Stat, Unit: PerSec, Ours: true, Bounds: unusual, Empty: "none",
				About:   "Connections each second that could not be opened, or were lost. Needs a metric of fairgate.",
				Queries: []Query{{Expr: `sum(rate(fairgate_upstream_errors_total{@}[$__rate_interval]))`, Legend: "failed"}}},
			{Title: "Connections (fairgate)", Unit: Count, Ours: true,
				About:   "Open connections to the upstream. Needs a metric of fairgate.",
				Queries: []Query{{Expr: `sum by (instance) (fairgate_upstream_connections{@})`, Legend: "{{instance}}"}}},
			{Title: "Connections opened and failed (fairgate)", Unit: PerSec, Ours: true,
				About: "Connections each second that were opened, could not be opened, or were lost. Needs metrics of fairgate.",
				Queries: []Query{
					{Expr: `sum(rate(fairgate_upstream_connections_opened_total{@}[$__rate_interval]))`, Legend: "opened"},
					{Expr: `sum by (outcome) (rate(fairgate_upstream_errors_total{@}[$__rate_interval]))`, Legend: "{{outcome}}"}}},
			{Title: "HTTP/2 streams (fairgate)", Unit: Count, Wide: true, Ours: true,
				About: "Streams for watches and other long-running requests, and their limit. Needs metrics of fairgate.",
				Queries: []Query{
					{Expr: `sum by (carry) (fairgate_upstream_streams{@})`, Legend: "{{carry}}"},
					{Expr: `max by (carry) (fairgate_upstream_streams_limit{@})`, Legend: "{{carry}} limit"}}},
			{Title: "Requests sent again (fairgate)", Unit: PerSec, Wide: true, Ours: true,
				About:   "Requests each second that were sent a second time, because the upstream had not processed them. Needs a metric of fairgate.",
				Queries: []Query{{Expr: `sum(rate(fairgate_upstream_retries_total{@}[$__rate_interval]))`, Legend: "sent again"}}},
		}},
		{Title: "Work", Panels: []Panel{
			{Title: "Time to the response (fairgate)", Unit: Seconds, Wide: true, Ours: true, Bounds: slow, Empty: "nothing sent upstream",
				About: "From sending a request to the head of the response: half and 99 of 100 took less. Needs a metric of fairgate.",
				Queries: []Query{
					{Expr: `histogram_quantile(0.5, sum by (le) (rate(fairgate_request_phase_duration_seconds_bucket{phase="upstream", @}[$__rate_interval])))`, Legend: "median"},
					{Expr: `histogram_quantile(0.99, sum by (le) (rate(fairgate_request_phase_duration_seconds_bucket{phase="upstream", @}[$__rate_interval])))`, Legend: "99th percentile"}}},
			{Title: "Time to execute by level, 99th percentile", Unit: Seconds, Wide: true, Bounds: slow,
				About:   "99 of 100 requests executed in less, once they had their seats: how fast the upstream is.",
				Queries: []Query{{Expr: `histogram_quantile(0.99, sum by (le, priority_level) (rate(apiserver_flowcontrol_request_execution_seconds_bucket{type="regular", @}[$__rate_interval])))`, Legend: "{{priority_level}}"}}},
			{Title: "Server errors", Unit: Fraction, Wide: true, Bounds: failing, Empty: "no server errors",
				About:   "The part of the requests whose response was a server error, by status.",
				Queries: []Query{{Expr: `sum by (code) (rate(apiserver_request_total{code=~"5..", @}[$__rate_interval])) / ignoring(code) group_left () (sum(rate(apiserver_request_total{@}[$__rate_interval])) > 0)`, Legend: "{{code}}"}}},
			{Title: "Abandoned requests (fairgate)", Unit: Count, Ours: true,
				About:   "Requests that still run upstream, with their seats, although their client has left. Needs a metric of fairgate.",
				Queries: []Query{{Expr: `sum(fairgate_abandoned_requests{@})`, Legend: "abandoned"}}},
			{Title: "Abandoned requests by outcome (fairgate)", Unit: PerSec, Ours: true,
				About:   "How they ended: completed by the upstream, or cancelled at their limit. Needs a metric of fairgate.",
				Queries: []Query{{Expr: `sum by (outcome) (rate(fairgate_abandoned_requests_total{@}[$__rate_interval]))`, Legend: "{{outcome}}"}}},
			{Title: "Reviews (fairgate)", Unit: PerSec, Ours: true, Wide: true, Empty: "no reviews needed",
				About: "TokenReviews and SubjectAccessReviews sent to the upstream each second, by outcome. Needs metrics of fairgate.",
				Queries: []Query{
					{Expr: `sum by (outcome) (rate(fairgate_token_reviews_total{@}[$__rate_interval]))`, Legend: "tokens {{outcome}}"},
					{Expr: `sum by (outcome) (rate(fairgate_access_reviews_total{@}[$__rate_interval]))`, Legend: "access {{outcome}}"}}},
		}},
	},
}
