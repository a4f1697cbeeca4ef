package cluster

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
)

var (
	exactSeed   = flag.Uint64("exact-seed", 1, "of the expressions that a gateway and a server evaluate")
	exactCount  = flag.Int("exact-expressions", 500, "number of drawn expressions about new objects that a gateway and a server evaluate")
	exactWrites = flag.Int("exact-writes", 300, "number of drawn expressions about changes and deletions that a gateway and a server evaluate")
)

//go:embed exactverdicts/expressions.json
var exactExpressionsFile []byte

const exactNamespace = "exact"

// An exactExpression is the only one of a policy about an object.
type exactExpression struct {
	Kind       string `json:"kind"`
	Expression string `json:"expression"`
	// SetByServer are the fields that only a server can set, of which a gateway says that the expression may read them.
	SetByServer []string `json:"setByServer"`

	at exactObject
	// message prints what the expression is about, if that can be printed.
	message  string
	verdicts [2]string // of the server and of the gateway
}

// An exactObject is what is sent, with the number of the expression in place of %d.
type exactObject struct {
	group, version, resource string
	path, document           string
	// write says how, unless it is posted.
	write *exactWrite
}

// numbered is a text with the number of the expression.
func numbered(text string, number int) string {
	of := strconv.Itoa(number)
	return strings.NewReplacer("@ns", exactNamespace, "%[1]d", of, "%d", of).Replace(text)
}

func posted(group, version, resource, path, document string) exactObject {
	return exactObject{group: group, version: version, resource: resource, path: path, document: document}
}

// listedObjects leave out all that a server sets.
var listedObjects = map[string]exactObject{
	"ConfigMap": posted("", "v1", "configmaps", in("configmaps"), `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"e-","labels":{"exact":"e%d"}}}`),
	"Pod": posted("", "v1", "pods", in("pods"), `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"e%[1]d","labels":{"exact":"e%[1]d"}},`+
		`"spec":{"containers":[{"name":"c","image":"example.com/c"}]}}`),
	"Deployment": posted("apps", "v1", "deployments", in("apps/v1:deployments"), `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"e%[1]d","labels":{"exact":"e%[1]d"}},"spec":{`+
		`"selector":{"matchLabels":{"app":"e"}},"template":{"metadata":{"labels":{"app":"e"}},"spec":{"containers":[{"name":"c","image":"example.com/c","ports":[{"containerPort":80}]}]}}}}`),
	"Service": posted("", "v1", "services", in("services"), `{"apiVersion":"v1","kind":"Service","metadata":{"name":"e%[1]d","labels":{"exact":"e%[1]d"}},"spec":{"ports":[{"port":80}]}}`),
	"CronJob": posted("batch", "v1", "cronjobs", in("batch/v1:cronjobs"), `{"apiVersion":"batch/v1","kind":"CronJob","metadata":{"name":"e%[1]d","labels":{"exact":"e%[1]d"}},"spec":{`+
		`"schedule":"0 0 * * *","jobTemplate":{"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"example.com/c"}]}}}}}}`),
}

// policy and binding are those of the expression with this number.
func (e exactExpression) policy(number int) (policy, binding string) {
	selector, conditions, operation, resource := `"objectSelector":{"matchLabels":{"exact":"e%[1]d"}},`, ``, "CREATE", e.at.resource
	if write := e.at.write; write != nil {
		selector, operation, resource = ``, write.operation, write.resource(resource)
		conditions = `"matchConditions":[{"name":"mine","expression":` + quoted(numbered(write.mine, number)) + `}],`
	}
	policy = fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"e%[1]d"},"spec":{"failurePolicy":"Fail",%[8]s"matchConstraints":{`+
		selector+`"resourceRules":[{"apiGroups":[%[2]q],"apiVersions":[%[3]q],"operations":[%[7]q],"resources":[%[4]q]}]},"validations":[{"expression":%[5]s,"messageExpression":%[6]s}]}}`,
		number, e.at.group, e.at.version, resource, quoted(e.Expression), quoted(e.message), operation, conditions)
	binding = fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":"e%[1]d"},"spec":{"policyName":"e%[1]d","validationActions":["Deny"]}}`, number)
	return policy, binding
}

