package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A replay is a session whose policies are in a file: nothing but dry runs is judged, so every gateway sees the same state.
type replay struct {
	policies []string // with their bindings
	prepare  Session  // of the objects
	judged   Session
}

// replayOf makes one of a random session. The policies are those that it begins with.
func replayOf(session Session) replay {
	made := replay{prepare: Session{Name: session.Name}, judged: Session{Name: session.Name}}
	settled := false
	for _, request := range session.Requests {
		kind := fmt.Sprint(path(request))
		switch {
		case strings.HasPrefix(request.Path, admissionPath):
			if request.Method == "POST" && !settled && !strings.Contains(request.Body, session.Name+"-fence") {
				made.policies = append(made.policies, request.Body)
			}
			settled = settled || strings.Contains(request.Body, session.Name+"-fence")
		case request.Warning != "" || strings.HasPrefix(request.Path, "/api/v1/namespaces/") && kind == "namespaces" || strings.Contains(request.Path+request.Body, "-steps"):
			// The probe of the fence, and what the session changes afterwards.
		case !settled:
			made.prepare.Requests = append(made.prepare.Requests, request)
		case request.Method == "GET" || strings.HasSuffix(request.Path, "/exec"):
		default:
			if !strings.Contains(request.Query, "dryRun=All") {
				request.Query = strings.TrimPrefix(request.Query+"&dryRun=All", "&")
			}
			made.judged.Requests = append(made.judged.Requests, request)
		}
	}
	return made
}

// path is the resource that a request is about, without a group.
func path(request Request) string {
	parts := strings.Split(request.Path, "/")
	if at := slices.Index(parts, "namespaces"); at >= 0 && len(parts) > at+2 {
		return parts[at+2]
	}
	return "namespaces"
}

// Audit comes to the same verdicts as enforce, and changes nothing: it answers as the server does without policies.
func TestAuditAndEnforceComeToTheSameVerdicts(t *testing.T) {
	aboutJudgingFairgate(t)
	t.Parallel()
	bed, ctx := must[*AdmissionBed](t)(admissionBed()), inTime(t, 10*time.Minute)
	play := nextPlay()
	var prepared, judged []Session
	var documents []string
	for _, session := range RandomJudgedSessions(*admissionSeed+1, 500) {
		one := replayOf(session.numbered(play))
		prepared, judged, documents = append(prepared, one.prepare), append(judged, one.judged), append(documents, one.policies...)
	}
	file := filepath.Join(t.TempDir(), "policies.yaml")
	succeeds(t, os.WriteFile(file, []byte(strings.Join(documents, "\n---\n")), 0o600))
	plain := admissionTarget(t, bed.Plain.Endpoint)
	if _, err := playAll(ctx, plain, prepared); err != nil {
		t.Fatal(err)
	}
	answered := map[string][][]Exchange{}
	verdicts := map[string]map[string]int{}
	for _, mode := range []string{"off", "audit", "enforce"} {
		target := plain
		var gateway *Fairgate
		if mode != "off" {
			gateway = judgingFairgate(t, FairgateOptions{Admission: mode, AdmissionFiles: file, Fidelity: "completed"})
			target = admissionTarget(t, gateway.Endpoint)
		}
		played, err := playAll(ctx, target, judged)
		if err != nil {
			t.Fatal(err)
		}
		sortWarnings(played)
		answered[mode] = played
		if gateway != nil {
			verdicts[mode] = must[map[string]int](t)(gateway.checks(ctx))
		}
	}
	for _, difference := range compareAll(answered["off"], answered["audit"]) {
		t.Error("audit changed an answer:", difference)
	}
	if differ := compareAll(answered["off"], answered["enforce"]); len(differ) < 20 {
		t.Errorf("enforce changed %d answers only", len(differ))
	}
	refused, all := 0, 0
	for _, session := range answered["enforce"] {
		refused += refusedBy(session)
		all += len(session)
	}
	if len(verdicts["audit"]) < 5 || refused < 20 {
		t.Errorf("of %d requests %d were refused; %v", all, refused, verdicts["enforce"])
	}
	for labels, count := range verdicts["enforce"] {
		if verdicts["audit"][labels] != count {
			t.Errorf("%s: enforce %d, audit %d", labels, count, verdicts["audit"][labels])
		}
	}
	for labels, count := range verdicts["audit"] {
		if _, both := verdicts["enforce"][labels]; !both {
			t.Errorf("%s: audit %d, enforce none", labels, count)
		}
	}
	report, _ := json.Marshal(map[string]int{"requests": all, "refused": refused, "verdicts": len(verdicts["audit"])})
	fmt.Printf("tests/cluster: ADMISSION_AUDIT %s\n", report)
}

var checkLine = regexp.MustCompile(`^apiserver_validating_admission_policy_check_total\{([^}]*)\} (\d+)`)

// checks are how often policies were checked, by the labels of the metric that kube-apiserver has, too.
func (f *Fairgate) checks(ctx context.Context) (map[string]int, error) {
	_, text, err := f.Ask(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	found := map[string]int{}
	for line := range strings.Lines(text) {
		if match := checkLine.FindStringSubmatch(line); match != nil {
			count, err := strconv.Atoi(match[2])
			if err != nil {
				return nil, err
			}
			found[match[1]] = count
		}
	}
	return found, nil
}
