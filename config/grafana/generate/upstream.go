package main

var upstream = Board{
	UID:   "fairgate-upstream",
	Title: "fairgate / Upstream",
	About: "The API server behind the gateway, as the gateway sees it. All panels need metrics of fairgate.",
	Rows: []Row{
		{Title: "Connections", Panels: []Panel{
			{Title: "Upstream is up (fairgate)", Kind: Stat, Unit: Boolean, Ours: true,
				About:   "Whether the last attempt to connect to the upstream succeeded. Needs a metric of fairgate.",
				Queries: []Query{{`min(fairgate_upstream_up{@})`, "up"}}},
			{Title: "Connections (fairgate)", Unit: Count, Ours: true,
				About:   "Open connections to the upstream. Needs a metric of fairgate.",
				Queries: []Query{{`sum by (instance) (fairgate_upstream_connections{@})`, "{{instance}}"}}},
			{Title: "Connections opened and failed (fairgate)", Unit: PerSec, Ours: true,
				About: "Connections each second that were opened, could not be opened, or were lost. Needs metrics of fairgate.",
				Queries: []Query{
					{`sum(rate(fairgate_upstream_connections_opened_total{@}[$__rate_interval]))`, "opened"},
					{`sum by (outcome) (rate(fairgate_upstream_errors_total{@}[$__rate_interval]))`, "{{outcome}}"}}},
			{Title: "HTTP/2 streams (fairgate)", Unit: Count, Wide: true, Ours: true,
				About: "Streams for watches and other long-running requests, and their limit. Needs metrics of fairgate.",
				Queries: []Query{
					{`sum by (carry) (fairgate_upstream_streams{@})`, "{{carry}}"},
					{`max by (carry) (fairgate_upstream_streams_limit{@})`, "{{carry}} limit"}}},
			{Title: "Requests sent again (fairgate)", Unit: PerSec, Wide: true, Ours: true,
				About:   "Requests each second that were sent a second time, because the upstream had not processed them. Needs a metric of fairgate.",
				Queries: []Query{{`sum(rate(fairgate_upstream_retries_total{@}[$__rate_interval]))`, "sent again"}}},
		}},
		{Title: "Work", Panels: []Panel{
			{Title: "Time to execute by level, 99th percentile", Unit: Seconds, Wide: true,
				About:   "99 of 100 requests executed in less, once they had their seats: how fast the upstream is.",
				Queries: []Query{{`histogram_quantile(0.99, sum by (le, priority_level) (rate(apiserver_flowcontrol_request_execution_seconds_bucket{type="regular", @}[$__rate_interval])))`, "{{priority_level}}"}}},
			{Title: "Server errors", Unit: Fraction, Wide: true, Quiet: true,
				About:   "The part of the requests whose response was a server error, by status.",
				Queries: []Query{{`sum by (code) (rate(apiserver_request_total{code=~"5..", @}[$__rate_interval])) / ignoring(code) group_left () (sum(rate(apiserver_request_total{@}[$__rate_interval])) > 0)`, "{{code}}"}}},
			{Title: "Abandoned requests (fairgate)", Unit: Count, Ours: true,
				About:   "Requests that still run upstream, with their seats, although their client has left. Needs a metric of fairgate.",
				Queries: []Query{{`sum(fairgate_abandoned_requests{@})`, "abandoned"}}},
			{Title: "Abandoned requests by outcome (fairgate)", Unit: PerSec, Ours: true,
				About:   "How they ended: completed by the upstream, or cancelled at their limit. Needs a metric of fairgate.",
				Queries: []Query{{`sum by (outcome) (rate(fairgate_abandoned_requests_total{@}[$__rate_interval]))`, "{{outcome}}"}}},
			{Title: "Reviews (fairgate)", Unit: PerSec, Ours: true, Quiet: true,
				About: "TokenReviews and SubjectAccessReviews sent to the upstream each second, by outcome. Needs metrics of fairgate.",
				Queries: []Query{
					{`sum by (outcome) (rate(fairgate_token_reviews_total{@}[$__rate_interval]))`, "tokens {{outcome}}"},
					{`sum by (outcome) (rate(fairgate_access_reviews_total{@}[$__rate_interval]))`, "access {{outcome}}"}}},
		}},
	},
}