// An exactBed has two servers with all plugins that kube-apiserver has by default, one of them without the one that evaluates by policies, and a
// gateway in front of that.
type exactBed struct {
	server, plain, gateway documentSide
	// stored are the objects that are written, by the side that has them and their paths.
	stored map[string]map[string]any
}

func startExactBed(t *testing.T, ctx context.Context) exactBed {
	const user = "exact"
	start := func(name string, flags ...string) *Apiserver {
		flags = append([]string{uidFlag, "--enable-priority-and-fairness=false"}, flags...)
		return must[*Apiserver](t)(shared.StartApiserver(name, "", flags...))
	}
	enforcing, plain := start("exact-server"), start("exact-plain", "--disable-admission-plugins=ValidatingAdmissionPolicy")
	everything := []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}
	succeeds(t, GrantRules(ctx, plain.Admin, user, user+"-everything", everything))
	bed := exactBed{server: newDocumentSide(t, "server", enforcing.Endpoint), plain: newDocumentSide(t, "plain", plain.Endpoint)}
	for _, side := range []documentSide{bed.server, bed.plain} {
		for _, namespace := range []string{exactNamespace, writesNamespace} {
			succeeds(t, side.must(ctx, "POST", "/api/v1/namespaces", `{"metadata":{"name":"`+namespace+`"}}`, 201))
			// No controller makes it.
			succeeds(t, side.must(ctx, "POST", "/api/v1/namespaces/"+namespace+"/serviceaccounts", `{"metadata":{"name":"default"}}`, 201))
		}
	}
	succeeds(t, shared.prepareForAdmission(enforcing), shared.prepareForAdmission(plain))
	gateway := newFairgate(t, FairgateOptions{Mode: "impersonate", User: user, Upstream: plain.URL, Off: true, Admission: "enforce", Fidelity: "completed"})
	succeeds(t, gateway.Start(), untilPoliciesAreKnown(gateway))
	bed.gateway = bed.plain.through(t, "gateway", gateway.Endpoint)
	return bed
}

// evaluate has the server and the gateway evaluate an object by each expression.
func (b exactBed) evaluate(ctx context.Context, expressions []exactExpression) error {
	// The last one shows that all are in force.
	last := exactExpression{Expression: "false", at: listedObjects["ConfigMap"]}
	for _, side := range []documentSide{b.server, b.plain} {
		for number, one := range append(slices.Clone(expressions), last) {
			policy, binding := one.policy(number)
			for _, sent := range [][2]string{{policiesPath, policy}, {bindingsPath, binding}} {
				if err := side.must(ctx, "POST", sent[0], sent[1], 201); err != nil {
					return fmt.Errorf("%s: %w", one.Expression, err)
				}
			}
		}
	}
	for index, side := range []documentSide{b.server, b.gateway} {
		err := poll(changeLimit, 50*time.Millisecond, func() (bool, error) {
			verdict, err := b.verdictOf(ctx, side, last, len(expressions))
			return verdict != "allowed", err
		})
		if err != nil {
			return fmt.Errorf("%s: the policies: %w", side.name, err)
		}
		for number := range expressions {
			verdict, err := b.verdictOf(ctx, side, expressions[number], number)
			if err != nil {
				return err
			}
			expressions[number].verdicts[index] = verdict
		}
	}
	return nil
}

// generatedEnd is the end of a name that a server generates.
var generatedEnd = regexp.MustCompile(`"e-[a-z0-9]{5}"`)

// verdictOf is what a side says about the object of an expression: `allowed`, or the message.
func (b exactBed) verdictOf(ctx context.Context, s documentSide, of exactExpression, number int) (string, error) {
	method, media, body := "POST", jsonType, numbered(of.at.document, number)
	if write := of.at.write; write != nil {
		method, media, body = write.method, write.media, b.body(s, of.at, number)
	}
	answer, err := s.send(ctx, method, numbered(of.at.path, number), media, []byte(body))
	if err != nil {
		return "", err
	}
	if answer.isAccepted() {
		return "allowed", nil
	}
	message := generatedEnd.ReplaceAllString(answer.message, `"e-GENERATED"`)
	if of.at.write == nil && !strings.Contains(message, "ValidatingAdmissionPolicy") {
		return "", fmt.Errorf("%s: %s: %d %s", s.name, of.Expression, answer.code, answer.message)
	}
	return fmt.Sprintf("%d %s", answer.code, message), nil
}

