package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	documentSeed  = flag.Uint64("document-seed", 1, "of the mutated bodies that a gateway and a server judge")
	documentCount = flag.Int("documents", 2000, "number of mutated bodies that a gateway and a server judge")
)

// mostRefusedDocuments is the greatest part of the bodies that a server accepts and a gateway may refuse, in percent.
const mostRefusedDocuments = 25

// documentPolicies are two for each kind, one that prints what it sees and one that denies, and one about deletions.
func documentPolicies() (policies []string) {
	in := `"namespaceSelector":{"matchLabels":{"documents":"yes"}}`
	add := func(name, group, resources, operations, action, validation string) {
		policies = append(policies, fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"documents-%s"},"spec":{"failurePolicy":"Fail","matchConstraints":{%s,`+
			`"resourceRules":[{"apiGroups":[%q],"apiVersions":["*"],"operations":[%s],"resources":[%s]}]},"validations":[%s]}}`, name, in, group, operations, resources, validation),
			fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":"documents-%[1]s"},"spec":{"policyName":"documents-%[1]s","validationActions":[%[2]q]}}`, name, action))
	}
	for _, kind := range documentKinds() {
		add("echo-"+kind.plural, kind.group, kind.resources(), `"CREATE","UPDATE"`, "Warn", fmt.Sprintf(`{"expression":"false","messageExpression":%q}`, `'echo '+`+kind.echo()))
		add("deny-"+kind.plural, kind.group, kind.resources(), `"CREATE","UPDATE"`, "Deny", fmt.Sprintf(`{"expression":%q,"message":"evil"}`, `!(`+kind.evil+`)`))
	}
	options := `'echo '+string(request.dryRun)+' '+string(request.options.?dryRun.hasValue())+' '+string(request.options.?gracePeriodSeconds.orValue(-1))+' '+request.options.?propagationPolicy.orValue('-')`
	add("echo-deletions", "", `"configmaps"`, `"DELETE"`, "Warn", fmt.Sprintf(`{"expression":"false","messageExpression":%q}`, options))
	return policies
}

// A documentSide is where bodies are sent.
type documentSide struct {
	name     string
	target   *Target
	versions *documentVersions // of the server that stores the objects
}

// documentVersions are those of the objects that are there, by their paths.
type documentVersions struct {
	sync.Mutex
	of map[string]string
}

func newDocumentSide(t *testing.T, name string, at Endpoint) documentSide {
	return documentSide{name, admissionTarget(t, at), &documentVersions{of: map[string]string{}}}
}

// through sends to a gateway in front of the server.
func (s documentSide) through(t *testing.T, name string, at Endpoint) documentSide {
	return documentSide{name, admissionTarget(t, at), s.versions}
}

// in puts the version of the object that a request is about into its body.
func (v *documentVersions) in(body []byte, path string) []byte {
	path, _, _ = strings.Cut(path, "?")
	v.Lock()
	defer v.Unlock()
	return bytes.ReplaceAll(body, []byte(versionMark), []byte(v.of[strings.TrimSuffix(path, "/status")]))
}

func (v *documentVersions) note(path string, object any) {
	v.Lock()
	defer v.Unlock()
	v.of[path] = text(object, "metadata", "resourceVersion")
}

// A documentAnswer is what came back.
type documentAnswer struct {
	code    int
	reason  string // of the gateway
	message string
	echo    string
	object  any
}

// isAccepted says that the server has carried the request out.
func (a documentAnswer) isAccepted() bool { return a.code >= 200 && a.code < 300 }

