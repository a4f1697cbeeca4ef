package boards

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A healthy hour, to which the rules and alerts apply as they are in config/prometheus, with their own ranges and durations; promtool
// evaluates them. What flow control does in it, and how long requests take and wait, is that of a gateway's layers in virtual time
// (healthy_hour.rs): a machine that is slow, or stands still, changes none of these numbers. All other metrics are those of a gateway that
// serves meanwhile, in which nothing goes wrong; its scrapes count as if they were as far apart.

const (
	// scrapes make an hour: each stands for interval seconds, as is usual with Prometheus.
	scrapes, interval = 120, 30
	// scrapeEvery is how often the gateway is scraped that really serves.
	scrapeEvery = 100 * time.Millisecond
)

// A recording has the samples of some scrapes.
type recording struct {
	begun time.Time
	// kinds has the types of the families of metrics.
	kinds map[string]string
	// series has the values of each series by its name and labels, as written in the exposition.
	series map[string]*recordedSeries
	count  int
}

type recordedSeries struct{ texts []string }

var expositionLine = regexp.MustCompile(`^([A-Za-z_:][A-Za-z0-9_:]*)(\{.*\})? (\S+)$`)

// metrics is what a gateway shows now.
func (g *gateway) metrics(t *testing.T) string {
	t.Helper()
	response, err := http.Get("http://" + g.admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("the metrics cannot be read: %s %v", response.Status, err)
	}
	return string(text)
}

// take adds a scrape with this text.
func (r *recording) take(t *testing.T, text string) {
	t.Helper()
	if r.count == 0 {
		r.begun = time.Now()
		r.kinds, r.series = map[string]string{}, map[string]*recordedSeries{}
	}
	for line := range strings.Lines(text) {
		r.add(t, strings.TrimSuffix(line, "\n"))
	}
	r.count++
	for _, series := range r.series {
		if len(series.texts) < r.count {
			series.texts = append(series.texts, "stale")
		}
	}
}

// add enters a line of an exposition. Times are counted from the first scrape.
func (r *recording) add(t *testing.T, line string) {
	t.Helper()
	if fields := strings.Fields(line); len(fields) == 4 && fields[1] == "TYPE" {
		r.kinds[fields[2]] = fields[3]
		return
	}
	if line == "" || line[0] == '#' {
		return
	}
	match := expositionLine.FindStringSubmatch(line)
	if match == nil {
		t.Fatalf("this is no sample: %q", line)
	}
	name, labels := match[1], strings.Trim(match[2], "{}")
	value, err := strconv.ParseFloat(match[3], 64)
	if err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	if strings.HasSuffix(name, "_timestamp_seconds") {
		value -= float64(r.begun.Unix())
	}
	if labels != "" {
		labels = ", " + labels
	}
	key := name + `{job="fairgate", instance="recorded"` + labels + "}"
	series := r.series[key]
	if series == nil {
		series = &recordedSeries{}
		for range r.count {
			series.texts = append(series.texts, "_")
		}
		r.series[key] = series
	}
	series.texts = append(series.texts, strconv.FormatFloat(value, 'f', 9, 64))
}

// family is the name of the family of metrics of which a series is.
func (r *recording) family(name string) string {
	for _, ending := range []string{"_bucket", "_sum", "_count"} {
		if family, cut := strings.CutSuffix(name, ending); cut && r.kinds[family] == "histogram" {
			return family
		}
	}
	return name
}

// without leaves out the families of metrics that another recording has.
func (r *recording) without(other *recording) *recording {
	rest := &recording{kinds: r.kinds, series: map[string]*recordedSeries{}, count: r.count}
	for key, series := range r.series {
		name, _, _ := strings.Cut(key, "{")
		if _, has := other.kinds[r.family(name)]; !has {
			rest.series[key] = series
		}
	}
	return rest
}

