package boards

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A prometheus is a process of Prometheus that scrapes gateways every two seconds.
type prometheus struct {
	url string
	// discovery is the directory of the file that names the targets.
	discovery string
	targets   []string
}

// startPrometheus starts it with the rules and alerts of config/prometheus, made faster.
func startPrometheus(t *testing.T, targets ...string) *prometheus {
	discovery := t.TempDir()
	p := &prometheus{discovery: discovery}
	p.scrape(t, targets...)
	started := startPrometheusWith(t, object{
		"job_name":        "fairgate",
		"file_sd_configs": []object{{"files": []string{filepath.Join(discovery, "targets.json")}, "refresh_interval": "1s"}},
	})
	p.url = started.url
	return p
}

// scrape has it scrape these targets, and no others, from now on.
func (p *prometheus) scrape(t *testing.T, targets ...string) {
	p.targets = targets
	groups := []object{}
	if len(targets) > 0 {
		groups = append(groups, object{"targets": targets})
	}
	text, err := json.Marshal(groups)
	if err != nil {
		t.Fatal(err)
	}
	write(t, p.discovery, "targets.json", string(text))
}

// startPrometheusWith does so with one scrape job.
func startPrometheusWith(t *testing.T, job object) *prometheus {
	directory := t.TempDir()
	for _, name := range []string{"rules.yaml", "alerts.yaml"} {
		write(t, directory, name, faster(t, filepath.Join("../../config/prometheus", name)))
	}
	config := object{
		"global":         object{"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "1s"},
		"scrape_configs": []object{job},
		"rule_files":     []string{"rules.yaml", "alerts.yaml"},
	}
	text, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	write(t, directory, "prometheus.yaml", string(text))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	log, err := os.Create(filepath.Join(directory, "log"))
	if err != nil {
		t.Fatal(err)
	}
	process := exec.Command(filepath.Join(os.Getenv("PROMETHEUS_BIN"), "prometheus"),
		"--config.file="+filepath.Join(directory, "prometheus.yaml"),
		"--storage.tsdb.path="+filepath.Join(directory, "data"),
		"--web.listen-address="+address)
	process.Stdout, process.Stderr = log, log
	if err := process.Start(); err != nil {
		t.Fatalf("%v; start with tests/boards/run", err)
	}
	t.Cleanup(func() {
		process.Process.Kill()
		process.Wait()
	})
	p := &prometheus{url: "http://" + address}
	deadline := time.Now().Add(2 * time.Minute)
	for {
		response, err := http.Get(p.url + "/-/ready")
		if err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return p
			}
		}
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(filepath.Join(directory, "log"))
			t.Fatalf("Prometheus does not become ready:\n%s", text)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// faster returns rules with ranges of 10 s that wait for 5 s. A gateway has to be away for 20 s: scrapes that fail while the
// machine stands still are no outage, nor is the time until Prometheus has read its targets. So have calls of a fleet to fail: for the
// first 10 s nobody knows whether the gateway is cut off, or its ledger stale.
func faster(t *testing.T, path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	away := regexp.MustCompile(`(alert: Fairgate(?:Absent|Down|FleetCallsFail)\n(?:.*\n)*?        for: )[25]m\n`)
	if filepath.Base(path) == "alerts.yaml" && len(away.FindAllString(string(text), -1)) != 3 {
		t.Fatalf("%s has no FairgateAbsent, FairgateDown and FairgateFleetCallsFail that wait for minutes", path)
	}
	quick := away.ReplaceAllString(string(text), "${1}20s\n")
	quick = regexp.MustCompile(`\[\d+m\]`).ReplaceAllString(quick, "[10s]")
	quick = regexp.MustCompile(`(?m)for: [1-9]\d*m$`).ReplaceAllString(quick, "for: 5s")
	quick = strings.Replace(quick, "} > 300", "} > 5", 1)
	if quick == string(text) {
		t.Fatalf("%s has nothing to be made faster", path)
	}
	return quick
}

type sample struct {
	Metric map[string]string
	Value  [2]any
}

// query returns the present result of an expression.
func (p *prometheus) query(t *testing.T, expr string) []sample {
	t.Helper()
	response, err := http.Get(p.url + "/api/v1/query?query=" + url.QueryEscape(expr))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	var result struct {
		Status, Error string
		Data          struct{ Result []sample }
	}
	if err := json.Unmarshal(body, &result); err != nil {
		t.Fatal(err)
	}
	if result.Status != "success" {
		t.Fatalf("%s: %s", expr, result.Error)
	}
	return result.Data.Result
}

// hasData says whether the expression has a value that is a finite number, and that none is infinite.
func (p *prometheus) hasData(t *testing.T, expr string) bool {
	t.Helper()
	finite := false
	for _, sample := range p.query(t, expr) {
		value, err := strconv.ParseFloat(fmt.Sprint(sample.Value[1]), 64)
		if err != nil {
			t.Fatal(err)
		}
		if math.IsInf(value, 0) {
			t.Errorf("%s is infinite", expr)
		}
		finite = finite || !math.IsNaN(value)
	}
	return finite
}

// evaluations returns how often the alerts have been evaluated. None of that may have failed.
func (p *prometheus) evaluations(t *testing.T) int {
	t.Helper()
	response, err := http.Get(p.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range regexp.MustCompile(`(?m)^prometheus_rule_evaluation_failures_total\{.*\} ([1-9]\S*)$`).FindAllString(string(body), -1) {
		t.Fatalf("the evaluation of rules fails: %s", match)
	}
	match := regexp.MustCompile(`(?m)^prometheus_rule_group_iterations_total\{rule_group="[^"]*fairgate\.alerts"\} (\S+)$`).FindStringSubmatch(string(body))
	if match == nil {
		t.Fatalf("Prometheus does not count evaluations of the alerts:\n%.2000s", body)
	}
	count, err := strconv.ParseFloat(match[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return int(count)
}

// firing returns the names of the alerts that fire now.
func (p *prometheus) firing(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, sample := range p.query(t, `ALERTS{alertstate="firing"}`) {
		names[sample.Metric["alertname"]] = true
	}
	return names
}
