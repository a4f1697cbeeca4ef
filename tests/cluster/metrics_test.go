package cluster

import (
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// A scraper gets from fairgate's secure admin port what it gets from the apiserver, with the same credentials: metrics
// if it may read them, else the same error.
func TestScrapersAreAnsweredAsByTheApiserver(t *testing.T) {
	aboutFairgate(t)
	ctx := inTime(t, 20*time.Minute)
	self := "scraped"
	succeeds(t, Grant(ctx, shared.Admin, self, SidecarRole, SecureAdminRole))
	gateway := newFairgate(t, FairgateOptions{Mode: "requestHeader", User: self, Secure: true})
	succeeds(t, gateway.Start())
	scraper := must[User](t)(shared.NewUser("scraper"))
	same := func(user User, method, path string, status int) {
		t.Helper()
		want, wanted := answered(t, shared.Direct, user, method, path)
		got, given := answered(t, gateway.Secure, user, method, path)
		if want != status || got != status || !reflect.DeepEqual(wanted, given) {
			t.Errorf("%s %s as %s: the apiserver answers %d %v, fairgate %d %v, want %d", method, path, user.Name, want, wanted, got, given, status)
		}
	}
	for _, path := range []string{"/metrics", "/debug/api_priority_and_fairness/dump_queues", "/absent", "/readyz/ping"} {
		same(scraper, http.MethodGet, path, http.StatusForbidden)
		same(User{Name: "bad token", Token: "of-nobody"}, http.MethodGet, path, http.StatusUnauthorized)
		same(Anonymous, http.MethodGet, path, http.StatusForbidden)
	}
	same(scraper, http.MethodPost, "/metrics", http.StatusForbidden)

	reader := must[User](t)(shared.NewUser("reader-of-metrics"))
	succeeds(t, Grant(ctx, shared.Admin, reader.Name, MetricsReaderRole))
	same(reader, http.MethodGet, "/debug/api_priority_and_fairness/dump_queues", http.StatusForbidden)
	for _, user := range []User{reader, shared.admin} {
		scraped := metricsOf(t, gateway.Secure, user)
		if len(scraped["fairgate_uptime_seconds"]) != 1 {
			t.Errorf("%s reads no metrics of fairgate's", user.Name)
		}
	}
	if code, _ := answered(t, gateway.Secure, Anonymous, http.MethodGet, "/livez"); code != http.StatusOK {
		t.Errorf("nobody's /livez is answered %d", code)
	}
}

// The metrics of the main port of a fairgate with mode: overlay are the apiserver's with fairgate's levels. Kubernetes'
// own tests look up there what a level's nominal limit is.
func TestHostedLevelsAreFoundInTheApiserversMetrics(t *testing.T) {
	aboutFairgate(t)
	t.Parallel()
	server := bare(t)
	ctx := inTime(t, 20*time.Minute)
	self := "overlay-metrics"
	succeeds(t, Grant(ctx, server.Admin, self, SidecarRole, OverlayRole))
	gateway := newFairgate(t, FairgateOptions{Mode: "requestHeader", Source: "overlay", User: self, Upstream: server.URL})
	succeeds(t, gateway.Start())
	untilMetric(t, gateway, "fairgate_bootstrap_ensured", 1)
	level := makeLevel(t, clientOf(t, gateway), self)
	// Read first: other tests use the same apiserver, whose metrics become more.
	own := metricsOf(t, server.Endpoint, shared.admin)
	var last map[string]model.Vector
	err := poll(changeLimit, 100*time.Millisecond, func() (bool, error) {
		last = metricsOf(t, gateway.Endpoint, shared.admin)
		for _, sample := range last["apiserver_flowcontrol_nominal_limit_seats"] {
			if string(sample.Metric["priority_level"]) == level.Name && sample.Metric["apiserver"] != "" {
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		t.Fatalf("the level is not found in %v: %v", last["apiserver_flowcontrol_nominal_limit_seats"], err)
	}
	for name := range own {
		if len(last[name]) == 0 {
			t.Errorf("the apiserver's metric %s is missing", name)
		}
	}
	subject := must[User](t)(shared.NewUser("subject-of-" + self))
	want, wanted := answered(t, server.Endpoint, subject, http.MethodGet, "/metrics")
	got, given := answered(t, gateway.Endpoint, subject, http.MethodGet, "/metrics")
	if want != http.StatusForbidden || got != want || !reflect.DeepEqual(wanted, given) {
		t.Errorf("who may not read metrics is answered %d %v, want %d %v", got, given, want, wanted)
	}
}

// metricsOf decodes /metrics as Kubernetes' tests do; it fails if they are no valid scrape.
func metricsOf(t *testing.T, at Endpoint, user User) map[string]model.Vector {
	t.Helper()
	transport := shared.Transport(user, true)
	defer transport.CloseIdleConnections()
	response := must[*http.Response](t)(shared.Do(inTime(t, time.Minute), transport, at, user, http.MethodGet, "/metrics", nil, ""))
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Fatalf("/metrics of %s is answered %s", at.Name, response.Status)
	}
	decoder := expfmt.SampleDecoder{
		Dec:  expfmt.NewDecoder(response.Body, expfmt.NewFormat(expfmt.TypeTextPlain)),
		Opts: &expfmt.DecodeOptions{},
	}
	all, families := map[string]model.Vector{}, 0
	for {
		var family model.Vector
		if err := decoder.Decode(&family); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("/metrics of %s: %v", at.Name, err)
		}
		families++
		for _, sample := range family {
			name := string(sample.Metric[model.MetricNameLabel])
			all[name] = append(all[name], sample)
		}
	}
	if families == 0 {
		t.Fatalf("/metrics of %s is empty", at.Name)
	}
	return all
}

// answered is the status and the body of a response: a Status as a tree, anything else as text.
func answered(t *testing.T, at Endpoint, user User, method, path string) (int, any) {
	t.Helper()
	transport := shared.Transport(user, true)
	defer transport.CloseIdleConnections()
	response := must[*http.Response](t)(shared.Do(inTime(t, time.Minute), transport, at, user, method, path, nil, ""))
	defer response.Body.Close()
	body := must[[]byte](t)(io.ReadAll(response.Body))
	var tree any
	if strings.HasPrefix(response.Header.Get("Content-Type"), jsonType) && json.Unmarshal(body, &tree) == nil {
		return response.StatusCode, tree
	}
	return response.StatusCode, string(body)
}
