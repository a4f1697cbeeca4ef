package cluster

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

const (
	hostileNamespace = "hostile"
	hostileUser      = "mallory"
	// allowedUser is evaluated by the same policies, which let it pass.
	allowedUser = "trudy"
	// powerlessUser is denied as the hostile one, and has no rights.
	powerlessUser = "peggy"
)

// hostilePolicies deny whatever the hostile user writes, wherever a server asks policies, and print what they see.
func hostilePolicies() (policy, binding string) {
	shown := func(of string) string {
		return of + ` == null ? dyn('none') : (request.operation == 'CONNECT' ? dyn(` + of + `) : dyn([` + of + `.?kind.orValue('-'), ` + of + `.?metadata.?name.orValue('-'), ` +
			of + `.?metadata.?labels.orValue({}), ` + of + `.?metadata.?annotations.orValue({}), ` + of + `.?spec.orValue({}), ` + of + `.?data.orValue({}), ` + of + `.?status.orValue({})]))`
	}
	message := `'%s %s.%s.%s %s.%s.%s/%s from %s.%s/%s name %s in %s of %s, dry %s, by %s %s, options %s, object %s, old %s'.format([request.operation, request.kind.group, request.kind.version, request.kind.kind, ` +
		`request.resource.group, request.resource.version, request.resource.resource, request.?subResource.orValue('-'), request.?requestResource.?version.orValue('-'), request.?requestResource.?resource.orValue('-'), request.?requestSubResource.orValue('-'), ` +
		`request.?name.orValue('-'), request.?namespace.orValue('-'), namespaceObject == null ? 'none' : namespaceObject.metadata.name, request.?dryRun.orValue(false), ` +
		`request.userInfo.username, request.userInfo.groups, request.?options.orValue({}), variables.new, variables.old])`
	policy = `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"hostile"},"spec":{"failurePolicy":"Fail",` +
		`"matchConstraints":{"resourceRules":[{"apiGroups":["*"],"apiVersions":["*"],"operations":["*"],"resources":["*/*"]}]},` +
		`"matchConditions":[{"name":"mallory","expression":"request.userInfo.username in ['` + hostileUser + `', '` + allowedUser + `', '` + powerlessUser + `']"}],` +
		`"variables":[{"name":"new","expression":` + quoted(shown("object")) + `},{"name":"old","expression":` + quoted(shown("oldObject")) + `}],` +
		`"validations":[{"expression":"request.userInfo.username == '` + allowedUser + `'","message":"denied","messageExpression":` + quoted(message) + `}]}}`
	binding = `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":"hostile"},"spec":{"policyName":"hostile","validationActions":["Deny"]}}`
	return policy, binding
}

