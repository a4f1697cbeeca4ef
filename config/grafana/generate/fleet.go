package main

// Why panels about servers and fleets are empty.
const (
	oneServer = "one server: no upstream.servers"
	noFleet   = "no fleet: fleet.engine is none"
)

// Bounds of what servers and fleets show.
var (
	// uneven is for the difference of the used parts of two servers' seats: FairgateServersUnbalanced fires at a half.
	uneven = &Bounds{Warn: 0.3, Bad: 0.5}
	// old is for the age of a ledger: a grant holds for 10 s, and FairgateFleetLedgerStale fires then.
	old = &Bounds{Warn: 4, Bad: 10}
)

// Parts of all panels that show them.
const (
	serverLoad = `sum by (instance, server) (fairgate_upstream_server_seats_in_use{@}) / (sum by (instance, server) (fairgate_upstream_server_seats{@}) > 0)`
	serverTime = `sum by (server) (rate(fairgate_upstream_server_answer_seconds_total{@}[$__rate_interval])) / (sum by (server) (rate(fairgate_upstream_server_answers_total{@}[$__rate_interval])) > 0)`
	// A server without errors shows 0, and one without answers nothing.
	serverErrors = `sum by (server) (rate(fairgate_upstream_server_answers_total{code="5xx", @}[$__rate_interval])) / (sum by (server) (rate(fairgate_upstream_server_answers_total{@}[$__rate_interval])) > 0)`
)

// Panels that other boards have, too.
var (
	allServers = Panel{Title: "All API servers take requests (fairgate)", Kind: Stat, Unit: Boolean, Ours: true, Bounds: is, Empty: oneServer,
		About:   "Whether every server of upstream.servers takes requests, at all gateways: none is ejected or says that it is not ready. Needs a metric of fairgate.",
		Queries: []Query{{Expr: `min(fairgate_upstream_server_up{@})`, Legend: "all"}}}
	unevenServers = Panel{Title: "Difference between API servers (fairgate)", Kind: Stat, Unit: Fraction, Ours: true, Bounds: uneven, Empty: oneServer,
		About:   "The used part of a server's seats, of the server where that is most less that of the one where it is least, at the gateway where they differ most. FairgateServersUnbalanced fires at a half. Needs metrics of fairgate.",
		Queries: []Query{{Expr: `max(max by (instance) (` + serverLoad + `) - min by (instance) (` + serverLoad + `))`, Legend: "difference"}}}
	cutOff = Panel{Title: "Gateways cut off (fairgate)", Kind: Stat, Unit: Count, Ours: true, Bounds: unusual, Empty: noFleet,
		About:   "Gateways that have no grant of their fleet, and use isolatedSeats at most. FairgateFleetIsolated fires. Needs a metric of fairgate.",
		Queries: []Query{{Expr: `sum(fairgate_fleet_isolated{@})`, Legend: "cut off"}}}
	coordinated = Panel{Title: "Fleets have a coordinator (fairgate)", Kind: Stat, Unit: Boolean, Ours: true, Bounds: is, Empty: noFleet,
		About:   "Whether a gateway of each fleet, chosen here or not, divides its seats, as the gateways see it: its lease was renewed in the last 20 s. After the loss of the coordinator it takes so long until another one takes over. A gateway that has not read the ledger in the last 10 s sees none. Needs metrics of fairgate.",
		Queries: []Query{{Expr: `min(max by (fleet) ((fairgate_fleet_coordinator_age_seconds{@} < bool 20) * (fairgate_fleet_ledger_age_seconds{@} <= bool 10)))`, Legend: "coordinator"}}}
	ledgersThere = Panel{Title: "Ledgers are there and read (fairgate)", Kind: Stat, Unit: Boolean, Ours: true, Bounds: is, Empty: noFleet,
		About:   "Whether each gateway has read the ledger of its fleet in the last 10 s, and found the one that was in force last. If not, either the gateway cannot read it (Oldest ledger shows for how long), or it was deleted or restored from a backup: the table on the board of servers and gateways says which. Needs metrics of fairgate.",
		Queries: []Query{{Expr: `min((fairgate_fleet_ledger_lost{@} == bool 0) * (fairgate_fleet_ledger_age_seconds{@} <= bool 10))`, Legend: "there"}}}
	oldestLedger = Panel{Title: "Oldest ledger (fairgate)", Kind: Stat, Unit: Seconds, Ours: true, Bounds: old, Empty: noFleet,
		About:   "Time since a gateway has read the ledger of its fleet, or since it started if it has read none, of the gateway where that is longest. It is about a second; a grant holds for ten. Needs a metric of fairgate.",
		Queries: []Query{{Expr: `max(fairgate_fleet_ledger_age_seconds{@})`, Legend: "age"}}}
	whyServersAway = Panel{Title: "Why an API server is away or slow (fairgate)", Unit: Count, Wide: true, Ours: true, Empty: "no server has a problem, or there is only one",
		About:   "Servers that get no requests, or few, with the reason and the gateway that says so. not-connected: no connection can be opened. no-answer: probes or requests end without an answer. only-errors: it answers everything with an error, and others do not. hanging: it answers /readyz and no request, and others do. not-ready: its /readyz says so. slow: far slower than the others. unlisted: no longer an address of its name. Needs a metric of fairgate.",
		Queries: []Query{{Expr: `max by (instance, server, reason) (fairgate_upstream_server_problem{@})`, Legend: "{{server}}: {{reason}}, says {{instance}}"}}}
	whyCutOff = Panel{Title: "Why a gateway is cut off (fairgate)", Unit: Count, Wide: true, Ours: true, Empty: "no gateway is cut off, or there is no fleet",
		About:   "Gateways without a grant of their fleet, with the reason. engine-no-answer: etcd, or the API server with the leases, does not answer. engine-forbidden: it does not permit the calls. engine-failed: it answers with errors. records-unusable: damaged, of another version, or of a gateway with other settings. not-listed: the coordinator gives it no seats. no-place: fleet.maxGateways others are listed. same-name: another gateway has its name. Needs a metric of fairgate.",
		Queries: []Query{{Expr: `max by (fleet, instance, reason) (fairgate_fleet_isolated_reason{@}) == 1`, Legend: "{{instance}} of {{fleet}}: {{reason}}"}}}
)

