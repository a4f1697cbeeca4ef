package cluster

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// loadtestVariable names the program of the load tests.
const loadtestVariable = "FAIRGATE_LOADTEST_BIN"

// everyKind writes each kind of object that load tests know.
const everyKind = "loadtest/every-kind.yaml"

// Load tests against a kube-apiserver: it accepts whatever they write, from users with tokens of their own and from users
// who are impersonated, once it has what `fairgate-loadtest objects` prints. So the permissions in there suffice, too.
func TestLoadTestsWriteWhatAKubeApiserverAccepts(t *testing.T) {
	program := os.Getenv(loadtestVariable)
	if program == "" {
		t.Fatalf("%s must name fairgate-loadtest", loadtestVariable)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	tokens := output(t, program, "tokens", everyKind)
	static := must[[]byte](t)(os.ReadFile(shared.TokenFile))
	users := filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(users, append(static, tokens...), 0o600); err != nil {
		t.Fatal(err)
	}
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(StaticToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	server := must[*Apiserver](t)(shared.StartApiserver("loadtest", "", "--token-auth-file="+users))
	defer server.Kill()
	admin := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "loadtest-driver"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: StaticUser}},
	}
	must[*rbacv1.ClusterRoleBinding](t)(server.Admin.RbacV1().ClusterRoleBindings().Create(ctx, admin, metav1.CreateOptions{}))
	for _, namespace := range []string{"loadtest-1", "loadtest-2", "default"} {
		// Without a controller manager nobody makes these, and pods need them.
		if namespace != "default" {
			made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
			must[*corev1.Namespace](t)(server.Admin.CoreV1().Namespaces().Create(ctx, made, metav1.CreateOptions{}))
		}
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
		must[*corev1.ServiceAccount](t)(server.Admin.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{}))
	}
	objects := output(t, program, "objects", "--lists", everyKind)
	must[string](t)(shared.RunKubectl(ctx, server.Endpoint, shared.admin, string(objects), "apply", "--server-side", "-f", "-"))

	for name, credentials := range map[string][]string{
		"tokens":        {"--tokens", users},
		"impersonation": {"--token", token, "--impersonate"},
	} {
		t.Run(name, func(t *testing.T) {
			arguments := append([]string{"run", everyKind, "--target", server.URL, "--ca", shared.PKI.CA.Cert, "--output", "json"}, credentials...)
			if name == "impersonation" {
				// Of all tokens only this one allows to read metrics.
				arguments = append(arguments, "--metrics", server.URL)
			}
			// Each of some 70 kinds of requests should have been sent. A busy machine needs several runs for that, so many that
			// only the time limit of this test ends them.
			const enough = 500
			writes := 0
			for writes < enough && ctx.Err() == nil {
				var report struct {
					Passed       bool
					Expectations json.RawMessage
					Variants     []struct {
						Clients []struct {
							Name string
							OK   int
						}
						Levels []json.RawMessage
					}
				}
				if err := json.Unmarshal(output(t, program, arguments...), &report); err != nil {
					t.Fatal(err)
				}
				if !report.Passed {
					t.Errorf("%s", report.Expectations)
				}
				writes += report.Variants[0].Clients[0].OK
				if name == "impersonation" && len(report.Variants[0].Levels) == 0 {
					t.Error("no levels were read from the metrics of the server")
				}
			}
			if writes < enough {
				t.Errorf("only %d writes until the time limit of this test", writes)
			}
		})
	}
	shippedScenarios(ctx, t, program, server, token)
	largest := 0
	found := must[*corev1.ConfigMapList](t)(server.Admin.CoreV1().ConfigMaps("loadtest-1").List(ctx, metav1.ListOptions{}))
	for _, object := range found.Items {
		largest = max(largest, len(object.Data["filling"]))
	}
	if largest < 900<<10 {
		t.Errorf("the largest of %d ConfigMaps has %d bytes", len(found.Items), largest)
	}
	kept := must[*corev1.Secret](t)(server.Admin.CoreV1().Secrets("loadtest-2").Get(ctx, "kept", metav1.GetOptions{}))
	if kept.CreationTimestamp.IsZero() || len(kept.ManagedFields) < 2 {
		t.Errorf("the secret was not written after its creation: %v", kept.ManagedFields)
	}
}

// shippedScenarios sees that no request of shipped scenarios fails at an apiserver that has what they need. What they
// expect is left out, since they are cut short and the machine is shared.
func shippedScenarios(ctx context.Context, t *testing.T, program string, server *Apiserver, token string) {
	for _, name := range []string{"elephant-and-mice", "controller-restart", "tenants-by-namespace", "wide-and-narrow", "borrowing-burst"} {
		t.Run(name, func(t *testing.T) {
			scenario := filepath.Join("../../config/scenarios", name+".yaml")
			objects := output(t, program, "objects", scenario)
			must[string](t)(shared.RunKubectl(ctx, server.Endpoint, shared.admin, string(objects), "apply", "--server-side", "-f", "-"))
			printed := output(t, program, "run", scenario, "--target", server.URL, "--ca", shared.PKI.CA.Cert,
				"--token", token, "--impersonate", "--duration", "3s", "--output", "json")
			var report struct {
				Variants []struct {
					Clients []struct {
						Name, LastError string
						OK, Errors      int
					}
				}
			}
			if err := json.Unmarshal(printed, &report); err != nil {
				t.Fatal(err)
			}
			for _, client := range report.Variants[0].Clients {
				if client.OK == 0 || client.Errors > 0 {
					t.Errorf("%s: %d succeeded, %d errors: %s", client.Name, client.OK, client.Errors, client.LastError)
				}
			}
		})
	}
}

// output is what a program prints, also if it says that expectations fail.
func output(t *testing.T, program string, arguments ...string) []byte {
	t.Helper()
	cmd := exec.Command(program, arguments...)
	var errors strings.Builder
	cmd.Stderr = &errors
	printed, err := cmd.Output()
	if err != nil && cmd.ProcessState.ExitCode() != 1 {
		t.Fatalf("%s: %v\n%s\n%.3000s", strings.Join(arguments, " "), err, errors.String(), printed)
	}
	return printed
}