// hostileObjects are there before the hostile requests, by the paths of their collections.
func hostileObjects() [][2]string {
	at := func(path string) string { return "/api/v1/namespaces/" + hostileNamespace + "/" + path }
	of := func(group, path string) string {
		return "/apis/" + group + "/namespaces/" + hostileNamespace + "/" + path
	}
	pod := `"spec":{"containers":[{"name":"c","image":"i"}]}`
	template := `"selector":{"matchLabels":{"a":"d"}},"template":{"metadata":{"labels":{"a":"d"}},` + pod + `}`
	return [][2]string{
		{"/api/v1/namespaces", `{"metadata":{"name":"` + hostileNamespace + `"}}`},
		{at("configmaps"), `{"metadata":{"name":"a","labels":{"app":"a"}},"data":{"a":"1"}}`},
		{at("configmaps"), `{"metadata":{"name":"b","labels":{"app":"b"}},"data":{"a":"1"}}`},
		{at("secrets"), `{"metadata":{"name":"a"},"data":{"a":"MQ=="}}`},
		{at("serviceaccounts"), `{"metadata":{"name":"a"}}`},
		{at("pods"), `{"metadata":{"name":"a","labels":{"app":"a"}},` + pod + `}`},
		{at("services"), `{"metadata":{"name":"a"},"spec":{"ports":[{"port":80}]}}`},
		{at("persistentvolumeclaims"), `{"metadata":{"name":"a"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}`},
		{at("resourcequotas"), `{"metadata":{"name":"a"},"spec":{"hard":{"count/nothings":"1"}}}`},
		{at("replicationcontrollers"), `{"metadata":{"name":"a"},"spec":{"replicas":1,"selector":{"a":"d"},"template":{"metadata":{"labels":{"a":"d"}},` + pod + `}}}`},
		{of("apps/v1", "deployments"), `{"metadata":{"name":"a"},"spec":{"replicas":1,` + template + `}}`},
		{of("apps/v1", "replicasets"), `{"metadata":{"name":"a"},"spec":{"replicas":1,` + template + `}}`},
		{of("apps/v1", "statefulsets"), `{"metadata":{"name":"a"},"spec":{"serviceName":"a","replicas":1,` + template + `}}`},
		{of("batch/v1", "jobs"), `{"metadata":{"name":"a"},"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}`},
		{of("autoscaling/v2", "horizontalpodautoscalers"), `{"metadata":{"name":"a"},"spec":{"maxReplicas":3,"scaleTargetRef":{"kind":"Deployment","name":"a","apiVersion":"apps/v1"}}}`},
		{of("policy/v1", "poddisruptionbudgets"), `{"metadata":{"name":"a"},"spec":{"minAvailable":1,"selector":{"matchLabels":{"a":"d"}}}}`},
		{of("networking.k8s.io/v1", "ingresses"), `{"metadata":{"name":"a"},"spec":{"defaultBackend":{"service":{"name":"a","port":{"number":80}}}}}`},
		{of("judged.example.com/v1", "things"), `{"apiVersion":"judged.example.com/v1","kind":"Thing","metadata":{"name":"a"},"spec":{"size":2}}`},
		{"/api/v1/nodes", `{"metadata":{"name":"hostile-a"}}`},
		{"/api/v1/persistentvolumes", `{"metadata":{"name":"hostile-a"},"spec":{"capacity":{"storage":"1Gi"},"accessModes":["ReadWriteOnce"],"hostPath":{"path":"/x"}}}`},
		{"/apis/judged.example.com/v1/ceilings", `{"apiVersion":"judged.example.com/v1","kind":"Ceiling","metadata":{"name":"hostile-a"},"spec":{"most":2}}`},
		{"/apis/rbac.authorization.k8s.io/v1/clusterroles", `{"metadata":{"name":"hostile-a"},"rules":[]}`},
		{"/apis/scheduling.k8s.io/v1/priorityclasses", `{"metadata":{"name":"hostile-a"},"value":3}`},
		{"/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations", `{"metadata":{"name":"hostile-a"},"spec":{"type":"Limited","limited":{"nominalConcurrencyShares":1,"limitResponse":{"type":"Reject"}}}}`},
	}
}

// A hostileRow is a request. Its target and body may have "@ns" for the namespace.
type hostileRow struct {
	method, target string
	headers        []string // lines; Host, and Content-Length unless there is a Transfer-Encoding, are added
	body           string
	version        string // of HTTP; 1.1 if empty
}

func (r hostileRow) String() string {
	body := r.body
	if len(body) > 160 {
		body = body[:160] + "…"
	}
	return fmt.Sprintf("%s %s HTTP/%s %q %q", r.method, r.target, r.version, r.headers, body)
}

func row(method, target, media, body string) hostileRow {
	made := hostileRow{method: method, target: target, body: body}
	if media != "" {
		made.headers = []string{"Content-Type: " + media}
	}
	return made
}

// with adds header lines.
func (r hostileRow) with(lines ...string) hostileRow {
	r.headers = append(append([]string{}, r.headers...), lines...)
	return r
}

