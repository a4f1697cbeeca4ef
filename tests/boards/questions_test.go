package boards

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// What somebody on call asks of the boards. Each question is asked while a gateway is in the situation that it is about, and
// answered by the queries of the boards' own files: 2 points if one panel of the overview has the answer, 1 if it takes
// other boards or several panels, 0 if no board has it.

const (
	overviewBoard = "fairgate-overview"
	// answeredWithin is how many evaluations of the alerts, one in a second, the boards have for their answers.
	answeredWithin = 60
)

// incidents are gateways, each in a situation of its own.
type incidents struct {
	t          *testing.T
	boards     map[string]boardFile
	prometheus *prometheus
	// calm has nothing to do, flooded serves one user who floods a level, slow has an upstream that is.
	calm, flooded, slow *gateway
	// refusing refuses a user, unfair lets one user take the seats of another.
	refusing, unfair *gateway
	// changed got another policy, failing cannot evict, unable cannot judge, watched has open watches.
	changed, failing, unable, watched *gateway
	// oneAway has two servers, of which one is away. cutOff is a member of a fleet whose leases it cannot reach.
	oneAway, cutOff *gateway
}

func newIncidents(t *testing.T) *incidents {
	up := startUpstream(t, encode(t, schema("tenants", "busy", "tenants")), encode(t, level("busy", 0, queues(2, 2))))
	start := func(more object, files map[string]string) *gateway {
		directory := t.TempDir()
		for name, text := range files {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(directory, name)), 0o700); err != nil {
				t.Fatal(err)
			}
			write(t, directory, name, text)
		}
		config := object{"mode": "files", "upstream": object{"url": "http://" + up.address}, "dataCores": 1}
		maps.Copy(config, more)
		return startGateway(t, directory, config, false)
	}
	policies := func(objects ...object) map[string]string {
		return map[string]string{"policies/all.yaml": `{"apiVersion": "v1", "kind": "List", "items": [` + encode(t, objects...) + "]}"}
	}
	flow := object{"totalSeats": 40, "policies": object{"directory": "policies"}}
	busy := policies(level("busy", 0, queues(16, 2)), schema("tenants", "busy", "tenants"))
	i := &incidents{t: t, boards: boardFiles(t)}
	i.calm = start(object{}, nil)
	i.flooded = start(object{"flowControl": flow}, busy)
	// Most of what it gets it refuses at once.
	i.slow = start(object{"flowControl": flow}, policies(
		level("strict", 0, object{"type": "Reject"}), schema("impatient", "strict", "impatient")))
	i.refusing = start(object{"flowControl": flow}, policies(
		level("strict", 0, object{"type": "Reject"}), schema("impatient", "strict", "impatient")))
	i.unfair = start(object{"mode": "sidecar", "flowControl": object{"totalSeats": 10, "semantics": "Compatible"}}, nil)
	i.changed = start(object{"flowControl": flow}, busy)
	i.failing = start(object{}, nil)
	i.unable = start(object{"timeouts": object{"request": "1s"},
		"admission": object{"mode": "enforce", "policies": object{"source": "files", "files": []string{admissionFile}}},
	}, map[string]string{admissionFile: admission})
	i.watched = start(object{}, nil)
	// Nobody listens at the discard port.
	i.oneAway = start(object{"upstream": object{"servers": []object{{"url": "http://" + up.address}, {"url": "http://127.0.0.1:9"}}}}, nil)
	unreachable := startUpstream(t, "", "")
	unreachable.leases = newLeases()
	unreachable.cut.Store(true)
	i.cutOff = start(object{"upstream": object{"url": "http://" + unreachable.address},
		"fleet": object{"engine": "kubernetes", "gateway": "gw-0", "reclaim": "prompt"}}, nil)
	i.prometheus = startPrometheus(t, i.calm.admin, i.flooded.admin, i.slow.admin, i.refusing.admin, i.unfair.admin,
		i.changed.admin, i.failing.admin, i.unable.admin, i.watched.admin, i.oneAway.admin, i.cutOff.admin)
	return i
}

const podsOfA = "/api/v1/namespaces/a/pods"