func (s documentSide) send(ctx context.Context, method, path, media string, body []byte) (documentAnswer, error) {
	wire, err := http.NewRequestWithContext(ctx, method, s.target.base.String()+path, bytes.NewReader(s.versions.in(body, path)))
	if err != nil {
		return documentAnswer{}, err
	}
	wire.Header.Set("User-Agent", "documents")
	wire.Header.Set("Content-Type", media)
	response, err := s.target.transport.RoundTrip(wire)
	if err != nil {
		return documentAnswer{}, fmt.Errorf("%s: %s %s %s %q: %w", s.name, method, path, media, body, err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return documentAnswer{}, err
	}
	answer := documentAnswer{code: response.StatusCode, reason: response.Header.Get("X-Fairgate-Reason")}
	for _, warning := range response.Header.Values("Warning") {
		if _, echo, found := strings.Cut(warning, ": echo "); found {
			answer.echo = strings.TrimSuffix(echo, `"`)
		}
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	_ = decoder.Decode(&answer.object) // what is no JSON says nothing
	if !answer.isAccepted() {
		answer.message = text(answer.object, "message")
	}
	return answer, nil
}

// must is for the requests of the test itself.
func (s documentSide) must(ctx context.Context, method, path, body string, codes ...int) error {
	answer, err := s.send(ctx, method, path, jsonType, []byte(body))
	if err == nil && !slices.Contains(codes, answer.code) {
		err = fmt.Errorf("%s: %s %s: %d %s", s.name, method, path, answer.code, answer.message)
	}
	return err
}

// prepare makes the namespace, the policies, and an object of each kind, and waits until the policies are in force.
func (s documentSide) prepare(ctx context.Context) error {
	if err := s.must(ctx, "POST", "/api/v1/namespaces", `{"metadata":{"name":"`+documentsNamespace+`","labels":{"documents":"yes"}}}`, 201, 409); err != nil {
		return err
	}
	for _, policy := range documentPolicies() {
		path := policiesPath
		if strings.Contains(policy, "PolicyBinding") {
			path = bindingsPath
		}
		if err := s.must(ctx, "POST", path, policy, 201, 409); err != nil {
			return err
		}
	}
	for _, kind := range documentKinds() {
		for _, name := range []string{targetDocument, keptDocument} {
			if err := s.renew(ctx, kind, name); err != nil {
				return err
			}
		}
	}
	_, err := s.restore(ctx)
	return err
}

// renew makes an object again that is written.
func (s documentSide) renew(ctx context.Context, kind documentKind, name string) error {
	if err := s.clear(ctx, kind.path, name); err != nil {
		return err
	}
	answer, err := s.send(ctx, "POST", kind.path, jsonType, []byte(fmt.Sprintf(kind.json[0], name)))
	if err == nil && answer.code != 201 {
		err = fmt.Errorf("%s: %s %s: %d %s", s.name, kind.path, name, answer.code, answer.message)
	}
	s.versions.note(kind.path+"/"+name, answer.object)
	return err
}

// inForce waits until the policies are.
func (s documentSide) inForce(ctx context.Context) error {
	for _, kind := range documentKinds() {
		body := []byte(fmt.Sprintf(kind.json[0], "probe"))
		err := poll(changeLimit, 50*time.Millisecond, func() (bool, error) {
			answer, err := s.send(ctx, "POST", kind.path+"?dryRun=All", jsonType, body)
			return answer.echo != "", err
		})
		if err != nil {
			return fmt.Errorf("%s: policies for %s: %w", s.name, kind.path, err)
		}
	}
	return nil
}

// restore makes the object that deletions are about, if it is not there. Returns whether it was.
func (s documentSide) restore(ctx context.Context) (wasThere bool, err error) {
	maps := documentKinds()[0]
	answer, err := s.send(ctx, "POST", maps.path, jsonType, []byte(fmt.Sprintf(maps.json[0], victimDocument)))
	if err == nil && answer.code != 201 && answer.code != 409 {
		err = fmt.Errorf("%s: the object to be deleted: %d %s", s.name, answer.code, answer.message)
	}
	return answer.code == 409, err
}

// clear deletes what bodies have made.
func (s documentSide) clear(ctx context.Context, path, name string) error {
	return s.must(ctx, "DELETE", path+"/"+name, `{"gracePeriodSeconds":0}`, 200, 202, 404)
}

// tidy has everything stand as before a request that was accepted. Returns whether the object is there that it deletes.
func (s documentSide) tidy(ctx context.Context, sent sentDocument, answer documentAnswer) (isThere bool, err error) {
	switch {
	case sent.method == "DELETE":
		return s.restore(ctx)
	case sent.method == "POST":
		return true, s.clear(ctx, sent.kind.path, text(answer.object, "metadata", "name"))
	case sent.name == keptDocument:
		return true, s.renew(ctx, sent.kind, sent.name)
	}
	return true, nil
}

// A documentTally counts what became of bodies.
type documentTally struct {
	sync.Mutex
	alike, denied, refused, refusedHere int
	kinds                               map[string]int // of what the gateway alone refuses
	wrong                               []string
}

func (d *documentTally) fault(sent sentDocument, what string, want, got documentAnswer) {
	d.wrong = append(d.wrong, fmt.Sprintf("%s: %s %s %s %q\n  server  %d %s echo %q\n    %s\n  gateway %d %s %s echo %q\n    %s", what, sent.method, sent.path, sent.media, sent.body,
		want.code, want.message, want.echo, storedForm(want.object), got.code, got.reason, got.message, got.echo, storedForm(got.object)))
}

// deleted checks that an object is still there if policies saw a dry run of its deletion, and only then.
func (d *documentTally) deleted(sent sentDocument, answer documentAnswer, isThere bool) {
	if strings.HasPrefix(answer.echo, "true ") != isThere {
		d.fault(sent, fmt.Sprintf("a dry run was judged, or not, but that the object is there is %t", isThere), answer, answer)
	}
}

var documentDetails = regexp.MustCompile(`line \d+: |"[^"]*"|\d+`)

// evaluate compares what a server and a gateway made of a body.
func (d *documentTally) evaluate(sent sentDocument, want, got documentAnswer) {
	d.Lock()
	defer d.Unlock()
	if got.isAccepted() && sent.method != "DELETE" {
		// A server, too, has expressions fail for what it stores otherwise, such as a null in the data of a secret.
		if seen := sent.kind.echoOf(got.object); got.echo != seen && got.echo != want.echo {
			d.fault(sent, "what was judged ("+got.echo+") is not what was stored ("+seen+")", want, got)
			return
		}
	}
	isEvil := func(answer documentAnswer) bool { return strings.HasSuffix(answer.message, "evil") }
	switch {
	case want.isAccepted() && got.isAccepted():
		// Of a null in the data of a secret, the dry run shows the text that is stored, and expressions of a server fail.
		isAlike := want.echo == got.echo || want.echo == "" && got.echo == sent.kind.echoOf(got.object)
		if !isAlike || storedForm(want.object) != storedForm(got.object) {
			d.fault(sent, "another object", want, got)
			return
		}
		d.alike++
	case got.isAccepted():
		d.fault(sent, "accepted by the gateway alone", want, got)
	case want.isAccepted() && (got.code == 400 || got.code == 415) && got.reason == "admission-malformed":
		d.refusedHere++
		d.kinds[strings.TrimPrefix(sent.media, "application/")+": "+documentDetails.ReplaceAllString(got.message, "…")]++
	case want.isAccepted():
		d.fault(sent, "refused by the gateway alone", want, got)
	case isEvil(want) && isEvil(got):
		d.denied++
		d.alike++
	case isEvil(want) && got.code != 400 && got.code != 415:
		d.fault(sent, "denied by the server, and refused otherwise by the gateway", want, got)
	default:
		// Without a dry run, policies come before the validation of the object.
		d.refused++
	}
}

// What is evaluated is what is stored, however a body can be read: mutated bodies get the same verdict from a gateway as from a server
// with the same policies, which print what they see, and the same objects are stored. A gateway may refuse with 400 or 415 what it
// does not read exactly as the server. Not one body is stored of which the policies saw something else.
func TestWhatIsEvaluatedIsWhatIsStored(t *testing.T) {
	aboutEvaluatingFairgate(t)
	// Not beside the others: they mostly wait, and this keeps both servers busy.
	bed, ctx := must[*AdmissionBed](t)(admissionBed()), inTime(t, time.Duration(10+*documentCount/600)*time.Minute)
	completed := evaluatingFairgate(t, FairgateOptions{Admission: "enforce", Fidelity: "completed"})
	dry := evaluatingFairgate(t, FairgateOptions{Admission: "enforce", Fidelity: "dryRun"})
	server := newDocumentSide(t, "server", bed.Enforcing.Endpoint)
	plain := newDocumentSide(t, "plain", bed.Plain.Endpoint)
	gateways := []documentSide{plain.through(t, "completed", completed.Endpoint), plain.through(t, "dryRun", dry.Endpoint)}
	for _, side := range []documentSide{server, plain} {
		succeeds(t, side.prepare(ctx))
	}
	for _, side := range append(gateways, server) {
		succeeds(t, side.inForce(ctx))
	}
	tally := documentTally{kinds: map[string]int{}}
	maker := newDocumentMaker(*documentSeed)
	for range *documentCount {
		sent := maker.next()
		gateway := gateways[0]
		if maker.random.IntN(4) == 0 {
			gateway = gateways[1]
		}
		want, got, err := bothAnswers(ctx, sent, server, gateway)
		if err != nil {
			t.Fatal(err)
		}
		tally.evaluate(sent, want, got)
		for side, answer := range map[documentSide]documentAnswer{server: want, plain: got} {
			if !answer.isAccepted() {
				continue
			}
			wasThere, err := side.tidy(ctx, sent, answer)
			if err != nil {
				t.Fatal(err)
			}
			if sent.method == "DELETE" {
				tally.deleted(sent, answer, wasThere)
			}
		}
	}
	tally.report(t)
}

func bothAnswers(ctx context.Context, sent sentDocument, server, gateway documentSide) (want, got documentAnswer, err error) {
	failed := make(chan error, 1)
	go func() {
		var err error
		want, err = server.send(ctx, sent.method, sent.path, sent.media, sent.body)
		if errors.Is(err, io.EOF) {
			// It panics over strategic merge patches whose merge key is a list: that is no acceptance.
			want, err = documentAnswer{message: "no response"}, nil
		}
		failed <- err
	}()
	got, err = gateway.send(ctx, sent.method, sent.path, sent.media, sent.body)
	if other := <-failed; other != nil {
		err = other
	}
	return want, got, err
}

func (d *documentTally) report(t *testing.T) {
	accepted := d.alike - d.denied + d.refusedHere
	fmt.Printf("DOCUMENTS {\"seed\":%d,\"bodies\":%d,\"alike\":%d,\"denied by both\":%d,\"refused by both\":%d,\"refused by the gateway alone\":%d,\"wrong\":%d}\n",
		*documentSeed, *documentCount, d.alike, d.denied, d.refused, d.refusedHere, len(d.wrong))
	for _, kind := range slices.SortedFunc(maps.Keys(d.kinds), func(a, b string) int { return d.kinds[b] - d.kinds[a] }) {
		fmt.Printf("  %5d %s\n", d.kinds[kind], kind)
	}
	for i, wrong := range d.wrong {
		if i < 20 {
			t.Error(wrong)
		}
	}
	if len(d.wrong) > 20 {
		t.Errorf("and %d more", len(d.wrong)-20)
	}
	if d.refusedHere*100 > accepted*mostRefusedDocuments {
		t.Errorf("of %d bodies that the server accepts, the gateway refuses %d", accepted, d.refusedHere)
	}
	if d.alike-d.denied < *documentCount/20 || d.denied < *documentCount/50 {
		t.Errorf("%d bodies are stored and %d denied by both: the comparison shows too little", d.alike-d.denied, d.denied)
	}
}
