package cluster

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
)

func TestKubectlWorksAsItDoesWithoutFairgate(t *testing.T) {
	grantTesters(t)
	makeCrowd(t)
	user := must[User](t)(alice())
	throughEach(t, FairgateOptions{}, func(t *testing.T, at Endpoint) {
		namespace := "kubectl-" + strings.ToLower(at.Name)
		if err := shared.EnsureNamespace(inTime(t, time.Minute), namespace); err != nil {
			t.Fatal(err)
		}
		in := func(args ...string) []string { return append([]string{"--namespace=" + namespace}, args...) }

		t.Run("apply, get, patch and delete", func(t *testing.T) {
			object := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\ndata: {colour: %s}\n"
			read := in("get", "configmap", "one", "-o", "jsonpath={.data.colour}")

			expect(t, "created", kubectl(t, at, user, fmt.Sprintf(object, "red"), in("apply", "-f", "-")...))
			expect(t, "red", kubectl(t, at, user, "", read...))
			expect(t, "configured", kubectl(t, at, user, fmt.Sprintf(object, "green"), in("apply", "-f", "-")...))
			expect(t, "green", kubectl(t, at, user, "", read...))
			expect(t, "serverside-applied", kubectl(t, at, user, fmt.Sprintf(object, "green"),
				in("apply", "--server-side", "--force-conflicts", "-f", "-")...))
			expect(t, "patched", kubectl(t, at, user, "", in("patch", "configmap", "one", "--type=merge", "-p", `{"data":{"colour":"blue"}}`)...))
			expect(t, "blue", kubectl(t, at, user, "", read...))
			expect(t, "deleted", kubectl(t, at, user, "", in("delete", "configmap", "one", "--timeout=60s")...))
			_, err := shared.RunKubectl(inTime(t, 2*time.Minute), at, user, "", read...)
			if err == nil || !strings.Contains(err.Error(), "NotFound") {
				t.Errorf("a deleted object should be NotFound, got %v", err)
			}
		})

		t.Run("10 000 objects", func(t *testing.T) {
			for _, chunk := range []string{"500", "0"} {
				started := time.Now()
				printed := kubectl(t, at, user, "", "get", "configmaps", "--namespace="+crowdNamespace, "--chunk-size="+chunk, "-o", "name")
				lines := strings.Fields(printed)
				slices.Sort(lines)
				if lines = slices.Compact(lines); len(lines) != crowdSize {
					t.Errorf("chunks of %s: %d different objects, want %d", chunk, len(lines), crowdSize)
				}
				t.Logf("chunks of %s: %.1f s", chunk, time.Since(started).Seconds())
			}
			// The server prints this table in a form that kubectl does not change.
			printed := kubectl(t, at, user, "", "get", "configmaps", "--namespace="+crowdNamespace, "--no-headers")
			if lines := strings.Count(printed, "member-"); lines != crowdSize {
				t.Errorf("table of %d lines, want %d", lines, crowdSize)
			}
		})

		t.Run("get --watch", func(t *testing.T) {
			kubectl(t, at, user, "", in("create", "configmap", "watched", "--from-literal=n=1")...)
			cmd, err := shared.Kubectl(inTime(t, 20*time.Minute), at, user, in("get", "configmaps", "--watch", "--output-watch-events",
				"--field-selector=metadata.name=watched", "-o", `jsonpath={.type} {.object.data.n}{"\n"}`)...)
			if err != nil {
				t.Fatal(err)
			}
			lines := start(t, cmd.StdoutPipe, cmd.Start)
			awaitLine(t, lines, "ADDED 1")
			kubectl(t, at, user, "", in("patch", "configmap", "watched", "--type=merge", "-p", `{"data":{"n":"2"}}`)...)
			awaitLine(t, lines, "MODIFIED 2")
			kubectl(t, at, user, "", in("delete", "configmap", "watched")...)
			awaitLine(t, lines, "DELETED 2")
			_ = cmd.Process.Kill() // it would watch for ever
			_ = cmd.Wait()
		})

		t.Run("wait", func(t *testing.T) {
			kubectl(t, at, user, "", in("create", "configmap", "awaited", "--from-literal=ready=no")...)
			cmd, err := shared.Kubectl(inTime(t, 20*time.Minute), at, user,
				in("wait", "configmap/awaited", "--for=jsonpath={.data.ready}=yes", "--timeout=60s", "-v=6")...)
			if err != nil {
				t.Fatal(err)
			}
			lines := start(t, cmd.StderrPipe, cmd.Start)
			awaitLine(t, lines, "watch=true") // it has seen that it must wait
			kubectl(t, at, user, "", in("patch", "configmap", "awaited", "--type=merge", "-p", `{"data":{"ready":"yes"}}`)...)
			drain(lines)
			if err := cmd.Wait(); err != nil {
				t.Errorf("kubectl wait: %v", err)
			}
		})
	})
}