// begin puts the gateways into their situations, but for the change of policy.
func (i *incidents) begin(ctx context.Context) {
	for _, gateway := range []*gateway{i.calm, i.changed, i.failing, i.watched} {
		gateway.load(ctx, 1, "mouse", "GET", podsOfA+"?delay=10ms", 50*time.Millisecond)
	}
	i.flooded.load(ctx, 60, "elephant", "GET", podsOfA+"?delay=100ms", 0)
	i.flooded.load(ctx, 1, "mouse", "GET", podsOfA+"/one?delay=10ms", 50*time.Millisecond)
	i.slow.load(ctx, 3, "mouse", "GET", podsOfA+"?delay=700ms", 0)
	i.slow.load(ctx, 40, "impatient", "GET", podsOfA+"?delay=700ms", 20*time.Millisecond)
	i.refusing.load(ctx, 20, "impatient", "GET", podsOfA+"?delay=1s", 20*time.Millisecond)
	i.refusing.load(ctx, 1, "mouse", "GET", podsOfA+"?delay=10ms", 20*time.Millisecond)
	i.unfair.load(ctx, 45, "elephant", "GET", podsOfA+"/one?delay=600ms", 0)
	i.unfair.load(ctx, 2, "mouse", "GET", podsOfA+"/one?delay=200ms", 0)
	i.failing.load(ctx, 1, "root", "POST", podsOfA+"/one/eviction?code=500", 100*time.Millisecond)
	i.unable.load(ctx, 1, "root", "POST", podsOfA, 100*time.Millisecond)
	i.watched.load(ctx, 12, "mouse", "GET", "/api/v1/pods?watch=true", time.Second)
	i.watched.load(ctx, 2, "elephant", "GET", "/api/v1/services?watch=true", time.Second)
}

// results returns what a query of a board shows of one gateway.
func (i *incidents) results(expr string, of *gateway) []sample {
	i.t.Helper()
	return i.prometheus.query(i.t, strings.NewReplacer("$__rate_interval", "10s", "$__interval", "10s", "$cluster", "", "$fleet", ".*", "$job", "fairgate",
		"$instance", of.admin, "$level", "busy").Replace(expr))
}

func value(s sample) float64 {
	value, _ := strconv.ParseFloat(fmt.Sprint(s.Value[1]), 64)
	return value
}

// names says whether a label of the sample has this value.
func names(s sample, value string) bool {
	return slices.Contains(slices.Collect(maps.Values(s.Metric)), value)
}

// greatest is the sample with the greatest value.
func greatest(samples []sample) sample {
	return slices.MaxFunc(samples, func(a, b sample) int { return int(value(a)*1e6) - int(value(b)*1e6) })
}

// shown says whether a query of a panel of these boards shows of a gateway what is asked. Without boards it is any of them.
func (i *incidents) shown(of *gateway, is func(boardPanel, []sample) bool, boards ...string) bool {
	i.t.Helper()
	for uid, board := range i.boards {
		if len(boards) > 0 && !slices.Contains(boards, uid) {
			continue
		}
		for _, panel := range board.Panels {
			for _, target := range panel.Targets {
				if found := i.results(target.Expr, of); len(found) > 0 && is(panel, found) {
					return true
				}
			}
		}
	}
	return false
}

// panel returns the panel of a board whose title begins so.
func (i *incidents) panel(board, title string) (boardPanel, bool) {
	panels := i.boards[board].Panels
	at := slices.IndexFunc(panels, func(panel boardPanel) bool { return panel.Type != "row" && strings.HasPrefix(panel.Title, title) })
	if at < 0 {
		return boardPanel{}, false
	}
	return panels[at], true
}

// series returns the values of a panel by their legends.
func (i *incidents) series(board, title string, of *gateway) map[string]float64 {
	i.t.Helper()
	values := map[string]float64{}
	panel, _ := i.panel(board, title)
	for _, target := range panel.Targets {
		for _, found := range i.results(target.Expr, of) {
			values[named(target.LegendFormat, found.Metric)] = value(found)
		}
	}
	return values
}

// worst is the greatest value of a panel of the overview; 0 if it has none.
func (i *incidents) worst(title string, of *gateway) (worst float64) {
	i.t.Helper()
	for _, value := range i.series(overviewBoard, title, of) {
		worst = max(worst, value)
	}
	return worst
}