// low is the panel at a lesser height.
func (p Panel) low() Panel {
	p.Low = true
	return p
}

// to is the panel with a link to a board.
func (p Panel) to(board string) Panel {
	p.To = board
	return p
}

var fleet = Board{
	UID:   "fairgate-fleet",
	Title: "fairgate / Servers and gateways",
	About: "Several API servers (upstream.servers) and several gateways that share one limit (fleet). All panels need metrics of fairgate, and are empty with one server, or without a fleet.",
	Rows: []Row{
		{Title: "At a glance", Panels: []Panel{
			allServers,
			unevenServers,
			{Title: "Requests that wait for a server (fairgate)", Kind: Stat, Unit: Count, Ours: true, Bounds: unusual, Empty: oneServer,
				About:   "Requests that have seats, and wait until an API server has so much room. Needs a metric of fairgate.",
				Queries: []Query{{Expr: `sum(fairgate_upstream_server_waiting_requests{@})`, Legend: "waiting"}}},
			{Title: "Server errors of the worst server (fairgate)", Kind: Stat, Unit: Fraction, Ours: true, Bounds: failing, Empty: "one server, or no answers",
				About:   "The part of a server's responses that are server errors, of the server where that is most. Needs a metric of fairgate.",
				Queries: []Query{{Expr: `max(` + serverErrors + `)`, Legend: "errors"}}},
			cutOff,
			coordinated,
			ledgersThere,
			oldestLedger,
			whyServersAway,
			whyCutOff,
		}},
		{Title: "API servers", Panels: []Panel{
			{Title: "Servers: state, seats, errors and watches (fairgate)", Kind: Table, RowsOf: "server", Unit: Count, Ours: true, Empty: oneServer,
				About: "A row for each API server, as all chosen gateways together see it. Takes requests is no if one gateway sends it none. With several gateways and no fleet, a server can have more seats in use than its capacity. Needs metrics of fairgate.",
				Queries: []Query{
					{Expr: `min by (server) (fairgate_upstream_server_up{@})`, Legend: "Takes requests", Unit: Boolean, Bounds: is},
					{Expr: `sum by (server) (fairgate_upstream_server_seats_in_use{@})`, Legend: "Seats in use", Unit: Count},
					{Expr: `min by (server) (fairgate_upstream_server_capacity_seats{@})`, Legend: "Capacity now", Unit: Count},
					{Expr: `max by (server) (fairgate_upstream_server_seats{@})`, Legend: "Seats", Unit: Count},
					{Expr: serverTime, Legend: "Response, mean", Unit: Seconds, Bounds: slow},
					{Expr: serverErrors, Legend: "Server errors", Unit: Fraction, Bounds: failing},
					{Expr: `sum by (server) (increase(fairgate_upstream_server_ejections_total{@}[$__rate_interval]))`, Legend: "Ejections", Unit: Count, Bounds: unusual},
					{Expr: `sum by (server) (fairgate_upstream_server_long_running_requests{@})`, Legend: "Watches and tunnels", Unit: Count},
					{Expr: `sum by (server) (fairgate_upstream_server_client_connections{@})`, Legend: "Connections", Unit: Count}}},
			{Title: "Seats in use, of the server's seats (fairgate)", Unit: Fraction, Ours: true, Bounds: full, Empty: oneServer,
				About:   "Seats of the requests that each server executes, divided by those that it is configured with, at the gateway where that is most. Needs metrics of fairgate.",
				Queries: []Query{{Expr: `max by (server) (` + serverLoad + `)`, Legend: "{{server}}"}}},
			{Title: "Capacity, of the server's seats (fairgate)", Unit: Fraction, Ours: true, Bounds: &Bounds{Warn: 1, Bad: 0.5}, Empty: oneServer,
				About:   "The part of its seats that a server may use now: 0 while it takes no requests, less than all after its return and while it is slow. Needs metrics of fairgate.",
				Queries: []Query{{Expr: `min by (server) (fairgate_upstream_server_capacity_seats{@} / (fairgate_upstream_server_seats{@} > 0))`, Legend: "{{server}}"}}},
			{Title: "Time to the response by server, mean (fairgate)", Unit: Seconds, Ours: true, Bounds: slow, Empty: "one server, or no answers",
				About:   "From sending a request to the head of the response, on average. One server that takes far longer than the others is slow. Needs metrics of fairgate.",
				Queries: []Query{{Expr: serverTime, Legend: "{{server}}"}}},
			{Title: "Server errors by server (fairgate)", Unit: Fraction, Ours: true, Bounds: failing, Empty: "one server, or no answers",
				About:   "The part of each server's responses that are server errors. Needs a metric of fairgate.",
				Queries: []Query{{Expr: serverErrors, Legend: "{{server}}"}}},
			{Title: "Ejections (fairgate)", Unit: Count, Ours: true, Bounds: unusual, Empty: oneServer,
				About:   "How often each server was ejected, because it could not be reached or failed requests. Needs a metric of fairgate.",
				Queries: []Query{{Expr: `sum by (server) (increase(fairgate_upstream_server_ejections_total{@}[$__rate_interval]))`, Legend: "{{server}}"}}},
			{Title: "Watches and tunnels by server (fairgate)", Unit: Count, Ours: true, Stacked: true, Empty: oneServer,
				About:   "Watches and other long-running requests at each server. Needs a metric of fairgate.",
				Queries: []Query{{Expr: `sum by (server) (fairgate_upstream_server_long_running_requests{@})`, Legend: "{{server}}"}}},
			{Title: "Watches that were moved (fairgate)", Unit: PerSec, Ours: true, Wide: true, Empty: oneServer,
				About:   "Watches of a server each second that the gateway ended, so that their clients open them again at one with fewer. Needs a metric of fairgate.",
				Queries: []Query{{Expr: `sum by (server) (rate(fairgate_upstream_server_moved_watches_total{@}[$__rate_interval]))`, Legend: "{{server}}"}}},
			{Title: "Client connections by server (fairgate)", Unit: Count, Ours: true, Wide: true, Stacked: true, Empty: oneServer,
				About:   "Client connections whose requests go to a server while it has room; 0 with upstream.spread: request. Needs a metric of fairgate.",
				Queries: []Query{{Expr: `sum by (server) (fairgate_upstream_server_client_connections{@})`, Legend: "{{server}}"}}},
		}},
		{Title: "Gateways of fleets", Panels: []Panel{
			{Title: "Gateways: seats, ledger and state (fairgate)", Kind: Table, RowsOf: "instance", Unit: Count, Ours: true, Empty: noFleet,
				About: "A row for each gateway of a fleet. May use is its grant, or isolatedSeats while it is cut off. One gateway of each fleet coordinates. Needs metrics of fairgate.",
				Queries: []Query{
					{Expr: `max by (instance) (fairgate_fleet_seats{@})`, Legend: "May use", Unit: Count},
					{Expr: `max by (instance) (fairgate_fleet_held_seats{@})`, Legend: "Holds", Unit: Count},
					{Expr: `max by (instance) (fairgate_fleet_isolated{@})`, Legend: "Cut off", Unit: Boolean, Bounds: unusual},
					{Expr: `max by (instance) (fairgate_fleet_coordinator{@})`, Legend: "Coordinates", Unit: Boolean},
					{Expr: `max by (instance) (fairgate_fleet_ledger_epoch{@})`, Legend: "Epoch", Unit: Count},
					{Expr: `max by (instance) (fairgate_fleet_ledger_age_seconds{@})`, Legend: "Age of the ledger", Unit: Seconds, Bounds: old},
					{Expr: `max by (instance) (fairgate_fleet_ledger_lost{@})`, Legend: "Ledger is lost", Unit: Boolean, Bounds: unusual},
					{Expr: `sum by (instance) (rate(fairgate_fleet_failed_calls_total{@}[$__rate_interval]))`, Legend: "Failed calls", Unit: PerSec, Bounds: unusual}}},
			{Title: "Seats by gateway (fairgate)", Unit: Count, Ours: true, Wide: true, Stacked: true, Empty: noFleet,
				About:   "Seats that each gateway may use. They follow demand within five seconds, and their sum never exceeds flowControl.totalSeats. Needs a metric of fairgate.",
				Queries: []Query{{Expr: `sum by (fleet, instance) (fairgate_fleet_seats{@})`, Legend: "{{fleet}}: {{instance}}"}}},
			{Title: "Held seats by gateway (fairgate)", Unit: Count, Ours: true, Wide: true, Stacked: true, Empty: noFleet,
				About:   "Seats within the limits of each gateway's levels, and those still in use beyond them. Nobody else gets them. Needs a metric of fairgate.",
				Queries: []Query{{Expr: `sum by (fleet, instance) (fairgate_fleet_held_seats{@})`, Legend: "{{fleet}}: {{instance}}"}}},
			{Title: "Age of the ledger by gateway (fairgate)", Unit: Seconds, Ours: true, Bounds: old, Empty: noFleet,
				About:   "Time since each gateway has read the ledger of its fleet. Needs a metric of fairgate.",
				Queries: []Query{{Expr: `max by (fleet, instance) (fairgate_fleet_ledger_age_seconds{@})`, Legend: "{{fleet}}: {{instance}}"}}},
			{Title: "Coordinators by fleet (fairgate)", Unit: Count, Ours: true, Bounds: is, Empty: noFleet,
				About:   "Gateways of each fleet that divide its seats: one, and none for up to 20 s after the loss of the coordinator. Needs a metric of fairgate.",
				Queries: []Query{{Expr: `sum by (fleet) (fairgate_fleet_coordinator{@})`, Legend: "{{fleet}}"}}},
			{Title: "Gateways cut off, by fleet (fairgate)", Unit: Count, Ours: true, Bounds: unusual, Empty: noFleet,
				About:   "Gateways that have no grant of their fleet. Needs a metric of fairgate.",
				Queries: []Query{{Expr: `sum by (fleet) (fairgate_fleet_isolated{@})`, Legend: "{{fleet}}"}}},
			{Title: "Epoch of the ledger (fairgate)", Unit: Count, Ours: true, Empty: noFleet,
				About:   "Number of the last ledger that each gateway has read. One that stands still while those of others rise does not follow. Needs a metric of fairgate.",
				Queries: []Query{{Expr: `max by (fleet, instance) (fairgate_fleet_ledger_epoch{@})`, Legend: "{{fleet}}: {{instance}}"}}},
			{Title: "Reports and ledgers written (fairgate)", Unit: PerSec, Ours: true, Empty: noFleet,
				About: "Writes to the engine of each fleet: each gateway reports, and one writes ledgers. Needs metrics of fairgate.",
				Queries: []Query{
					{Expr: `sum by (fleet) (rate(fairgate_fleet_reports_total{@}[$__rate_interval]))`, Legend: "{{fleet}}: reports"},
					{Expr: `sum by (fleet) (rate(fairgate_fleet_ledgers_total{@}[$__rate_interval]))`, Legend: "{{fleet}}: ledgers"}}},
			{Title: "Calls of the engine that fail (fairgate)", Unit: PerSec, Ours: true, Bounds: unusual, Empty: noFleet,
				About:   "Reads and writes of reports and ledger each second that failed, timed out, or returned what cannot be used; /readyz?verbose says why. Needs a metric of fairgate.",
				Queries: []Query{{Expr: `sum by (fleet, instance) (rate(fairgate_fleet_failed_calls_total{@}[$__rate_interval]))`, Legend: "{{fleet}}: {{instance}}"}}},
		}},
	},
}
