package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A command is what a command of fairgate printed.
type command struct {
	code     int
	out, err string
}

// An inForce is what `--output json` says about the policy that was read.
type inForce struct {
	FlowSchema string
	Policy     struct {
		Kind, Source, Revision string
		FlowSchemas            int
	}
}

// runCommand runs fairgate with these arguments. Nothing secret may be printed.
func runCommand(t *testing.T, secrets []string, arguments ...string) command {
	t.Helper()
	program := must[string](t)(FairgateProgram())
	var out, errors_ strings.Builder
	running := exec.CommandContext(inTime(t, 2*time.Minute), program, arguments...)
	running.Stdout, running.Stderr = &out, &errors_
	running.Env = []string{"HOME=" + t.TempDir(), "PATH=/usr/bin:/bin"}
	err := running.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	ran := command{code: running.ProcessState.ExitCode(), out: out.String(), err: errors_.String()}
	for _, secret := range secrets {
		if strings.Contains(ran.out+ran.err, secret) {
			t.Fatalf("fairgate %s prints a secret", strings.Join(arguments, " "))
		}
	}
	return ran
}

// read is the result of a command that succeeds and prints JSON.
func (c command) read(t *testing.T) (found inForce) {
	t.Helper()
	if c.code != 0 {
		t.Fatalf("exit code %d: %s", c.code, c.err)
	}
	if err := json.Unmarshal([]byte(c.out), &found); err != nil {
		t.Fatalf("%v: %s", err, c.out)
	}
	return found
}

// refuses says that a command failed, answered nothing, and named all of these in its error.
func (c command) refuses(t *testing.T, parts ...string) {
	t.Helper()
	if c.code != 1 || c.out != "" {
		t.Errorf("exit code %d, and %q", c.code, c.out)
	}
	for _, part := range parts {
		if !strings.Contains(c.err, part) {
			t.Errorf("%q is not in %q", part, c.err)
		}
	}
}

// secretsOf are the texts of credentials that nobody may see: a token, and the lines of a private key.
func secretsOf(t *testing.T, users ...User) (secrets []string) {
	t.Helper()
	for _, user := range users {
		if user.Token != "" {
			secrets = append(secrets, user.Token)
		}
		if user.Pair.Key != "" {
			text := must[[]byte](t)(os.ReadFile(user.Pair.Key))
			secrets = append(secrets, strings.Split(string(text), "\n")[1])
		}
	}
	return secrets
}