// annotated says whether the annotation of this name is on every board, and shows something of a gateway.
func (i *incidents) annotated(name string, of *gateway) bool {
	i.t.Helper()
	for _, board := range i.boards {
		shows := false
		for _, annotation := range board.Annotations.List {
			shows = shows || annotation.Name == name && len(i.results(annotation.Expr, of)) > 0
		}
		if !shows {
			return false
		}
	}
	return true
}

// A question has its answer at a glance, or takes some digging.
type question struct {
	text            string
	glance, digging func(*incidents) bool
}

// onOverview is a question that one panel of the overview can answer by itself.
func onOverview(text string, of func(*incidents) *gateway, is func(boardPanel, []sample) bool, digging func(*incidents) bool) question {
	return question{text, func(i *incidents) bool { return i.shown(of(i), is, overviewBoard) }, digging}
}

func never(*incidents) bool { return false }

// isOfUser says whether all legends begin with a user.
func isOfUser(series map[string]float64, user string) bool {
	for legend := range series {
		if !strings.HasPrefix(legend, user+": ") {
			return false
		}
	}
	return true
}

// fails says whether a panel shows above all what failed.
func fails(_ boardPanel, found []sample) bool {
	return names(greatest(found), "failed") && value(greatest(found)) > 0
}

var questions = []question{
	onOverview("Who floods?", func(i *incidents) *gateway { return i.flooded },
		func(_ boardPanel, found []sample) bool { return names(greatest(found), "elephant") }, never),
	onOverview("Who waits, and how long?", func(i *incidents) *gateway { return i.flooded },
		func(panel boardPanel, found []sample) bool {
			return panel.FieldConfig.Defaults.Unit == "s" && names(greatest(found), "elephant") && value(greatest(found)) > 0.05
		},
		func(i *incidents) bool {
			return i.shown(i.flooded, func(_ boardPanel, found []sample) bool { return names(greatest(found), "elephant") })
		}),
	{"Which level is full, and why?",
		func(i *incidents) bool {
			// The level, with a link to the board where its flows, its limits and its durations are.
			full := i.shown(i.flooded, func(panel boardPanel, found []sample) bool {
				first := greatest(found)
				return links(panel, "fairgate-level", "var-level=${__") && names(first, "busy") && value(first) > 0.9 && value(first) < 1.1
			}, overviewBoard)
			return full && i.shown(i.flooded, func(panel boardPanel, found []sample) bool { return names(greatest(found), "elephant") }, "fairgate-level")
		},
		func(i *incidents) bool {
			return i.shown(i.flooded, func(_ boardPanel, found []sample) bool {
				return names(greatest(found), "busy") && value(greatest(found)) > 0.9
			})
		}},
	{"Is it the upstream or the gateway?",
		func(i *incidents) bool {
			slow := i.series(overviewBoard, "Time of a forwarded request, mean", i.slow)
			queued := i.series(overviewBoard, "Time of a forwarded request, mean", i.flooded)
			return slow["upstream"] > 0.5 && slow["upstream"] > 10*(slow["queue"]+slow["gateway"]+slow["response body"]) && queued["queue"] > queued["upstream"]
		},
		func(i *incidents) bool {
			return i.shown(i.slow, func(_ boardPanel, found []sample) bool { return value(greatest(found)) > 0.5 }, "fairgate-upstream")
		}},
	{"Is the upstream slow, although it is up and most requests are refused?",
		func(i *incidents) bool {
			const tile = "Upstream takes for a response"
			panel, found := i.panel(overviewBoard, tile)
			colour := panel.FieldConfig.Defaults.Thresholds.colour
			return found && links(panel, "fairgate-upstream", "") && colour(i.worst(tile, i.slow)) != "green" && colour(i.worst(tile, i.calm)) == "green"
		},
		func(i *incidents) bool {
			return i.shown(i.slow, func(_ boardPanel, found []sample) bool { return value(greatest(found)) > 0.5 }, "fairgate-upstream")
		}},
	onOverview("Which requests get 429, and whose are they?", func(i *incidents) *gateway { return i.refusing },
		func(panel boardPanel, found []sample) bool {
			return names(greatest(found), "impatient") && names(greatest(found), "concurrency-limit") && names(greatest(found), "strict") && found[0].Metric["user"] != ""
		},
		func(i *incidents) bool {
			return i.shown(i.refusing, func(_ boardPanel, found []sample) bool { return found[0].Metric["user"] == "impatient" })
		}),
	{"Who is starved?",
		func(i *incidents) bool {
			// At a glance that somebody is, and below it who.
			least := i.series(overviewBoard, "Least part of a fair share", i.unfair)["least"]
			named := i.shown(i.unfair, func(panel boardPanel, found []sample) bool {
				share := map[string]float64{}
				for _, one := range found {
					share[one.Metric["flow"]] = value(one)
				}
				lowest, isThere := share["mouse"]
				_, isRich := share["elephant"]
				return strings.Contains(panel.Title, "fair share") && isThere && lowest < 0.5 && !isRich
			}, overviewBoard)
			return named && least > 0 && least < 0.5
		},
		func(i *incidents) bool {
			return i.shown(i.unfair, func(panel boardPanel, found []sample) bool {
				return strings.HasPrefix(panel.Title, "Jain's index") && slices.ContainsFunc(found, func(s sample) bool { return value(s) < 0.7 })
			})
		}},
	{"Did a change of policy cause it?",
		func(i *incidents) bool {
			return i.annotated("Policy applied", i.changed) && !i.annotated("Policy applied", i.calm)
		},
		func(i *incidents) bool {
			return i.shown(i.changed, func(panel boardPanel, found []sample) bool {
				return strings.HasPrefix(panel.Title, "Policies and configurations loaded") && value(greatest(found)) > 0
			})
		}},
	{"Are the policies in force those of their sources?",
		func(i *incidents) bool {
			const tile = "Policies are those of their sources"
			panel, found := i.panel(overviewBoard, tile)
			unable, calm := i.series(overviewBoard, tile, i.unable), i.series(overviewBoard, tile, i.calm)
			return found && links(panel, "fairgate-health", "") && unable["flow control"] == 1 && len(unable) == 2 && unable["admission"] == 0 &&
				len(calm) == 1 && calm["flow control"] == 1
		},
		func(i *incidents) bool {
			return i.series("fairgate-evictions", "Admission policies are up to date", i.unable)["synced"] == 0
		}},
	{"Are evictions and admission healthy?",
		func(i *incidents) bool {
			for title, of := range map[string]*gateway{"Evictions that fail": i.failing, "Writes without a verdict": i.unable} {
				panel, found := i.panel(overviewBoard, title)
				if !found || !links(panel, "fairgate-evictions", "") || i.worst(title, of) < 0.5 || i.worst(title, i.calm) != 0 {
					return false
				}
			}
			evicts := i.series(overviewBoard, "Whose evictions fail", i.failing)
			writes := i.series(overviewBoard, "Whose writes admission refuses", i.unable)
			return i.shown(i.failing, fails, "fairgate-evictions") && len(evicts) == 1 && evicts["root: 500 upstream-error"] > 0 &&
				len(writes) > 0 && isOfUser(writes, "root")
		},
		func(i *incidents) bool { return i.shown(i.failing, fails) }},
	onOverview("Who watches what?", func(i *incidents) *gateway { return i.watched },
		func(_ boardPanel, found []sample) bool {
			most := greatest(found)
			return most.Metric["user"] == "mouse" && most.Metric["resource"] == "pods" && value(most) == 12 &&
				slices.ContainsFunc(found, func(s sample) bool {
					return s.Metric["user"] == "elephant" && s.Metric["resource"] == "services" && value(s) == 2
				})
		},
		func(i *incidents) bool {
			return i.shown(i.watched, func(_ boardPanel, found []sample) bool {
				return found[0].Metric["user"] != "" && names(found[0], "pods")
			})
		}),
	{"Is an API server away, and which one?",
		func(i *incidents) bool {
			panel, found := i.panel(overviewBoard, "All API servers take requests")
			isAway := func(_ boardPanel, found []sample) bool {
				return slices.ContainsFunc(found, func(s sample) bool { return s.Metric["server"] == "127.0.0.1:9" && value(s) == 0 })
			}
			shown := i.series(overviewBoard, "All API servers take requests", i.oneAway)
			reasons := i.series(overviewBoard, "Why an API server is away", i.oneAway)
			_, hasReason := reasons["127.0.0.1:9: not-connected, says "+i.oneAway.admin]
			return found && links(panel, "fairgate-fleet", "") && len(shown) == 1 && shown["all"] == 0 && len(reasons) == 1 && hasReason &&
				i.shown(i.oneAway, isAway, "fairgate-fleet")
		}, never},
	{"Is a gateway cut off from its fleet?",
		func(i *incidents) bool {
			panel, found := i.panel(overviewBoard, "Gateways cut off")
			return found && links(panel, "fairgate-fleet", "") && i.worst("Gateways cut off", i.cutOff) == 1 &&
				len(i.series(overviewBoard, "Gateways cut off", i.calm)) == 0 &&
				// Its own view, with the reason: it has not read a ledger, whether or not there is one.
				len(i.series(overviewBoard, "Why a gateway is cut off", i.cutOff)) == 1 &&
				i.series("fairgate-fleet", "Ledgers are there", i.cutOff)["there"] == 0 &&
				i.series(overviewBoard, "Fleets have a coordinator", i.cutOff)["coordinator"] == 0 &&
				i.series("fairgate-fleet", "Oldest ledger", i.cutOff)["age"] > 10
		}, never},
	{"How much of its memory does it use?",
		func(i *incidents) bool {
			shown := i.series(overviewBoard, "Memory, of its limit", i.calm)
			panel, _ := i.panel(overviewBoard, "Memory, of its limit")
			inBytes := i.series(overviewBoard, "Memory, and its limit", i.calm)
			if inBytes["used"] < 1<<20 || inBytes["limit"] < inBytes["used"] {
				return false
			}
			for _, used := range shown {
				return used > 0 && used < 1 && panel.FieldConfig.Defaults.Unit == "percentunit" && len(panel.FieldConfig.Defaults.Thresholds.Steps) > 1
			}
			return false
		},
		func(i *incidents) bool { return len(i.series("fairgate-health", "Memory", i.calm)) > 0 }},
}

