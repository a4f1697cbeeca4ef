package cluster

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var (
	admissionSeed     = flag.Uint64("admission-seed", 1, "of the random sessions about policies that a gateway enforces")
	admissionRequests = flag.Int("admission-requests", 120, "number of random requests of these")
	admissionTwice    = flag.Bool("admission-twice", false, "play the sessions about policies twice on the server that enforces them: whatever differs then says nothing about a gateway")
	admissionGateway  = flag.Bool("admission-gateway", true, "the fairgate under test judges forwarded requests by admission policies")
	admissionDump     = flag.String("admission-dump", "", "write what the server that enforces policies answered to this file")
)

// admissionDifferencesFile lists where a gateway cannot evaluate as a server does, with reasons.
const admissionDifferencesFile = "admission_differences.json"

var admissionBed = sync.OnceValues(func() (*AdmissionBed, error) { return shared.StartAdmissionBed() })

// admissionSessions are all that are compared. Those about hosted kinds are about the forwarded kinds here.
func admissionSessions() []Session {
	var chosen []Session
	for _, session := range slices.Concat(EvaluatedSessions(), RandomEvaluatedSessions(*admissionSeed, *admissionRequests), EnforcementSessions()) {
		if strings.Contains(session.Name, *onlySessions) {
			chosen = append(chosen, session)
		}
	}
	return chosen
}

func admissionTarget(t *testing.T, at Endpoint) *Target {
	t.Helper()
	target := must[*Target](t)(NewTarget(at.Name, shared.Config(at, shared.admin)))
	target.As = requesters()
	return target
}

// requesters makes the transports of users, and keeps them.
func requesters() func(Requester) (http.RoundTripper, error) {
	var known sync.Map // by user
	return func(who Requester) (http.RoundTripper, error) {
		issue := func() (http.RoundTripper, error) {
			pair, err := shared.PKI.UserWithUID("requester", who.Name, who.UID, who.Groups...)
			return shared.Transport(User{Name: who.Name, Pair: pair}, false), err
		}
		once, _ := known.LoadOrStore(fmt.Sprint(who), sync.OnceValues(issue))
		return once.(func() (http.RoundTripper, error))()
	}
}

// playNumbers count the plays on both servers, so that each has names of its own.
var playNumbers = struct {
	sync.Mutex
	next int
}{}

func nextPlay() int {
	playNumbers.Lock()
	defer playNumbers.Unlock()
	playNumbers.next++
	return playNumbers.next - 1
}

// playBoth plays sessions on two servers at once.
func playBoth(ctx context.Context, sessions []Session, one, other *Target) (want, got [][]Exchange, err error) {
	failures := make(chan error, 2)
	for _, side := range []struct {
		target *Target
		into   *[][]Exchange
	}{{one, &want}, {other, &got}} {
		play := nextPlay()
		go func() {
			played, err := playEvaluated(ctx, side.target, sessions, play)
			*side.into = played
			failures <- err
		}()
	}
	for range 2 {
		if failed := <-failures; failed != nil {
			err = failed
		}
	}
	return want, got, err
}

// sortWarnings puts the warnings of random sessions in order: that of two policies is left to chance.
func sortWarnings(played [][]Exchange) {
	for _, session := range played {
		for i := range session {
			if !randomSession.MatchString(session[i].Session) {
				continue
			}
			slices.Sort(session[i].Response.Headers.Warning)
		}
	}
}

var randomSession = regexp.MustCompile(`^j-[a-z]-r\d+-`)

func compareAll(want, got [][]Exchange) []Difference {
	var found []Difference
	for number := range want {
		found = append(found, Compare(want[number], got[number])...)
	}
	return found
}

// impatient sessions do not wait for policies.
func impatient(sessions []Session) []Session {
	all := slices.Clone(sessions)
	for i := range all {
		all[i].Requests = slices.Clone(all[i].Requests)
		for number := range all[i].Requests {
			all[i].Requests[number].Until = 0
		}
	}
	return all
}