func TestEveryUserIsWhoHeIsWithoutFairgate(t *testing.T) {
	ctx := inTime(t, 20*time.Minute)
	user := must[User](t)(alice())
	account := must[User](t)(shared.NewServiceAccount(ctx, "whoami", "robot"))
	users := map[string]User{
		"certificate":     user,
		"service account": account,
		"static token":    {Name: StaticUser, Token: StaticToken},
		"node":            must[User](t)(shared.NewUser("system:node:whoami", "system:nodes")),
		"administrator":   shared.admin,
	}
	throughEach(t, FairgateOptions{}, func(t *testing.T, at Endpoint) {
		for _, name := range slices.Sorted(maps.Keys(users)) {
			t.Run(name, func(t *testing.T) {
				got, want := whoami(t, at, users[name]), whoami(t, shared.Direct, users[name])
				if !reflect.DeepEqual(got, want) {
					t.Errorf("through fairgate\n  %+v\nitself\n  %+v", got, want)
				}
			})
		}
		t.Run("anonymous", func(t *testing.T) {
			for _, args := range [][]string{{"auth", "whoami"}, {"get", "--raw=/api/v1/namespaces/default/configmaps"}} {
				_, err := shared.RunKubectl(inTime(t, 2*time.Minute), at, Anonymous, "", args...)
				_, want := shared.RunKubectl(inTime(t, 2*time.Minute), shared.Direct, Anonymous, "", args...)
				if err == nil || want == nil || err.Error() != want.Error() {
					t.Errorf("through fairgate\n  %v\nitself\n  %v", err, want)
				}
			}
			// kubectl sends an unknown password; this is a request without any credential.
			got := refusal(t, at, Anonymous)
			if want := refusal(t, shared.Direct, Anonymous); got != want || !strings.Contains(got, `User \"system:anonymous\" cannot list`) {
				t.Errorf("through fairgate\n  %s\nitself\n  %s", got, want)
			}
		})
		t.Run("bad token", func(t *testing.T) {
			_, err := shared.RunKubectl(inTime(t, 2*time.Minute), at, User{Token: "of-nobody"}, "", "get", "configmaps")
			if err == nil || !strings.Contains(err.Error(), "must be logged in") {
				t.Errorf("a bad token should be Unauthorized, never anonymous: %v", err)
			}
		})
	})
}

