package cluster

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
	for _, session := range RandomJudgedSessions(*admissionSeed+1, 900) {
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
	verdicts := map[string]map[string]map[string]int{}
	for _, mode := range []string{"off", "audit", "enforce"} {
		target, log := plain, filepath.Join(t.TempDir(), "audit.jsonl")
		var gateway *Fairgate
		if mode != "off" {
			gateway = judgingFairgate(t, FairgateOptions{Admission: mode, AdmissionFiles: file, AdmissionLog: log, Fidelity: "completed"})
			target = admissionTarget(t, gateway.Endpoint)
		}
		played, err := playAll(ctx, target, judged)
		if err != nil {
			t.Fatal(err)
		}
		sortWarnings(played)
		for _, session := range played {
			for i := range session {
				session[i].Response = judgedResponse(session[i].Response)
			}
		}
		answered[mode] = played
		if gateway != nil {
			succeeds(t, gateway.Stop()) // its log is whole then
			verdicts[mode] = must[map[string]map[string]int](t)(readVerdicts(log))
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
	alike, late := 0, 0
	for namespace, wanted := range verdicts["enforce"] {
		got := verdicts["audit"][namespace]
		missing := 0
		for verdict, count := range wanted {
			alike += min(count, got[verdict])
			missing += max(0, count-got[verdict])
		}
		for verdict, count := range got {
			if verdict != notJudged && count > wanted[verdict] {
				t.Errorf("%s: audit found %d times, enforce %d times: %s", namespace, count, wanted[verdict], verdict)
			}
		}
		// What was carried out before the stored object was read is not judged; it may have had any verdict.
		if late += got[notJudged]; missing > got[notJudged] {
			t.Errorf("%s: %d verdicts of enforce are none of audit, which left out %d: %v, %v", namespace, missing, got[notJudged], wanted, got)
		}
	}
	if alike < 30 || refused < 20 {
		t.Errorf("of %d requests %d were refused, and %d had a verdict in both modes", all, refused, alike)
	}
	report, err := json.Marshal(map[string]int{"requests": all, "refused": refused, "alike": alike, "not judged by audit": late})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("tests/cluster: ADMISSION_AUDIT %s\n", report)
}

// notJudged is the verdict about a request that was carried out too soon.
const notJudged = "not judged"

// readVerdicts counts the lines of an audit log by namespace and verdict.
func readVerdicts(file string) (map[string]map[string]int, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	found := map[string]map[string]int{}
	for line := range strings.Lines(string(data)) {
		var entry map[string]any
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			return nil, fmt.Errorf("%w: %s", err, line)
		}
		namespace := text(entry, "namespace")
		if found[namespace] == nil {
			found[namespace] = map[string]int{}
		}
		verdict := notJudged
		if text(entry, "decision") != "notJudged" {
			for _, key := range []string{"time", "auditID", "mode", "judgingSeconds", "totalSeconds", "fidelity"} {
				delete(entry, key)
			}
			verdict = inFull(entry)
		}
		found[namespace][verdict]++
	}
	return found, nil
}