// Where nobody enforces the policies, the comparison shows that, in every session. Else it would show nothing.
func TestTheComparisonOfPoliciesCanFail(t *testing.T) {
	oneAtATime(t)
	bed, ctx := must[*AdmissionBed](t)(admissionBed()), inTime(t, 20*time.Minute)
	var sessions []Session
	for _, session := range EvaluatedSessions() {
		if slices.Contains([]string{"verbs", "connect", "collections", "users", "relabelled"}, strings.TrimPrefix(session.Name, playMark)) {
			sessions = append(sessions, session)
		}
	}
	enforced, err := playEvaluated(ctx, admissionTarget(t, bed.Enforcing.Endpoint), sessions, nextPlay())
	if err != nil {
		t.Fatal(err)
	}
	plain, err := playEvaluated(ctx, admissionTarget(t, bed.Plain.Endpoint), impatient(sessions), nextPlay())
	if err != nil {
		t.Fatal(err)
	}
	for number, session := range sessions {
		found := Compare(enforced[number], plain[number])
		if refused := refusedBy(enforced[number]); len(found) == 0 || refused == 0 {
			t.Errorf("%s: %d of %d requests refused by policies, but without policies %d differences", session.Name, refused, len(session.Requests), len(found))
		}
	}
	// A gateway that is not told to enforce them changes nothing.
	if again := compareAll(plain, plain); len(again) != 0 {
		t.Error("a play differs from itself:", again)
	}
}

// refusedBy counts the requests that policies refused.
func refusedBy(session []Exchange) int {
	count := 0
	for _, exchange := range session {
		if strings.Contains(text(exchange.Response.Body, "message"), "ValidatingAdmissionPolicy '") {
			count++
		}
	}
	return count
}

// warnedBy counts those about which policies warned, but for those that wait for policies.
func warnedBy(session []Exchange) int {
	count := 0
	for _, exchange := range session {
		if exchange.Request.Until == 0 && slices.ContainsFunc(exchange.Response.Headers.Warning, func(one string) bool { return strings.Contains(one, "ValidatingAdmissionPolicy '") }) {
			count++
		}
	}
	return count
}

// admissionUser is whom gateways are upstream. It may do everything: the sessions have policies about all kinds.
const admissionUser = "judge"

var admissionRights = sync.OnceValue(func() error {
	bed, err := admissionBed()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	everything := []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}
	return GrantRules(ctx, bed.Plain.Admin, admissionUser, admissionUser+"-everything", everything)
})

// aboutEvaluatingFairgate skips a test unless there is a gateway that evaluates forwarded requests.
func aboutEvaluatingFairgate(t *testing.T) {
	t.Helper()
	aboutFairgate(t)
	if !*admissionGateway {
		t.Skip("-admission-gateway=false")
	}
}

// evaluatingFairgate starts a gateway before the server that does not enforce policies.
func evaluatingFairgate(t *testing.T, options FairgateOptions) *Fairgate {
	t.Helper()
	bed := must[*AdmissionBed](t)(admissionBed())
	succeeds(t, admissionRights())
	options.Mode, options.User, options.Upstream, options.Off = "impersonate", admissionUser, bed.Plain.URL, true
	gateway := newFairgate(t, options)
	succeeds(t, gateway.Start())
	succeeds(t, untilPoliciesAreKnown(gateway))
	return gateway
}

// untilPoliciesAreKnown waits until a gateway evaluates writes. It is ready before that: reads do not need policies, and writes wait for
// them, but for no longer than ten seconds, which beside other programs that start may be too short.
func untilPoliciesAreKnown(gateway *Fairgate) error {
	client, err := shared.adminOf(gateway.Endpoint)
	if err != nil {
		return err
	}
	probe := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "are-policies-known"}}
	return poll(readyLimit, 100*time.Millisecond, func() (bool, error) {
		options := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
		_, err := client.CoreV1().ConfigMaps("default").Create(context.Background(), probe, options)
		return err == nil || !strings.Contains(err.Error(), "not yet ready to handle request"), nil
	})
}

// A gateway that enforces policies before a server that does not is answered as a server that does: with the same codes,
// documents and warnings, and the same objects afterwards.
func TestPoliciesAreEnforcedOnForwardedRequestsAsByAServer(t *testing.T) {
	aboutEvaluatingFairgate(t)
	oneAtATime(t)
	bed, sessions := must[*AdmissionBed](t)(admissionBed()), admissionSessions()
	gateway := evaluatingFairgate(t, FairgateOptions{Admission: "enforce"})
	want, got, err := playBoth(inTime(t, 30*time.Minute), sessions, admissionTarget(t, bed.Enforcing.Endpoint), admissionTarget(t, gateway.Endpoint))
	if err != nil {
		t.Fatal(err)
	}
	sortWarnings(want)
	sortWarnings(got)
	found := compareAll(want, got)
	onlyKnownDiffer(t, admissionDifferencesFile, sessions, want, found)
}