// virtualHour is the recording of an hour in virtual time, with this policy.
func virtualHour(t *testing.T, policy string) *recording {
	t.Helper()
	process := exec.Command(program(t, "FAIRGATE_HEALTHY_HOUR_BIN"), policy)
	process.Stderr = os.Stderr
	text, err := process.Output()
	if err != nil {
		t.Fatal(err)
	}
	hour := &recording{}
	for _, scrape := range strings.Split(string(text), "# SCRAPE\n")[1:] {
		hour.take(t, scrape+"up 1\n")
	}
	if hour.count != scrapes+1 {
		t.Fatalf("an hour has %d scrapes", hour.count)
	}
	return hour
}

// least is the least value of a series whose name and labels have all of these words, over the scrapes from this one on.
func (r *recording) least(t *testing.T, from int, words ...string) float64 {
	t.Helper()
	for key, series := range r.series {
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(key, word) }) {
			least := 0.0
			for number, text := range series.texts[from:] {
				value, err := strconv.ParseFloat(text, 64)
				if err != nil {
					t.Fatalf("%s at scrape %d: %v", key, from+number, err)
				}
				if number == 0 || value < least {
					least = value
				}
			}
			return least
		}
	}
	t.Fatalf("no series has %q", words)
	return 0
}

// numbers are the values of a series.
func numbers(texts []string) (found []float64) {
	for _, text := range texts {
		if value, err := strconv.ParseFloat(text, 64); err == nil {
			found = append(found, value)
		}
	}
	return found
}

// An expectation is an expression and the samples that it gives at the end of a recording.
type expectation struct {
	expr    string
	samples []object
}

// evaluate has promtool compare what the rules make of recordings, which begin at the same time, at a scrape; it returns what it says, and
// whether all is as expected.
func evaluate(t *testing.T, at int, recordings []*recording, expectations ...expectation) (string, bool) {
	t.Helper()
	rules, err := filepath.Abs("../../config/prometheus")
	if err != nil {
		t.Fatal(err)
	}
	known := read(t, "rules.yaml") + read(t, "alerts.yaml")
	used := map[string]bool{}
	for _, name := range regexp.MustCompile(`[a-z_]{2,}`).FindAllString(known, -1) {
		used[name] = true
	}
	var input []object
	for _, one := range recordings {
		for _, key := range slices.Sorted(maps.Keys(one.series)) {
			if name, _, _ := strings.Cut(key, "{"); used[name] {
				input = append(input, object{"series": key, "values": strings.Join(one.series[key].texts, " ")})
			}
		}
	}
	var expected []object
	for _, one := range expectations {
		expected = append(expected, object{"expr": one.expr, "exp_samples": one.samples,
			"eval_time": fmt.Sprintf("%ds", at*interval)})
	}
	every := fmt.Sprintf("%ds", interval)
	text := encode(t, object{
		"rule_files":          []string{filepath.Join(rules, "rules.yaml"), filepath.Join(rules, "alerts.yaml")},
		"evaluation_interval": every,
		"tests":               []object{{"interval": every, "input_series": input, "promql_expr_test": expected}},
	})
	directory := t.TempDir()
	// JSON is YAML.
	write(t, directory, "recorded.yaml", text)
	said, err := exec.Command(filepath.Join(os.Getenv("PROMETHEUS_BIN"), "promtool"), "test", "rules",
		filepath.Join(directory, "recorded.yaml")).CombinedOutput()
	t.Logf("promtool evaluated %d series over %s", len(input), time.Duration(at*interval)*time.Second)
	return string(said), err == nil
}

// record scrapes a gateway so many times.
func (r *recording) record(t *testing.T, of *gateway, times int) {
	t.Helper()
	ticks := time.NewTicker(scrapeEvery)
	defer ticks.Stop()
	for range times {
		<-ticks.C
		r.take(t, of.metrics(t))
	}
}

// anyAlert are the alerts that were pending or fired at any time.
const anyAlert = `count by (alertname, alertstate) (count_over_time(ALERTS[2h]))`

// isTrue is the only sample of an expression that compares with bool and holds.
var isTrue = []object{{"labels": "{}", "value": 1}}