// `fairgate explain` and `check` read the policy in force of a real server by a kubeconfig, and that of a gateway by its
// ports. They say which policy it is and where they asked; without the rights they say which these are; and they print no
// credential.
func TestTheCommandsSayWhichPolicyTheyRead(t *testing.T) {
	aboutFairgate(t)
	ctx := inTime(t, 20*time.Minute)
	const batch, debug = "batch-of-commands", "/debug/api_priority_and_fairness/dump_policy"
	client := shared.Admin.FlowcontrolV1()
	schema := &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: "read-by-commands"},
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "workload-low"},
			MatchingPrecedence:         50,
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects: []flowcontrolv1.Subject{{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: batch}}},
				ResourceRules: []flowcontrolv1.ResourcePolicyRule{{
					Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}, ClusterScope: true, Namespaces: []string{"*"},
				}},
			}},
		},
	}
	must[*flowcontrolv1.FlowSchema](t)(client.FlowSchemas().Create(ctx, schema, metav1.CreateOptions{}))
	t.Cleanup(func() { gone(t, client.FlowSchemas().Delete(ctx, schema.Name, metav1.DeleteOptions{})) })

	reader := must[User](t)(shared.NewUser("reader-of-policies"))
	succeeds(t, GrantRules(ctx, shared.Admin, reader.Name, "reader-of-policies", []rbacv1.PolicyRule{{
		Verbs: []string{"list"}, APIGroups: []string{groupName}, Resources: []string{"flowschemas", "prioritylevelconfigurations"},
	}}))
	account := must[User](t)(shared.NewServiceAccount(ctx, "commands", "account"))
	stranger := User{Name: "stranger", Token: "of-nobody-at-all"}
	secrets := secretsOf(t, reader, account, stranger, shared.admin)
	run := func(arguments ...string) command { t.Helper(); return runCommand(t, secrets, arguments...) }
	explain := func(from ...string) command {
		t.Helper()
		return run(append(append([]string{"explain", "--output", "json"}, from...), "--as", batch, "GET", "/api/v1/namespaces/a/pods")...)
	}
	kubeconfig := func(user User) string {
		t.Helper()
		return must[string](t)(shared.Kubeconfig(shared.Direct, user))
	}

	t.Run("kubeconfig", func(t *testing.T) {
		found := explain("--kubeconfig", kubeconfig(reader)).read(t)
		listed := must[*flowcontrolv1.FlowSchemaList](t)(client.FlowSchemas().List(ctx, metav1.ListOptions{}))
		if found.FlowSchema != schema.Name || found.Policy.Kind != "cluster" || found.Policy.Revision == "" ||
			found.Policy.Source != "the API server "+shared.Direct.URL || found.Policy.FlowSchemas != len(listed.Items) {
			t.Errorf("explain says %+v, and the server has %d FlowSchemas", found, len(listed.Items))
		}
		checked := run("check", "--kubeconfig", kubeconfig(reader))
		if begin := fmt.Sprintf("Policy: the API server %s: %d FlowSchemas", shared.Direct.URL, len(listed.Items)); checked.code != 0 || !strings.HasPrefix(checked.out, begin) {
			t.Errorf("check says %+v, want %q", checked, begin)
		}
		asked := "GET " + shared.Direct.URL + "/apis/" + groupName
		rights := "the rights to list flowschemas and prioritylevelconfigurations"
		explain("--kubeconfig", kubeconfig(account)).refuses(t, asked, "403: ", `User "`+account.Name+`" cannot list resource`, rights)
		explain("--kubeconfig", kubeconfig(stranger)).refuses(t, asked, "401: Unauthorized", rights)
		run("check", "--kubeconfig", kubeconfig(account)).refuses(t, asked, "403: ", rights)
	})

	t.Run("server", func(t *testing.T) {
		self := "read-by-commands"
		succeeds(t, Grant(ctx, shared.Admin, self, SidecarRole, SecureAdminRole))
		gateway := newFairgate(t, FairgateOptions{Mode: "requestHeader", Source: "sidecar", User: self, Secure: true})
		succeeds(t, gateway.Start())
		upstream := strings.TrimPrefix(shared.Direct.URL, "https://")
		read := func(url string, more ...string) {
			t.Helper()
			var found inForce
			// Its watches may have to open yet.
			succeeds(t, poll(readyLimit, 100*time.Millisecond, func() (bool, error) {
				found = explain(append([]string{"--server", url}, more...)...).read(t)
				return found.FlowSchema == schema.Name, nil
			}))
			if source := found.Policy.Source; found.Policy.Kind != "gateway" || !strings.Contains(source, url) ||
				!strings.HasSuffix(source, "from the API of the upstream "+upstream) {
				t.Errorf("explain says %+v", found)
			}
		}
		read(gateway.admin)
		token := filepath.Join(t.TempDir(), "token")
		succeeds(t, os.WriteFile(token, []byte(account.Token+"\n"), 0o600))
		secure := []string{"--token-file", token, "--certificate-authority", shared.PKI.CA.Cert}
		rights := "the right to get this path as a non-resource URL"
		explain(append([]string{"--server", gateway.Secure.URL}, secure...)...).refuses(t, "GET "+gateway.Secure.URL+debug, "403: ", rights)
		explain(append([]string{"--server", gateway.URL}, secure...)...).refuses(t, "GET "+gateway.URL+debug, "403: ", "a member of system:masters")
		explain("--server", gateway.Secure.URL, "--token-file", token).refuses(t, gateway.Secure.URL, "--certificate-authority")
		succeeds(t, GrantRules(ctx, shared.Admin, account.Name, "commands-get-policy", []rbacv1.PolicyRule{{
			Verbs: []string{"get"}, NonResourceURLs: []string{debug},
		}}))
		// The refusal is remembered for some seconds.
		succeeds(t, poll(readyLimit, time.Second, func() (bool, error) {
			return explain(append([]string{"--server", gateway.Secure.URL}, secure...)...).code == 0, nil
		}))
		read(gateway.Secure.URL, secure...)
		explain("--server", shared.Direct.URL, "--token-file", token, "--certificate-authority", shared.PKI.CA.Cert).refuses(t, "GET "+shared.Direct.URL+debug)
		// Its configuration alone says where the policy is, and asks nobody.
		explain("--config", gateway.configuration()).refuses(t, "mode: sidecar", upstream, "--kubeconfig", "--server", "was not asked")
	})
}
