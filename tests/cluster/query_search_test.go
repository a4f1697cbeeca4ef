package cluster

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"
)

var queryCount = flag.Int("queries", 300, "number of drawn paths and queries of writes that a gateway and a server judge")

const searchedNamespace = "query-search"

// searchedParameters are what writes and deletions of collections read of a query, with values that are valid and others.
var searchedParameters = map[string][]string{
	"dryRun": {"All", "all", "", "None"}, "fieldManager": {"m", ""}, "fieldValidation": {"Strict", "Warn", "Ignore", "x"}, "force": {"true", "false", "x"},
	"propagationPolicy": {"Orphan", "Background", "Foreground", "x"}, "gracePeriodSeconds": {"0", "5", "-1", "x", "1e3", "9223372036854775808"}, "orphanDependents": {"true", "false", "x"},
	"labelSelector": {"app=a", "app=none", "app in (a,b)", "(", ""}, "fieldSelector": {"metadata.name=a", "metadata.name=none", "x=y", ""}, "limit": {"1", "0", "-1", "x"},
	"resourceVersion": {"0", "1", "x", ""}, "resourceVersionMatch": {"Exact", "NotOlderThan", "x"}, "timeoutSeconds": {"5", "0", "-1", "x"}, "pretty": {"true", "x"}, "watch": {"0", "false"},
	"continue": {"", "x"}, "ignoreStoreReadErrorWithClusterBreakingPotential": {"true", "false", "x"}, "x": {"dryRun=All", "labelSelector"},
}

// searchedNames is in a fixed order.
var searchedNames = []string{
	"dryRun", "fieldManager", "fieldValidation", "force", "propagationPolicy", "gracePeriodSeconds", "orphanDependents", "labelSelector", "fieldSelector", "limit", "resourceVersion",
	"resourceVersionMatch", "timeoutSeconds", "pretty", "watch", "continue", "ignoreStoreReadErrorWithClusterBreakingPotential", "x",
}

// encodedSomewhere encodes a character that need not be.
func encodedSomewhere(random *rand.Rand, text string) string {
	if text == "" {
		return text
	}
	at := random.IntN(len(text))
	if text[at] == '/' || text[at] == '%' {
		return text
	}
	format := []string{"%s%%%02x%s", "%s%%%02X%s"}[random.IntN(2)]
	return fmt.Sprintf(format, text[:at], text[at], text[at+1:])
}

func drawnQuery(random *rand.Rand) string {
	var pairs []string
	for range random.IntN(6) {
		name := searchedNames[random.IntN(len(searchedNames))]
		values := searchedParameters[name]
		pair := name + "=" + url.QueryEscape(values[random.IntN(len(values))])
		switch random.IntN(12) {
		case 0, 1, 2:
			name, value, _ := strings.Cut(pair, "=")
			pair = encodedSomewhere(random, name) + "=" + value
		case 3:
			pair = strings.ToUpper(pair[:1]) + pair[1:]
		case 4:
			pair += ";x"
		case 5:
			pair += "%zz"
		case 6:
			pair = strings.Replace(pair, "=", "", 1)
		case 7:
			pair = strings.Replace(pair, "=", "%3D", 1)
		case 8:
			pair = "+" + pair
		case 9:
			pair = name + "=" // the empty one first
		}
		pairs = append(pairs, pair)
		if random.IntN(6) == 0 {
			pairs = append(pairs, pair)
		}
	}
	return strings.Join(pairs, "&")
}

// A searchedWrite is denied by a policy that prints what it sees of the request, unless a server refuses it before that, or it selects nothing.
type searchedWrite struct{ method, target, media, body string }

func drawnWrite(random *rand.Rand) searchedWrite {
	maps := "/api/v1/namespaces/" + searchedNamespace + "/configmaps"
	write := []searchedWrite{
		{"POST", maps, jsonType, `{"metadata":{"name":"new","labels":{"app":"a"}},"data":{"a":"1"}}`},
		{"PUT", maps + "/a", jsonType, `{"metadata":{"name":"a"},"data":{"a":"2"}}`},
		{"PATCH", maps + "/a", "application/merge-patch+json", `{"data":{"a":"2"}}`},
		{"PATCH", maps + "/a", "application/apply-patch+yaml", `{"apiVersion":"v1","kind":"ConfigMap","data":{"a":"2"}}`},
		{"DELETE", maps + "/a", jsonType, ``},
		{"DELETE", maps, jsonType, ``},
		{"DELETE", maps, jsonType, ``},
		{"DELETE", maps, jsonType, `{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Background"}`},
	}[random.IntN(8)]
	if random.IntN(6) == 0 {
		write.target = encodedSomewhere(random, write.target)
	}
	if query := drawnQuery(random); query != "" {
		write.target += "?" + query
	}
	return write
}

