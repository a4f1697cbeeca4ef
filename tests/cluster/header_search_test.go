package cluster

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

var headerCount = flag.Int("headers", 400, "number of drawn headers of writes that a gateway and a server judge")

const headersNamespace = "header-search"

// searchedMediaTypes are put before parameters.
var searchedMediaTypes = []string{
	jsonType, yamlType, protobufType, mergeType, jsonPatchType, applyType, "application/strategic-merge-patch+json", "application/apply-patch+cbor", "application/cbor", "text/plain", "application", "", "*/*", "application/*", "APPLICATION/JSON",
	"Application/Merge-Patch+JSON", "application/json, application/yaml", "application/merge-patch+json,application/json",
}

var searchedMediaParameters = []string{
	"; charset=utf-8", ";charset=utf-8", " ;charset=utf-8", ";", ";;", "; ", "; charset", "; charset=", `; charset="utf-8"`, `; charset="utf-8`, "; a=1; a=1", "; a=1; a=2", "; a*=1", "; a*0=1; a*1=2", "; =1", ";as=Table;v=v1;g=meta.k8s.io", ";stream=watch",
	"; q=\xff", "; q=\"\xff\"", "\xff", ",", "; a=b c", ";\u00a0a=1", "; a=\t1",
}

var searchedAgents = []string{
	"documents", "kubectl/v1.36 (linux)", "kubectl-edit/v1 \xff", "kube\xffctl/v1", "\xe2\x82/x", "kub\u200bectl/x", "é/1", "/x", "", strings.Repeat("é", 100) + "/x", strings.Repeat("\xff", 60), "curl/8", "Mozilla/5.0", "a/b/c", "\u202ea", "a\tb", "a b",
}

var searchedAccepts = []string{jsonType, "application/yaml", "text/plain", "*/*", "", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "application/json;q=0", "application/vnd.kubernetes.protobuf", "text/plain, application/json;q=0.1", "\xff", "application/json;as=\xff"}

// searchedOthers are headers that say nothing to a server, or change what a body is.
var searchedOthers = [][2]string{
	{"X-HTTP-Method-Override", "DELETE"}, {"X-Original-URL", "/api/v1/namespaces"}, {"Content-Encoding", "gzip"}, {"Content-Encoding", "identity"}, {"Audit-ID", "anything"}, {"Audit-ID", "6a2c6a6e-3f0d-4d0e-9f3c-2b8f5e3d9f10"}, {"Expect", "100-continue"},
	{"X-Forwarded-Uri", "/healthz"}, {"Accept-Encoding", "gzip"}, {"If-Match", "\"1\""}, {"X-Remote-Extra-A", "b"}, {"Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
}

// A headedWrite is one with headers of its own.
type headedWrite struct {
	searchedWrite
	headers http.Header
}

func drawnHeaders(random *rand.Rand) headedWrite {
	maps := "/api/v1/namespaces/" + headersNamespace + "/configmaps"
	parts := "/apis/judged.example.com/v1/namespaces/" + headersNamespace + "/limits"
	write := []searchedWrite{
		{"POST", maps, jsonType, `{"metadata":{"name":"new"},"data":{"a":"1"}}`},
		{"PUT", maps + "/a", jsonType, `{"metadata":{"name":"a"},"data":{"a":"2"}}`},
		{"PATCH", maps + "/a", mergeType, `{"data":{"a":"2"}}`},
		{"PATCH", maps + "/a", jsonPatchType, `[{"op":"add","path":"/data","value":{"a":"2"}}]`},
		{"PATCH", maps + "/a", applyType, `{"apiVersion":"v1","kind":"ConfigMap","data":{"b":"2"}}`},
		{"DELETE", maps + "/a", "", ``},
		{"DELETE", maps + "/a", jsonType, `{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Background"}`},
		{"POST", parts, jsonType, `{"apiVersion":"judged.example.com/v1","kind":"Limit","metadata":{"name":"new"},"spec":{"most":1}}`},
		{"PATCH", parts + "/a", mergeType, `{"spec":{"most":2}}`},
	}[random.IntN(9)]
	if strings.HasPrefix(write.media, applyType) {
		write.target += "?fieldManager=me"
	}
	if random.IntN(8) == 0 {
		write.target += map[bool]string{true: "&", false: "?"}[strings.Contains(write.target, "?")] + "dryRun=All"
	}
	one := func(of []string) string { return of[random.IntN(len(of))] }
	headers := http.Header{"User-Agent": {one(searchedAgents)}, "Accept": {jsonType}}
	media := write.media
	if random.IntN(4) == 0 {
		media = one(searchedMediaTypes)
	}
	for range random.IntN(3) {
		media += one(searchedMediaParameters)
	}
	if media != "" || random.IntN(2) == 0 {
		headers["Content-Type"] = []string{media}
	}
	if random.IntN(4) == 0 {
		headers["Accept"] = []string{one(searchedAccepts)}
	}
	if random.IntN(3) == 0 {
		other := searchedOthers[random.IntN(len(searchedOthers))]
		headers[other[0]] = []string{other[1]}
	}
	return headedWrite{write, headers}
}

// sendHeaded sends these headers as they are.
func (s documentSide) sendHeaded(ctx context.Context, write headedWrite) (code int, message string, err error) {
	wire, err := http.NewRequestWithContext(ctx, write.method, s.target.base.String()+write.target, bytes.NewReader([]byte(write.body)))
	if err != nil {
		return 0, "", err
	}
	wire.Header = write.headers.Clone()
	// A server closes a connection whose request it has not read to its end, which may be in use again by then.
	wire.Close = true
	response, err := s.target.transport.RoundTrip(wire)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, "", err
	}
	var status struct{ Message string }
	// JSON is YAML, too; of YAML, only the quotes are others.
	if yaml.Unmarshal(data, &status) != nil {
		status.Message = fmt.Sprintf("%q", data)
	}
	return response.StatusCode, status.Message, nil
}

