package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

var setByServerRecord = flag.String("record-set-by-server", "", "write which objects a server with all its default plugins shows its policies to this file")

// What a server with all its default plugins shows its policies is recorded twice without a difference.
func TestRecordWhatAServerSetsInObjects(t *testing.T) {
	if *setByServerRecord == "" {
		t.Skip("give -record-set-by-server=FILE to record")
	}
	ctx := inTime(t, 10*time.Minute)
	server := must[*Apiserver](t)(shared.StartApiserver("set-by-server", "", setByServerFlags...))
	succeeds(t, shared.prepareForAdmission(server))
	hook := must[*AdmissionWatcher](t)(shared.WatchAdmission(ctx, server))
	side := newDocumentSide(t, "server", server.Endpoint)
	var plays [2]string
	for i := range plays {
		plays[i] = must[string](t)(recordSetByServer(ctx, side, hook, nextPlay()))
	}
	if plays[0] != plays[1] {
		one, other := strings.Split(plays[0], "\n"), strings.Split(plays[1], "\n")
		for i := range min(len(one), len(other)) {
			if one[i] != other[i] {
				a, b := short(one[i], other[i])
				t.Errorf("of two plays, line %d:\n%s\n%s", i+1, a, b)
			}
		}
		t.Errorf("two plays differ, of %d and %d lines", len(one), len(other))
	}
	if !t.Failed() {
		succeeds(t, os.WriteFile(*setByServerRecord, []byte(plays[0]), 0o644))
	}
}

// untilPluginsAct waits until they do what shows that they know all settings, whose texts have names by `named`.
func untilPluginsAct(ctx context.Context, side documentSide, named func(string) string) error {
	for _, one := range setByServerKnown() {
		err := poll(changeLimit, 50*time.Millisecond, func() (bool, error) {
			answer, err := side.send(ctx, "POST", named(one.path)+"?dryRun=All", jsonType, []byte(named(one.body)))
			if err != nil {
				return false, err
			}
			text, err := json.Marshal(answer.object)
			return answer.isAccepted() && bytes.Contains(text, []byte(one.has)), err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", one.has, err)
		}
	}
	return nil
}

// recordSetByServer plays the session once, with the objects by which plugins act, and those of all pods without them.
func recordSetByServer(ctx context.Context, side documentSide, hook *AdmissionWatcher, play int) (string, error) {
	namespace := inPlay(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"@ns"}}`, play)
	if err := side.must(ctx, "POST", "/api/v1/namespaces", namespace, 201); err != nil {
		return "", err
	}
	for _, setting := range setByServerSettings() {
		if err := side.must(ctx, "POST", inPlay(setting[0], play), inPlay(setting[1], play), 201); err != nil {
			return "", err
		}
	}
	if err := untilPluginsAct(ctx, side, func(text string) string { return inPlay(text, play) }); err != nil {
		return "", err
	}
	lines, err := recordEvaluated(ctx, side.target, hook, setByServerSession().numbered(play), play)
	if err != nil {
		return "", err
	}
	for _, setting := range setByServerSettings() {
		if err := side.must(ctx, "DELETE", settingName(setting, play), "", 200); err != nil {
			return "", err
		}
	}
	var all strings.Builder
	all.WriteString(withoutDraws(string(lines)))
	// The pods of another namespace, without a LimitRange and the like, as in the corpus of a server without the plugin ServiceAccount.
	for _, session := range EvaluatedObjectSessions() {
		if !strings.HasSuffix(session.Name, "echo-pods") {
			continue
		}
		account := Request{Method: "POST", Path: strings.ReplaceAll(session.Requests[0].Path+"/"+session.Name+"-ns/serviceaccounts", "//", "/"),
			Headers: map[string]string{contentHeader: jsonType}, Body: `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default"}}`}
		session.Requests = append(append(session.Requests[:1:1], account), session.Requests[1:]...)
		lines, err := recordEvaluated(ctx, side.target, hook, session.numbered(play), play)
		if err != nil {
			return "", err
		}
		all.WriteString(withoutDraws(string(lines)))
	}
	return all.String(), nil
}