// Users read and write, and after a quarter of the hour one of them sends far more than its level serves, until the end. It waits
// behind itself and hurts nobody: no alert may fire, nor become pending, warnings included. Then the upstream ends, which
// shows that alerts do fire on what is recorded in this way.
func TestBoardsAreQuietInAHealthyHour(t *testing.T) {
	hour := virtualHour(t, "fair")
	up := startUpstream(t, "", "")
	directory := t.TempDir()
	certify(t, directory, 90*24*time.Hour)
	gateway := startGateway(t, directory, object{"mode": "files", "upstream": object{"url": "http://" + up.address}}, true)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	gateway.load(ctx, 1, "mouse", "GET", podsOfA+"?delay=20ms&bytes=5000", 50*time.Millisecond)
	gateway.load(ctx, 1, "mouse", "POST", podsOfA+"?delay=10ms&code=201", 100*time.Millisecond)
	gateway.load(ctx, 1, "root", "POST", podsOfA+"/one/eviction?code=429", 100*time.Millisecond)
	gateway.load(ctx, 3, "mouse", "GET", "/api/v1/pods?watch=true", time.Second)
	served := &recording{}
	served.record(t, gateway, scrapes+1)

	queued := hour.least(t, scrapes*3/4, "fairgate_flow_inqueue_requests{", `flow="elephant"`)
	if queued < 50 {
		t.Errorf("the flood does not wait all the time: at least %v requests do", queued)
	}
	t.Logf("at least %v requests of the flood wait; bystanders wait for at most %v s", queued, bystandersWaited(t, hour))
	at, full := scrapes, expectation{samples: isTrue,
		expr: `min_over_time((min(priority_level:apiserver_flowcontrol_seat_utilization:ratio{priority_level="global-default"}))[15m:30s]) > bool 0.9`}
	// The flood waits long, by what alerts say: for more than a quarter of the longest wait.
	slow := expectation{samples: isTrue,
		expr: `min_over_time((min(priority_level:apiserver_flowcontrol_request_wait_duration_seconds:p99_5m{priority_level="global-default"}))[15m:30s]) > bool 1.875`}
	quiet := expectation{expr: anyAlert, samples: []object{}}
	if said, ok := evaluate(t, at, []*recording{hour, served.without(hour)}, full, slow, quiet); !ok {
		t.Errorf("in a healthy hour:\n%s", said)
	}

	up.down()
	for tries := 0; !strings.Contains(gateway.metrics(t), "\nfairgate_upstream_up 0\n"); tries++ {
		if tries == 600 {
			t.Fatal("the gateway does not notice that its upstream is down")
		}
		time.Sleep(scrapeEvery)
	}
	served.record(t, gateway, 20)
	down := expectation{expr: `count by (alertname) (last_over_time(ALERTS{alertname="FairgateUpstreamDown", alertstate="firing"}[1m]))`,
		samples: []object{{"labels": `{alertname="FairgateUpstreamDown"}`, "value": 1}}}
	if said, ok := evaluate(t, at+20, []*recording{hour, served.without(hour)}, down); !ok {
		t.Errorf("after the upstream's end:\n%s", said)
	}
}

// The same flood hurts others where all share two queues, and then somebody is paged.
func TestBoardsPageInAnHourInWhichAFloodHurtsOthers(t *testing.T) {
	hour := virtualHour(t, "shared")
	t.Logf("bystanders wait for at most %v s", bystandersWaited(t, hour))
	pages := expectation{expr: `max by (alertname) (max_over_time(ALERTS{alertstate="firing", severity="critical"}[2h]))`,
		samples: []object{{"labels": `{alertname="FairgateBystandersWait"}`, "value": 1}}}
	if said, ok := evaluate(t, scrapes, []*recording{hour}, pages); !ok {
		t.Errorf("in an hour in which others wait:\n%s", said)
	}
}

// bystandersWaited is the longest wait of bystanders of the level of the flood.
func bystandersWaited(t *testing.T, hour *recording) float64 {
	t.Helper()
	waits := hour.series[`fairgate_bystander_wait_seconds{job="fairgate", instance="recorded", apiserver="virtual",priority_level="global-default"}`]
	if waits == nil {
		t.Fatal("the level of the flood has no wait of bystanders")
	}
	return slices.Max(numbers(waits.texts))
}