// Whatever headers a write has, the gateway reads its body and its manager as the server does: each gets the same answer, with what policies saw of it.
func TestHeadersAreReadAsTheServerReadsThem(t *testing.T) {
	aboutEvaluatingFairgate(t)
	bed, ctx := must[*AdmissionBed](t)(admissionBed()), inTime(t, 10*time.Minute)
	server := newDocumentSide(t, "server", bed.Enforcing.Endpoint)
	plain := newDocumentSide(t, "plain", bed.Plain.Endpoint)
	for _, side := range []documentSide{server, plain} {
		succeeds(t, prepareHeaders(ctx, side))
	}
	gateway := evaluatingFairgate(t, FairgateOptions{Admission: "enforce", Fidelity: "completed"})
	through := plain.through(t, "gateway", gateway.Endpoint)
	for _, side := range []documentSide{server, through} {
		succeeds(t, poll(changeLimit, 50*time.Millisecond, func() (bool, error) {
			answer, err := side.send(ctx, "DELETE", "/apis/judged.example.com/v1/namespaces/"+headersNamespace+"/limits/a?dryRun=All", jsonType, nil)
			return answer.code == 422, err
		}))
	}
	counts, differing, aborted, others := map[int]int{}, 0, 0, 0
	for number := range *headerCount {
		write := drawnHeaders(rand.New(rand.NewPCG(11, uint64(number))))
		code, message, err := server.sendHeaded(ctx, write)
		gotCode, gotMessage, gotErr := through.sendHeaded(ctx, write)
		if errors.Is(err, io.EOF) && gotErr == nil && gotCode >= 400 {
			aborted++ // the server's handler has panicked
			continue
		}
		if err != nil || gotErr != nil {
			t.Fatalf("%d: %s %s %q: server %v, gateway %v", number, write.method, write.target, fmt.Sprint(write.headers), err, gotErr)
		}
		counts[code]++
		if code == gotCode && message == gotMessage {
			continue
		}
		if code == 406 && gotCode == 415 {
			others++ // of two mistakes, another one is found first: a list of media types passes the server's router
			continue
		}
		if differing++; differing <= 30 {
			t.Errorf("%d: %s %s %q\n  server  %d %s\n  gateway %d %s", number, write.method, write.target, fmt.Sprint(write.headers), code, message, gotCode, gotMessage)
		}
	}
	fmt.Printf("HEADERS {\"by code\":%s,\"aborted by the server\":%d,\"another mistake\":%d,\"differing\":%d}\n", strings.ReplaceAll(fmt.Sprint(counts), " ", ","), aborted, others, differing)
	if others > *headerCount/100 {
		t.Errorf("of two mistakes, another one is found first %d times", others)
	}
	if counts[422] < *headerCount/5 || counts[415] < *headerCount/20 {
		t.Errorf("policies saw few of them: %v", counts)
	}
	succeeds(t, plain.must(ctx, "GET", "/api/v1/namespaces/"+headersNamespace+"/configmaps/a", "", 200))
	succeeds(t, plain.must(ctx, "GET", "/api/v1/namespaces/"+headersNamespace+"/configmaps/new", "", 404))
}

// prepareHeaders makes the objects, and then a policy that denies all.
func prepareHeaders(ctx context.Context, side documentSide) error {
	// Of a changed custom resource, the gateway does not know which fields its manager takes over. Who has made the object is the first
	// one or the last, as the second passes.
	const managers = `(object == null || request.resource.resource == 'limits' ? [] : object.metadata.?managedFields.orValue([]).map(m, m.manager).filter(m, m != 'documents'))`
	policy := `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"header-search"},"spec":{"failurePolicy":"Fail",` +
		`"matchConstraints":{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"` + headersNamespace + `"}},"resourceRules":[{"apiGroups":["","judged.example.com"],"apiVersions":["v1"],"operations":["CREATE","UPDATE","DELETE"],"resources":["configmaps","limits"]}]},` +
		`"validations":[{"expression":"false","messageExpression":"'%s %s by %s data %s'.format([request.operation, request.?name.orValue('-'), ` + managers + `, object == null ? null : object.?data.orValue({})])"}]}}`
	binding := `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":"header-search"},"spec":{"policyName":"header-search","validationActions":["Deny"]}}`
	in := "/api/v1/namespaces/" + headersNamespace
	made := [][2]string{
		{"/api/v1/namespaces", `{"metadata":{"name":"` + headersNamespace + `"}}`}, {in + "/configmaps", `{"metadata":{"name":"a"},"data":{"a":"1"}}`},
		{"/apis/judged.example.com/v1/namespaces/" + headersNamespace + "/limits", `{"apiVersion":"judged.example.com/v1","kind":"Limit","metadata":{"name":"a"},"spec":{"most":1}}`},
	}
	for _, one := range slices.Concat(made, [][2]string{{policiesPath, policy}, {bindingsPath, binding}}) {
		if err := side.must(ctx, "POST", one[0], one[1], 201, 409); err != nil {
			return err
		}
	}
	return nil
}