// wire is the request as it is sent to a host.
func (r hostileRow) wire(host string) []byte {
	expand := func(text string) string {
		return strings.NewReplacer("@ns", "/api/v1/namespaces/"+hostileNamespace, "@host", host).Replace(text)
	}
	version, body := r.version, expand(r.body)
	if version == "" {
		version = "1.1"
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "%s %s HTTP/%s\r\n", r.method, expand(r.target), version)
	all := strings.ToLower(strings.Join(r.headers, "\n"))
	if !strings.Contains("\n"+all, "\nhost:") {
		fmt.Fprintf(&text, "Host: %s\r\n", host)
	}
	if !strings.Contains(all, "user-agent:") {
		text.WriteString("User-Agent: hostile\r\n")
	}
	for _, line := range r.headers {
		fmt.Fprintf(&text, "%s\r\n", expand(line))
	}
	if !strings.Contains(all, "transfer-encoding:") && !strings.Contains(all, "content-length:") && (body != "" || r.method == "POST" || r.method == "PUT" || r.method == "PATCH") {
		fmt.Fprintf(&text, "Content-Length: %d\r\n", len(body))
	}
	text.WriteString("\r\n")
	text.WriteString(body)
	return text.Bytes()
}

// A hostileAnswer is what came back. Without an HTTP response, the code is 0.
type hostileAnswer struct {
	code            int
	reason, message string
	warnings        []string // of policies
}

// hostilePatience is how long a response may take: one that both sides withhold says nothing. Where only one does, both are asked again and
// given more time, so that no slow machine decides.
var hostilePatience = []time.Duration{10 * time.Second, 2 * time.Minute}

// sendsHostile sends a row to one side.
type sendsHostile func(ctx context.Context, at Endpoint, config *tls.Config, row hostileRow, patience time.Duration) (hostileAnswer, error)

// askBoth sends a row to two sides.
func askBoth(ctx context.Context, sides []Endpoint, config *tls.Config, row hostileRow, send sendsHostile) (answers [2]hostileAnswer, err error) {
	for _, patience := range hostilePatience {
		for side, at := range sides {
			if answers[side], err = send(ctx, at, config, row, patience); err != nil {
				return answers, fmt.Errorf("%s: %w", row, err)
			}
		}
		if (answers[0].code == 0) == (answers[1].code == 0) {
			break
		}
	}
	return answers, nil
}

var hostileVarying = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ|10\.\d+\.\d+\.\d+|\bg[bcdfghjklmnpqrstvwxz2456789]{5}\b`)

// dialHostile opens a connection of a user that speaks this protocol for as long as patience lasts, and names the host.
func dialHostile(ctx context.Context, at Endpoint, config *tls.Config, protocol string, patience time.Duration) (stream net.Conn, host string, err error) {
	base, err := url.Parse(at.URL)
	if err != nil {
		return nil, "", err
	}
	config = config.Clone()
	config.NextProtos = []string{protocol}
	if stream, err = (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", base.Host); err != nil {
		return nil, "", err
	}
	return stream, base.Host, stream.SetDeadline(time.Now().Add(patience))
}

// sendHostile sends the bytes of a row as a user, on a connection of its own.
func sendHostile(ctx context.Context, at Endpoint, config *tls.Config, row hostileRow, patience time.Duration) (answer hostileAnswer, err error) {
	stream, host, err := dialHostile(ctx, at, config, "http/1.1", patience)
	if err != nil {
		return answer, err
	}
	defer stream.Close()
	// Whoever refuses a request may close the connection before all is written.
	_, _ = stream.Write(row.wire(host))
	method := row.method
	if method == "CONNECT" {
		method = "GET" // its response would have no body
	}
	reader := bufio.NewReader(stream)
	for {
		response, err := http.ReadResponse(reader, &http.Request{Method: strings.ToUpper(method)})
		if err != nil {
			return answer, nil //nolint:nilerr // a closed connection is an answer
		}
		if response.StatusCode == http.StatusContinue {
			continue
		}
		answer = hostileAnswer{code: response.StatusCode, reason: response.Header.Get("X-Fairgate-Reason"), warnings: policyWarnings(response.Header)}
		if answer.code == http.StatusSwitchingProtocols {
			return answer, nil
		}
		data, _ := io.ReadAll(io.LimitReader(response.Body, 1<<20))
		var status struct{ Message string }
		if yaml.Unmarshal(data, &status) != nil || status.Message == "" { // of YAML, only the quotes are others
			status.Message = string(data[:min(len(data), 300)])
		}
		answer.message = hostileVarying.ReplaceAllString(status.Message, "@")
		return answer, nil
	}
}