// The sessions are the same twice on the server that enforces policies itself: what then differs is not a gateway's.
func TestTheSessionsAboutPoliciesAreReproducible(t *testing.T) {
	if !*admissionTwice {
		t.Skip("give -admission-twice")
	}
	oneAtATime(t)
	bed, sessions := must[*AdmissionBed](t)(admissionBed()), admissionSessions()
	server := admissionTarget(t, bed.Enforcing.Endpoint)
	var plays [2][][]Exchange
	for i := range plays {
		played, err := playEvaluated(inTime(t, 30*time.Minute), server, sessions, nextPlay())
		if err != nil {
			t.Fatal(err)
		}
		sortWarnings(played)
		plays[i] = played
	}
	found := compareAll(plays[0], plays[1])
	reportEvaluated(t, plays[0], found, found)
	for _, difference := range found {
		t.Error(difference)
	}
}

// reportEvaluated prints a line of counts, and fails for policies that the server did not take, or that never were in force.
func reportEvaluated(t *testing.T, played [][]Exchange, found, unknown []Difference) {
	t.Helper()
	refused, warnings := 0, 0
	var dump []byte
	for _, session := range played {
		refused += refusedBy(session)
		warnings += warnedBy(session)
		for number, exchange := range session {
			dump = append(dump, must[[]byte](t)(exchange.line())...)
			code, request := exchange.Response.Code, exchange.Request
			isPolicy := strings.HasPrefix(request.Path, policiesPath) || strings.HasPrefix(request.Path, bindingsPath)
			invalid := isPolicy && request.Method != "DELETE" && code >= 300
			late := request.Warning != "" && !slices.ContainsFunc(exchange.Response.Headers.Warning, func(one string) bool { return strings.Contains(one, request.Warning) })
			if strings.HasPrefix(exchange.Session, playMark) && (invalid || late) {
				t.Errorf("%s #%d: %s %s was answered %d %v", exchange.Session, number, request.Method, request.Path, code, text(exchange.Response.Body, "message"))
			}
		}
	}
	if *admissionDump != "" {
		succeeds(t, os.WriteFile(*admissionDump, dump, 0o600))
	}
	fmt.Print(Summary(played, found, unknown, unknown))
	fmt.Printf("tests/cluster: ADMISSION {\"seed\":%d,\"refused\":%d,\"warned\":%d}\n", *admissionSeed, refused, warnings)
}

// reportFirst reports the first differences of each session: marks of versions and UIDs are counted, so one may bring about all that follow.
func reportFirst(t *testing.T, all []Difference) {
	t.Helper()
	const most = 4
	of := map[string]int{}
	for _, difference := range all {
		if of[difference.Session]++; of[difference.Session] <= most {
			t.Error(difference)
		}
	}
	for _, session := range slices.Sorted(maps.Keys(of)) {
		if more := of[session] - most; more > 0 {
			t.Errorf("%s: %d more differences", session, more)
		}
	}
}

// onlyKnownDiffer reports what was played, and fails the test for each difference that is not known, and for each known one that these sessions no
// longer have.
func onlyKnownDiffer(t *testing.T, file string, sessions []Session, want [][]Exchange, found []Difference) {
	t.Helper()
	known := must[[]KnownDifference](t)(readDifferences(file))
	unknown, reasons, unused, err := SortOut(found, known)
	if err != nil {
		t.Fatal(err)
	}
	reportEvaluated(t, want, found, unknown)
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		t.Logf("%d known differences: %s", reasons[reason], reason)
	}
	reportFirst(t, unknown)
	for _, one := range unused {
		// Without a name, it is one of all sessions together.
		name := regexp.MustCompile("^(?:" + one.Session + ")$")
		isOfThese := slices.ContainsFunc(sessions, func(session Session) bool { return name.MatchString(session.Name) })
		if isOfThese || one.Session == "" && *onlySessions == "" {
			t.Errorf("no longer occurs: %+v", one)
		}
	}
}