func TestBoardsAnswerTheQuestionsOfAnOnCall(t *testing.T) {
	begun := time.Now()
	i := newIncidents(t)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	i.begin(ctx)
	w := &world{prometheus: i.prometheus}
	// A change is one only where Prometheus has seen what was before.
	w.wait(t, answeredWithin, func() bool { return len(i.prometheus.query(t, `up == 1`)) == len(i.prometheus.targets) })
	first := i.prometheus.evaluations(t)
	w.wait(t, answeredWithin, func() bool { return i.prometheus.evaluations(t) >= first+5 })
	write(t, filepath.Join(i.changed.directory, "policies"), "more.yaml", encode(t, level("more", 0, queues(16, 2))))
	points := map[string]int{}
	total := func() (sum int) {
		for _, got := range points {
			sum += got
		}
		return sum
	}
	w.wait(t, answeredWithin, func() bool {
		for _, question := range questions {
			switch {
			case points[question.text] == 2:
			case question.glance(i):
				points[question.text] = 2
			case question.digging(i):
				points[question.text] = 1
			}
		}
		return total() == 2*len(questions)
	})
	for _, question := range questions {
		t.Logf("%d %s", points[question.text], question.text)
	}
	t.Logf("the boards get %d of %d points", total(), 2*len(questions))
	measured(t, "points of the boards", float64(total()), "points")
	if total() != 2*len(questions) {
		t.Error("somebody on call does not find the answers at a glance")
	}
	// Its requests come one by one and wait for the next free seat, for milliseconds: it has little, and nobody takes anything from it.
	if starved := i.series(overviewBoard, "Who is starved", i.flooded); len(starved) > 0 {
		t.Errorf("beside a flood that hurts nobody the boards call somebody starved: %v", starved)
	}
	if directory := os.Getenv("FAIRGATE_PICTURES"); directory != "" {
		i.draw(directory, begun)
	}
}

// draw draws the boards of each situation, for a reader who is to find out what is wrong from them alone. So the names of the files do not
// tell.
func (i *incidents) draw(directory string, begun time.Time) {
	gateways := []*gateway{i.failing, i.flooded, i.cutOff, i.slow, i.watched, i.refusing, i.calm, i.unfair, i.oneAway, i.changed, i.unable}
	for at, of := range gateways {
		variables := strings.NewReplacer("$__rate_interval", "10s", "$__interval", "10s", "$cluster", "", "$fleet", ".*", "$job", "fairgate",
			"$instance", of.admin, "$level", "busy")
		i.prometheus.draw(i.t, directory, fmt.Sprintf("gateway-%c-", 'a'+at), variables, begun)
	}
}
