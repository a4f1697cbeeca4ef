package boards

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

const (
	// pictured is for how many evaluations of the alerts a picture shows a flood; without pictures floodedFor is enough.
	pictured, floodedFor = 90, 15
)

// One user sends far more than its level serves, to a gateway as it is by default. It waits behind itself, and nobody else is
// hurt: that is what the gateway is for, so nobody is paged. The pictures in the documentation are of this.
func TestBoardsShowAFloodThatHurtsNobody(t *testing.T) {
	up := startUpstream(t, "", "")
	gateway := startGateway(t, t.TempDir(), object{"mode": "files", "upstream": object{"url": "http://" + up.address}}, false)
	w := &world{prometheus: startPrometheus(t, gateway.admin)}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	begun := time.Now()
	gateway.load(ctx, 1, "mouse", "GET", podsOfA+"?delay=20ms&bytes=5000", 50*time.Millisecond)
	gateway.load(ctx, 1, "mouse", "GET", podsOfA+"/one?delay=5ms", 50*time.Millisecond)
	gateway.load(ctx, 1, "elephant", "GET", podsOfA+"?delay=20ms", 50*time.Millisecond)
	gateway.load(ctx, 1, "node", "GET", "/api/v1/nodes/a?delay=5ms", 100*time.Millisecond)
	gateway.load(ctx, 3, "mouse", "GET", "/api/v1/pods?watch=true", time.Second)
	gateway.load(ctx, 2, "node", "GET", "/api/v1/services?watch=true", time.Second)
	directory := os.Getenv("FAIRGATE_PICTURES")
	lasts := floodedFor
	if directory != "" {
		lasts = pictured
	}
	pass := func(evaluations int) {
		first := w.prometheus.evaluations(t)
		w.wait(t, firesWithin, func() bool { return w.prometheus.evaluations(t) >= first+evaluations })
	}
	pass(lasts / 3)
	// Requests take differently long, as those of an API server do: seats become free all the time.
	for delay := 100; delay < 400; delay += 10 {
		gateway.load(ctx, 15, "elephant", "GET", fmt.Sprintf("%s?delay=%dms&bytes=5000", podsOfA, delay), 0)
	}
	pass(lasts)
	variables := strings.NewReplacer("$__rate_interval", "10s", "$cluster", "", "$fleet", ".*", "$job", "fairgate", "$instance", ".*", "$level", "global-default")
	ask := &incidents{t: t, boards: boardFiles(t), prometheus: w.prometheus}
	floods := ask.series(overviewBoard, "Who floods", gateway)
	for name, size := range floods {
		if strings.HasSuffix(name, " elephant") != (size > 100) {
			t.Errorf("the sizes of the flows are %v", floods)
		}
	}
	if len(floods) == 0 {
		t.Error("no flow is named")
	}
	// Whatever its severity: a warning that fires at a flood which hurts nobody is one that nobody reads.
	for _, fired := range w.prometheus.query(t, `max_over_time(ALERTS{alertstate="firing"}[1h])`) {
		t.Errorf("an alert fires: %v", fired.Metric)
	}
	if directory == "" {
		return
	}
	w.prometheus.draw(t, directory, "", variables, begun)
	ports := regexp.MustCompile(regexp.QuoteMeta(gateway.admin))
	for uid := range boardFiles(t) {
		// The port is another one each time.
		path := filepath.Join(directory, strings.TrimPrefix(uid, "fairgate-")+".html")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, ports.ReplaceAll(text, []byte("10.0.0.1:9080")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