// versionOnRecord is the version of an object, which is another one in each server.
var versionOnRecord = regexp.MustCompile(`record \(\d+\)`)

// refusedOtherwise is the known difference: of two mistakes, the gateway may find another one first.
func refusedOtherwise(write searchedWrite, want, got documentAnswer) bool {
	return write.method == "DELETE" && want.code == 400 && got.code == 400
}

// Whatever a query or a path is encoded like, the gateway reads it as the server does: each request gets the same answer, with what policies saw of it.
func TestQueriesAreReadAsTheServerReadsThem(t *testing.T) {
	aboutEvaluatingFairgate(t)
	bed, ctx := must[*AdmissionBed](t)(admissionBed()), inTime(t, 10*time.Minute)
	server := newDocumentSide(t, "server", bed.Enforcing.Endpoint)
	plain := newDocumentSide(t, "plain", bed.Plain.Endpoint)
	for _, side := range []documentSide{server, plain} {
		succeeds(t, prepareSearch(ctx, side))
	}
	for _, guard := range []bool{false, true} {
		gateway := evaluatingFairgate(t, FairgateOptions{Admission: "enforce", Fidelity: "completed", Guard: guard})
		through := plain.through(t, "gateway", gateway.Endpoint)
		for _, side := range []documentSide{server, through} {
			succeeds(t, poll(changeLimit, 50*time.Millisecond, func() (bool, error) {
				answer, err := side.send(ctx, "DELETE", "/api/v1/namespaces/"+searchedNamespace+"/configmaps/a?dryRun=All", jsonType, nil)
				return answer.code == 422, err
			}))
		}
		counts := map[int]int{}
		differing, otherwise := 0, 0
		for number := range *queryCount {
			write := drawnWrite(rand.New(rand.NewPCG(7, uint64(number))))
			want, err := server.send(ctx, write.method, write.target, write.media, []byte(write.body))
			succeeds(t, err)
			got, err := through.send(ctx, write.method, write.target, write.media, []byte(write.body))
			succeeds(t, err)
			counts[want.code]++
			want.message, got.message = versionOnRecord.ReplaceAllString(want.message, "record"), versionOnRecord.ReplaceAllString(got.message, "record")
			if want.code == got.code && want.message == got.message {
				continue
			}
			if refusedOtherwise(write, want, got) {
				otherwise++
			} else {
				if differing++; differing <= 20 {
					t.Errorf("guard %v, %d: %s %s %s\n  server  %d %s\n  gateway %d %s %s", guard, number, write.method, write.target, write.media, want.code, want.message, got.code, got.message, got.reason)
				}
			}
		}
		fmt.Printf("QUERIES {\"guard\":%v,\"by code\":%s,\"refused for another reason\":%d,\"differing\":%d}\n", guard, strings.ReplaceAll(fmt.Sprint(counts), " ", ","), otherwise, differing)
		if counts[422] < *queryCount/5 {
			t.Errorf("policies saw few of them: %v", counts)
		}
		for _, name := range []string{"a", "b"} {
			succeeds(t, plain.must(ctx, "GET", "/api/v1/namespaces/"+searchedNamespace+"/configmaps/"+name, "", 200))
		}
		succeeds(t, plain.must(ctx, "GET", "/api/v1/namespaces/"+searchedNamespace+"/configmaps/new", "", 404))
	}
}

// prepareSearch makes the objects, and then a policy that denies all.
func prepareSearch(ctx context.Context, side documentSide) error {
	maps := "/api/v1/namespaces/" + searchedNamespace + "/configmaps"
	policy := `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"query-search"},"spec":{"failurePolicy":"Fail",` +
		`"matchConstraints":{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"` + searchedNamespace + `"}},"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE","UPDATE","DELETE"],"resources":["configmaps"]}]},` +
		`"validations":[{"expression":"false","messageExpression":"'%s %s dry %s options %s'.format([request.operation, request.?name.orValue('-'), request.?dryRun.orValue(false), request.?options.orValue({})])"}]}}`
	binding := `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":"query-search"},"spec":{"policyName":"query-search","validationActions":["Deny"]}}`
	for _, made := range [][2]string{
		{"/api/v1/namespaces", `{"metadata":{"name":"` + searchedNamespace + `"}}`},
		{maps, `{"metadata":{"name":"a","labels":{"app":"a"}},"data":{"a":"1"}}`}, {maps, `{"metadata":{"name":"b","labels":{"app":"b"}},"data":{"a":"1"}}`},
		{policiesPath, policy}, {bindingsPath, binding},
	} {
		if err := side.must(ctx, "POST", made[0], made[1], 201, 409); err != nil {
			return err
		}
	}
	return nil
}