// namedByCheck are the numbers of the expressions of which `fairgate check` says that they read what only the server can set, with what it says.
func namedByCheck(ctx context.Context, expressions []exactExpression) (map[int]string, error) {
	program, err := FairgateProgram()
	if err != nil {
		return nil, err
	}
	var documents bytes.Buffer
	for number, one := range expressions {
		policy, binding := one.policy(number)
		fmt.Fprintf(&documents, "---\n%s\n---\n%s\n", policy, binding)
	}
	check := exec.CommandContext(ctx, program, "check", "--admission", "-", "--output", "json")
	check.Stdin = &documents
	output, err := check.Output()
	if err != nil {
		return nil, fmt.Errorf("fairgate check: %w: %.2000s", err, output)
	}
	var report struct {
		Findings []struct{ Name, Message string }
	}
	if err := json.Unmarshal(output, &report); err != nil {
		return nil, err
	}
	found := map[int]string{}
	for _, finding := range report.Findings {
		if strings.Contains(finding.Message, "what only the server can set") {
			var number int
			if _, err := fmt.Sscanf(finding.Name, "e%d", &number); err != nil {
				return nil, err
			}
			found[number] = finding.Message
		}
	}
	return found, nil
}

// The gateway evaluates without dry runs what a server evaluates, in the same words, but for expressions that read what only a server can set. Those
// are named by `fairgate check`, and no others.
func TestVerdictsAreThoseOfTheServerUnlessCheckNamesTheExpression(t *testing.T) {
	aboutEvaluatingFairgate(t)
	oneAtATime(t)
	ctx := inTime(t, time.Duration(10+(*exactCount+*exactWrites)/100)*time.Minute)
	bed := startExactBed(t, ctx)
	var expressions []exactExpression
	succeeds(t, json.Unmarshal(exactExpressionsFile, &expressions))
	for i := range expressions {
		expressions[i].at = listedObjects[expressions[i].Kind]
	}
	listed := len(expressions)
	drawn, err := bed.draw(ctx, rand.New(rand.NewPCG(*exactSeed, *exactSeed)), *exactCount)
	succeeds(t, err)
	writes, err := bed.drawWrites(ctx, rand.New(rand.NewPCG(*exactSeed, *exactSeed+1)), *exactWrites)
	succeeds(t, err)
	expressions = slices.Concat(expressions, drawn, writes)
	names := must[map[int]string](t)(namedByCheck(ctx, expressions))
	for number, one := range expressions[:listed] {
		for _, field := range one.SetByServer {
			if !strings.Contains(names[number], field+" of ") {
				t.Errorf("check says of %s: %q", one.Expression, names[number])
			}
		}
		if _, found := names[number]; found != (one.SetByServer != nil) {
			t.Errorf("check says of %s: %q", one.Expression, names[number])
		}
	}
	succeeds(t, bed.evaluate(ctx, expressions))
	counts := map[string]int{}
	for number, one := range expressions {
		_, isNamed := names[number]
		isAlike := one.verdicts[0] == one.verdicts[1]
		switch {
		case isAlike && one.verdicts[0] == "allowed":
			counts["allowed"]++
		case isAlike:
			counts["denied"]++
		case isNamed:
			counts["differing"]++
		default:
			counts["wrong"]++
			if counts["wrong"] <= 20 {
				t.Errorf("%s %s:\nserver:  %s\ngateway: %s", one.Kind, one.Expression, one.verdicts[0], one.verdicts[1])
				if write := one.at.write; write != nil {
					t.Logf("%s %s %s", write.method, numbered(one.at.path, number), bed.body(bed.gateway, one.at, number))
				}
			}
		}
		if isNamed && isAlike {
			counts["named"]++
		}
	}
	fmt.Printf("EXACT VERDICTS {\"seed\":%d,\"expressions\":%d,\"allowed by both\":%d,\"denied by both\":%d,\"named and alike\":%d,\"named and differing\":%d,\"wrong\":%d}\n",
		*exactSeed, len(expressions), counts["allowed"], counts["denied"], counts["named"], counts["differing"], counts["wrong"])
	if counts["allowed"] < len(expressions)/5 || counts["denied"] < len(expressions)/5 {
		t.Errorf("of %d expressions, too few say something", len(expressions))
	}
}