func TestNobodyBecomesAnotherByHeaders(t *testing.T) {
	user := must[User](t)(alice())
	proxy := User{Name: "front proxy", Pair: shared.PKI.FrontProxyClient}
	throughEach(t, FairgateOptions{}, func(t *testing.T, at Endpoint) {
		cases := []struct {
			name    string
			user    User
			header  http.Header
			code    int
			becomes string
		}{
			{"no header", user, nil, http.StatusCreated, "alice"},
			{"front-proxy headers of an ordinary user", user,
				http.Header{"X-Remote-User": {"kubernetes-admin"}, "X-Remote-Group": {"system:masters"}}, http.StatusCreated, "alice"},
			{"front-proxy headers in lower case", user,
				http.Header{"x-remote-user": {"kubernetes-admin"}, "x-remote-group": {"system:masters"}}, http.StatusCreated, "alice"},
			{"front-proxy headers named in Connection", user,
				http.Header{"X-Remote-User": {"kubernetes-admin"}, "Connection": {"X-Remote-User"}}, http.StatusCreated, "alice"},
			{"front-proxy headers of a front proxy", proxy,
				http.Header{"X-Remote-User": {"bob"}, "X-Remote-Group": {"dev"}}, http.StatusCreated, "bob"},
			{"a front proxy that names nobody", proxy, nil, http.StatusUnauthorized, ""},
			{"impersonation", user, http.Header{"Impersonate-User": {"kubernetes-admin"}}, http.StatusForbidden, ""},
			{"impersonation of a group", user,
				http.Header{"Impersonate-User": {"alice"}, "Impersonate-Group": {"system:masters"}}, http.StatusForbidden, ""},
		}
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				header := http.Header{"Content-Type": {"application/json"}}
				maps.Copy(header, c.header)
				transport := shared.Transport(c.user, false)
				defer transport.CloseIdleConnections()
				response, err := shared.Do(inTime(t, time.Minute), transport, at, c.user, http.MethodPost,
					"/apis/authentication.k8s.io/v1/selfsubjectreviews", header, `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`)
				if err != nil {
					t.Fatal(err)
				}
				defer response.Body.Close()
				body := must[[]byte](t)(io.ReadAll(response.Body))
				if response.StatusCode != c.code {
					t.Fatalf("%s: %s, want %d", response.Status, body, c.code)
				}
				if c.becomes == "" {
					return
				}
				var review authenticationv1.SelfSubjectReview
				if err := json.Unmarshal(body, &review); err != nil {
					t.Fatalf("%v: %s", err, body)
				}
				if review.Status.UserInfo.Username != c.becomes || slices.Contains(review.Status.UserInfo.Groups, "system:masters") {
					t.Errorf("is %+v, want %s", review.Status.UserInfo, c.becomes)
				}
			})
		}
	})
}

// whoami is what the apiserver says about a user, its groups in order.
func whoami(t *testing.T, at Endpoint, user User) authenticationv1.UserInfo {
	t.Helper()
	printed := kubectl(t, at, user, "", "auth", "whoami", "-o", "json")
	var review authenticationv1.SelfSubjectReview
	if err := json.Unmarshal([]byte(printed), &review); err != nil {
		t.Fatalf("%v: %s", err, printed)
	}
	slices.Sort(review.Status.UserInfo.Groups)
	return review.Status.UserInfo
}

// refusal is the code and the body with which a list of ConfigMaps is answered.
func refusal(t *testing.T, at Endpoint, user User) string {
	t.Helper()
	transport := shared.Transport(user, true)
	defer transport.CloseIdleConnections()
	response, err := shared.Do(inTime(t, time.Minute), transport, at, user, http.MethodGet, "/api/v1/namespaces/default/configmaps", nil, "")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	return response.Status + " " + string(must[[]byte](t)(io.ReadAll(response.Body)))
}

func expect(t *testing.T, part, printed string) {
	t.Helper()
	if !strings.Contains(printed, part) {
		t.Errorf("printed %q, want %q in it", printed, part)
	}
}

// start runs a command and returns the lines of one of its outputs as they are written.
func start(t *testing.T, pipe func() (io.ReadCloser, error), run func() error) <-chan string {
	t.Helper()
	output, err := pipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := run(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 1000)
	go func() {
		defer close(lines)
		scanner := bufio.NewScanner(output)
		for scanner.Scan() {
			lines <- scanner.Text()
		}
	}()
	return lines
}

// awaitLine reads lines until one contains part.
func awaitLine(t *testing.T, lines <-chan string, part string) {
	t.Helper()
	limit := time.After(time.Minute)
	var seen []string
	for {
		select {
		case line, open := <-lines:
			if !open {
				t.Fatalf("output ended without %q: %q", part, seen)
			}
			if strings.Contains(line, part) {
				return
			}
			seen = append(seen, line)
		case <-limit:
			t.Fatalf("no %q in time: %q", part, seen)
		}
	}
}

func drain(lines <-chan string) {
	for range lines {
	}
}
