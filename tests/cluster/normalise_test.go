package cluster

import (
	"encoding/json"
	"net/http"
	"reflect"
	"testing"
)

// normalised is the normalised form of JSON answers of one session.
func normalised(t *testing.T, answers ...string) []Response {
	t.Helper()
	seen := newNormaliser(false, false)
	var responses []Response
	for _, answer := range answers {
		header := http.Header{"Content-Type": {jsonType}}
		responses = append(responses, must[Response](t)(seen.response(Request{Method: "GET"}, &http.Response{StatusCode: 200, Header: header}, []byte(answer))))
	}
	return responses
}

func TestWhatServersChooseBecomesMarks(t *testing.T) {
	got := normalised(t,
		`{"kind":"FlowSchema","metadata":{"name":"x-abcde","generateName":"x-","resourceVersion":"77","uid":"6a14d791-fd44-4f27-a6a5-8a98bdf41aca","creationTimestamp":"2026-11-20T08:00:00Z","managedFields":[{}]},
		  "status":{"conditions":[{"type":"Dangling"}]}}`,
		`{"items":[{"metadata":{"name":"x-abcde","resourceVersion":"77"}},{"metadata":{"name":"y","resourceVersion":"78"}}],"metadata":{"resourceVersion":"90","continue":"abc"}}`,
		`{"kind":"Status","message":"Timeout: Too large resource version: 99, current: 90; x-abcde 6a14d791-fd44-4f27-a6a5-8a98bdf41aca, Key: /registry/x-abcde, patch: Invalid value: \"{\"a\":1}\": json: bad"}`,
		`{"kind":"Table","columnDefinitions":[{"name":"Name","description":"long"}],"rows":[{"cells":["x",5,"3m2s"]}]}`,
		`{"details":{"causes":[{"reason":"FieldManagerConflict","message":"b"},{"reason":"FieldManagerConflict","message":"a"}]}}`,
	)
	want := []string{
		`{"kind":"FlowSchema","metadata":{"name":"{{generated:1}}","generateName":"x-","resourceVersion":"{{rv:1}}","uid":"{{uid:1}}","creationTimestamp":"{{time}}"},"status":{}}`,
		`{"items":[{"metadata":{"name":"{{generated:1}}","resourceVersion":"{{rv:1}}"}},{"metadata":{"name":"y","resourceVersion":"{{rv:2}}"}}],"metadata":{"resourceVersion":"{{rv}}","continue":"{{continue}}"}}`,
		`{"kind":"Status","message":"Timeout: Too large resource version: {{rv}}, current: {{rv}}; {{generated:1}} {{uid:1}}, Key: {{key}}, patch: Invalid value: \"{{document}}\": json: bad"}`,
		`{"kind":"Table","columnDefinitions":[{"name":"Name"}],"rows":[{"cells":["x",5,"{{age}}"]}]}`,
		`{"details":{"causes":[{"reason":"FieldManagerConflict","message":"a"},{"reason":"FieldManagerConflict","message":"b"}]}}`,
	}
	for i, text := range want {
		var body any
		if err := json.Unmarshal([]byte(text), &body); err != nil {
			t.Fatal(err)
		}
		var plainly any
		if err := json.Unmarshal(must[[]byte](t)(json.Marshal(got[i].Body)), &plainly); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(plainly, body) {
			t.Errorf("%v, want %v", plainly, body)
		}
	}
}

func TestAWatchIsItsEventsWithoutOrdinaryBookmarks(t *testing.T) {
	got := normalised(t, `{"type":"ADDED","object":{"kind":"FlowSchema","metadata":{"resourceVersion":"5"}}}
		{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"6"}}}
		{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7","annotations":{"k8s.io/initial-events-end":"true"}}}}`)[0]
	if len(got.Events) != 2 || text(got.Events[0], "object", "metadata", "resourceVersion") != "{{rv:1}}" || text(got.Events[1], "object", "metadata", "resourceVersion") != "{{rv}}" {
		t.Errorf("%v", got.Events)
	}
}

func TestOnlyDifferencesThatNobodyKnowsOfAreReported(t *testing.T) {
	exchange := func(code int, message string) []Exchange {
		return []Exchange{{Session: "s", Request: Request{Method: "GET", Path: "/x", Query: "a=b"}, Response: Response{Code: code, Body: map[string]any{"message": message}}}}
	}
	found := Compare(exchange(200, "one"), exchange(400, "two"))
	if len(found) != 2 || found[0].Field != "/body/message" || found[1].Field != "/code" || found[1].Request != "GET /x?a=b" {
		t.Fatalf("%v", found)
	}
	unknown, reasons, unused, err := SortOut(found, []KnownDifference{
		{Request: `GET /x\?.*`, Field: "/body/.*", Want: `"o.*"`, Got: `"two"`, Reason: "text"}, {Session: "other", Reason: "gone"}, {Got: "200", Reason: "gone"}})
	if err != nil || len(unknown) != 1 || unknown[0].Field != "/code" || len(unused) != 2 || unused[0].Reason != "gone" || unused[1].Reason != "gone" || reasons["text"] != 1 {
		t.Errorf("%v %v %v %v", unknown, reasons, unused, err)
	}
	if equal := Compare(exchange(200, "one"), exchange(200, "one")); len(equal) != 0 {
		t.Errorf("%v", equal)
	}
}
