package cluster

import (
	"encoding/base64"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// Documents of the kinds that the sessions write. Each has a name to be filled in.
const (
	configMapDocument = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%s","labels":{"s":"@all"}},"data":{"mode":"fast","size":"3"}}`
	secretDocument    = `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"%s","labels":{"s":"@all"}},"stringData":{"password":"secret"}}`
	serviceDocument   = `{"apiVersion":"v1","kind":"Service","metadata":{"name":"%s","labels":{"s":"@all"}},"spec":{"clusterIP":"None","selector":{"app":"x"},"ports":[{"name":"web","port":80}]}}`
	podDocument       = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"%s","labels":{"s":"@all"}},"spec":{"containers":[{"name":"c","image":"good/app"}]}}`
	deployDocument    = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"%s","labels":{"s":"@all"}},"spec":{"selector":{"matchLabels":{"app":"x"}},` +
		`"template":{"metadata":{"labels":{"app":"x"}},"spec":{"containers":[{"name":"c","image":"good/app"}]}}}}`
	thingDocument    = `{"apiVersion":"judged.example.com/v1","kind":"Thing","metadata":{"name":"%s","labels":{"s":"@all"}},"spec":{"colour":"red"}}`
	endpointDocument = `{"apiVersion":"v1","kind":"Endpoints","metadata":{"name":"%s","labels":{"s":"@all"}},"subsets":[]}`
	limitDocument    = `{"apiVersion":"judged.example.com/v1","kind":"Limit","metadata":{"name":"%s","labels":{"s":"@all"}},"spec":{"most":5}}`
	ceilingDocument  = `{"apiVersion":"judged.example.com/v1","kind":"Ceiling","metadata":{"name":"%s","labels":{"s":"@all"}},"spec":{"most":5}}`
)

// of is a document of that name after edits.
func of(document, name string, edits ...string) string {
	return edited(fmt.Sprintf(document, name), edits...)
}

// inProtobuf sends a document of a built-in kind in protobuf.
func (j *evaluation) inProtobuf(method, target, document string, headers ...string) {
	own := strings.ReplaceAll(document, "@", j.Name+"-")
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(own), nil, nil)
	if err != nil {
		panic(fmt.Sprintf("%v: %s", err, own)) // written here
	}
	j.protobuf(method, target, protobufOf(object.(runtime.Object)), headers...)
}

// shows is a validation that fails for objects with the label show, and says what it sees.
func shows(message string) string {
	return validation(`!('show' in (object == null ? oldObject : object).?metadata.?labels.orValue({}))`, fmt.Sprintf(`"messageExpression":%q`, message))
}

const shown = `metadata.labels.show="yes"`

// EvaluatedSessions are about what policies make of requests that a gateway forwards.
func EvaluatedSessions() []Session {
	var all []Session
	for _, entry := range []struct {
		name  string
		write func(*evaluation)
	}{
		{"verbs", evaluatedVerbs},
		{"old", evaluatedOldObjects},
		{"defaults", evaluatedDefaults},
		{"request", evaluatedRequests},
		{"pods", evaluatedPods},
		{"connect", evaluatedConnections},
		{"scale", evaluatedScales},
		{"custom", evaluatedCustomResources},
		{"versions", evaluatedVersions},
		{"autoscalers", evaluatedAutoscalers},
		{"namespaces", evaluatedNamespaces},
		{"relabelled", evaluatedRelabelling},
		{"encodings", evaluatedEncodings},
		{"bodies", evaluatedBodies},
		{"dry", evaluatedDryRuns},
		{"collections", evaluatedCollections},
		{"deletions", evaluatedDeletions},
		{"warnings", evaluatedWarnings},
		{"params", evaluatedParams},
		{"custom-params", evaluatedCustomParams},
		{"ceilings", evaluatedCeilings},
		{"users", evaluatedUsers},
		{"create-by-put", evaluatedCreationByUpdate},
		{"conditions", evaluatedConditions},
		{"selectors", evaluatedSelectors},
		{"exempt", evaluatedExemptions},
		{"tokens", evaluatedTokens},
		{"errors", evaluatedErrors},
	} {
		j := newEvaluation(entry.name)
		entry.write(j)
		all = append(all, j.Session)
	}
	return all
}

// begins makes the namespace, the policy and its binding, and waits until they are in force.
func (j *evaluation) begins(policy, binding string) {
	j.begin()
	j.post(policiesPath, policy)
	j.post(bindingsPath, binding)
	j.settle()
}

func evaluatedVerbs(j *evaluation) {
	j.begins(evaluatedPolicy("@a", mustHold(`!('deny' in object.metadata.labels)`, validation(`object.data.mode != 'slow'`, `"messageExpression":"'slow: ' + object.metadata.name + ' at ' + request.operation"`, `"reason":"Forbidden"`))), binding("@a"))
	maps, item := in("configmaps"), in("configmaps/@x")
	deny, slow := `metadata.labels.deny="yes"`, `data.mode="slow"`
	j.post(maps, of(configMapDocument, "@x", deny))
	j.post(maps, of(configMapDocument, "@x", slow))
	j.post(maps, of(configMapDocument, "@x"))
	j.post(maps, of(configMapDocument, "@x", slow)) // exists
	j.put(item, of(configMapDocument, "@x", slow))
	j.put(item, of(configMapDocument, "@x", `data.size="4"`))
	j.put(item, of(configMapDocument, "@x", `metadata.resourceVersion="{{first:@x}}"`, `data.size="5"`))
	j.put(item, of(configMapDocument, "@x", `metadata.resourceVersion="{{first:@x}}"`, slow))
	j.put(item, of(configMapDocument, "@x", `metadata.resourceVersion="{{rv:@x}}"`, slow))
	j.put(item, of(configMapDocument, "@x", `metadata.resourceVersion="{{rv:@x}}"`, `data.size="6"`))
	j.put(in("configmaps/@none"), of(configMapDocument, "@none"))
	j.put(item, of(configMapDocument, "@y"))
	for _, mode := range []string{"slow", "quick"} {
		data := `{"data":{"mode":"` + mode + `"}}`
		j.patch(item, mergePatch, data)
		j.patch(item, strategic, data)
		j.patch(item, jsonPatch, `[{"op":"replace","path":"/data/mode","value":"`+mode+`"}]`)
		j.patch(item, jsonPatch, `[{"op":"test","path":"/data/mode","value":"never"},{"op":"replace","path":"/data/mode","value":"`+mode+`"}]`)
		j.apply(item, "me", of(configMapDocument, "@x", `data.mode="`+mode+`"`))
		j.apply(item+"?force=true", "me", of(configMapDocument, "@x", `data.mode="`+mode+`"`))
		j.apply(in("configmaps/@y-"+mode), "me", of(configMapDocument, "@y-"+mode, `data.mode="`+mode+`"`))
		j.patch(in("configmaps/@none"), mergePatch, data)
	}
	j.patch(item, mergePatch, `{"metadata":{"labels":{"deny":"a"}}}`)
	j.patch(item, mergePatch, `{"metadata":{"resourceVersion":"{{first:@x}}","labels":{"deny":"a"}}}`)
	j.patch(item, mergePatch, `{"metadata":{"resourceVersion":"{{first:@x}}","labels":{"other":"a"}}}`)
	j.patch(item, mergePatch, `{"data":null}`)
	j.get(item)
	j.delete(item)
	j.delete(item)
	j.post(maps, of(configMapDocument, "@x", "-data"))
	j.end(maps)
}

func evaluatedOldObjects(j *evaluation) {
	j.begins(evaluatedPolicy("@a", rules(rule("", "configmaps", "UPDATE", "DELETE")), mustHold(
		validation(`object == null || object.data.size == oldObject.data.size`, `"messageExpression":"oldObject.data.size + ' may not become ' + object.data.size"`),
		validation(`object != null || 'deletable' in oldObject.metadata.?annotations.orValue({})`, `"message":"not deletable"`))), binding("@a"))
	item := in("configmaps/@x")
	j.post(in("configmaps"), of(configMapDocument, "@x"))
	for _, size := range []string{"3", "4"} {
		j.put(item, of(configMapDocument, "@x", `data.size="`+size+`"`))
		j.patch(item, mergePatch, `{"data":{"size":"`+size+`","more":"m"}}`)
		j.patch(item, strategic, `{"data":{"size":"`+size+`","more":"s"}}`)
		j.patch(item, jsonPatch, `[{"op":"add","path":"/data/size","value":"`+size+`"},{"op":"add","path":"/data/more","value":"j"}]`)
		j.apply(item+"?force=true", "me", of(configMapDocument, "@x", `data.size="`+size+`"`))
	}
	j.patch(item, jsonPatch, `[{"op":"remove","path":"/data/size"}]`)
	j.delete(item)
	j.delete(item + "?dryRun=All")
	j.get(item)
	j.patch(item, mergePatch, `{"metadata":{"annotations":{"deletable":"yes"}}}`)
	j.delete(item)
	j.end(in("configmaps"))
}

// What a server fills in before policies see it.
func evaluatedDefaults(j *evaluation) {
	j.begins(evaluatedPolicy("@a",
		rules(rule("", "pods,services,secrets,configmaps,serviceaccounts,persistentvolumeclaims", "CREATE", "UPDATE"), rule("apps", "deployments,statefulsets,daemonsets,replicasets", "CREATE", "UPDATE"), rule("batch", "jobs,cronjobs", "CREATE", "UPDATE"), rule("networking.k8s.io", "ingresses,networkpolicies", "*"), rule("autoscaling", "horizontalpodautoscalers", "*"), rule("rbac.authorization.k8s.io", "roles,rolebindings", "*"), rule("coordination.k8s.io", "leases", "*")),
		`spec.variables=[{"name":"o","expression":"object"}]`,
		mustHold(
			shows(`object.kind + ' ' + object.apiVersion + ' ' + string(object.?metadata.generation.orValue(0)) + (has(object.metadata.uid) ? ' uid' : '') + (has(object.metadata.creationTimestamp) ? ' created' : '') + (has(object.metadata.managedFields) ? ' managed' : '') + (has(object.metadata.resourceVersion) ? ' version' : '') + (has(object.metadata.namespace) ? ' ns' : '') + (has(object.status) ? ' status' : '')`),
			validation(`request.kind.kind != 'Pod' || !has(object.spec.containers[0].env)`, `"messageExpression":"object.spec.containers.map(c, c.name + c.imagePullPolicy + c.terminationMessagePath).join(',') + ' ' + object.spec.restartPolicy + ' ' + object.spec.dnsPolicy + ' ' + string(object.spec.enableServiceLinks) + ' ' + string(object.spec.priority) + ' ' + object.spec.tolerations.map(t, t.key + string(t.tolerationSeconds)).join(',') + ' ' + string(object.spec.terminationGracePeriodSeconds) + ' ' + object.status.phase + ' ' + object.status.qosClass"`),
			validation(`request.kind.kind != 'Deployment' || object.spec.replicas < 5`, `"messageExpression":"string(object.spec.replicas) + ' ' + object.spec.strategy.type + ' ' + string(object.spec.strategy.rollingUpdate.maxSurge) + ' ' + string(object.spec.revisionHistoryLimit) + string(object.spec.progressDeadlineSeconds)"`),
			validation(`request.kind.kind != 'Service' || object.spec.ports.size() < 2`, `"messageExpression":"object.spec.ports.map(p, p.name + ' ' + p.protocol + ' ' + string(p.targetPort)).join(', ') + ' ' + object.spec.sessionAffinity + ' ' + object.spec.type + ' ' + object.spec.internalTrafficPolicy + ' ' + object.spec.ipFamilyPolicy"`),
			validation(`request.kind.kind != 'Secret' || (!has(object.stringData) && object.data.password != 'YmFk')`, `"messageExpression":"object.type + ' ' + object.data.password"`),
		)), binding("@a"))
	for _, one := range []struct {
		path, document string
		edits          []string
	}{
		{"pods", podDocument, []string{shown}},
		{"pods", podDocument, []string{`spec.containers.0.env=[{"name":"A","value":"b"}]`}},
		{"pods", podDocument, []string{`spec.containers.0.env=[{"name":"A","value":"b"}]`, `spec.containers.0.image="x:v1"`, `spec.containers.0.resources={"limits":{"cpu":"1"}}`}},
		{"pods", podDocument, []string{`spec.containers.0.env=[]`}},
		{"services", serviceDocument, []string{shown}},
		{"services", serviceDocument, []string{`spec.ports=[{"name":"a","port":80},{"name":"b","port":81,"protocol":"UDP"}]`}},
		{"secrets", secretDocument, []string{shown}},
		{"secrets", secretDocument, []string{`stringData.password="bad"`}},
		{"secrets", secretDocument, []string{`stringData.password="good"`, `data={"password":"YmFk"}`}},
		{"serviceaccounts", `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"%s","labels":{"s":"@all"}}}`, []string{shown}},
		{"persistentvolumeclaims", `{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"%s","labels":{"s":"@all"}},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}`, []string{shown}},
		{"apps/v1:deployments", deployDocument, []string{shown}},
		{"apps/v1:deployments", deployDocument, []string{`spec.replicas=7`}},
		{"apps/v1:replicasets", strings.Replace(deployDocument, `"Deployment"`, `"ReplicaSet"`, 1), []string{shown}},
		{"apps/v1:daemonsets", strings.Replace(deployDocument, `"Deployment"`, `"DaemonSet"`, 1), []string{shown}},
		{"apps/v1:statefulsets", strings.Replace(deployDocument, `"Deployment"`, `"StatefulSet"`, 1), []string{shown, `spec.serviceName="x"`}},
		{"batch/v1:jobs", `{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"%s","labels":{"s":"@all"}},"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}`, []string{shown}},
		{"batch/v1:cronjobs", `{"apiVersion":"batch/v1","kind":"CronJob","metadata":{"name":"%s","labels":{"s":"@all"}},"spec":{"schedule":"* * * * *","jobTemplate":{"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}}}`, []string{shown}},
		{"networking.k8s.io/v1:networkpolicies", `{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"%s","labels":{"s":"@all"}},"spec":{"podSelector":{}}}`, []string{shown}},
		{"autoscaling/v2:horizontalpodautoscalers", `{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","metadata":{"name":"%s","labels":{"s":"@all"}},"spec":{"maxReplicas":3,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"x"}}}`, []string{shown}},
		{"autoscaling/v1:horizontalpodautoscalers", `{"apiVersion":"autoscaling/v1","kind":"HorizontalPodAutoscaler","metadata":{"name":"%s","labels":{"s":"@all"}},"spec":{"maxReplicas":3,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"x"}}}`, []string{shown}},
		{"rbac.authorization.k8s.io/v1:roles", `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":"%s","labels":{"s":"@all"}},"rules":[]}`, []string{shown}},
		{"coordination.k8s.io/v1:leases", `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"%s","labels":{"s":"@all"}},"spec":{"holderIdentity":"me"}}`, []string{shown}},
	} {
		j.post(in(one.path), of(one.document, "@x", one.edits...))
		j.apply(in(one.path+"/@x"), "me", of(one.document, "@x", one.edits...))
	}
	for _, path := range []string{"pods", "services", "apps/v1:deployments"} {
		document := map[string]string{"pods": podDocument, "services": serviceDocument, "apps/v1:deployments": deployDocument}[path]
		j.post(in(path), of(document, "@y"))
		j.put(in(path+"/@y"), of(document, "@y", shown))
		j.patch(in(path+"/@y"), strategic, `{"metadata":{"labels":{"show":"yes"}}}`)
	}
	j.end(in("pods"), in("services"), in("apps/v1:deployments"))
}

// What expressions see of a request.
func evaluatedRequests(j *evaluation) {
	user := ` + ' by ' + request.userInfo.username + ' of ' + request.userInfo.groups.join(',')`
	j.begins(evaluatedPolicy("@a", rules(rule("", "configmaps,pods,pods/*,services,services/status", "*"), rule("apps", "deployments,deployments/*", "*")),
		mustHold(shows(shownRequest()+user))), binding("@a"))
	item := in("configmaps/@x")
	j.post(in("configmaps"), of(configMapDocument, "@x"))
	j.post(in("configmaps"), of(configMapDocument, "@y", shown))
	j.post(in("configmaps"), edited(of(configMapDocument, "x", shown), "-metadata.name", `metadata.generateName="@g-"`))
	j.post(in("configmaps")+"?fieldManager=m&fieldValidation=Strict&dryRun=All", of(configMapDocument, "@y", shown))
	j.post(in("configmaps")+"?dryRun=All&dryRun=All&pretty=true", of(configMapDocument, "@y", shown))
	j.put(item+"?fieldManager=m", of(configMapDocument, "@x", shown))
	j.patch(item, mergePatch, `{"metadata":{"labels":{"show":"yes"}}}`)
	j.patch(item+"?fieldManager=m&fieldValidation=Ignore", strategic, `{"metadata":{"labels":{"show":"yes"}}}`)
	j.patch(item+"?dryRun=All", jsonPatch, `[{"op":"add","path":"/metadata/labels/show","value":"yes"}]`)
	j.apply(item+"?force=true", "me", of(configMapDocument, "@x", shown))
	j.apply(in("configmaps/@z"), "me", of(configMapDocument, "@z", shown))
	j.apply(in("configmaps/@z")+"?dryRun=All&force=true", "me", of(configMapDocument, "@z", shown))
	j.post(in("pods"), of(podDocument, "@p"))
	j.patch(in("pods/@p/status"), mergePatch, `{"metadata":{"labels":{"show":"yes"}}}`)
	j.put(in("pods/@p/status"), of(podDocument, "@p", shown, `status={"phase":"Running"}`))
	j.post(in("apps/v1:deployments"), of(deployDocument, "@d"))
	j.patch(in("apps/v1:deployments/@d/status"), mergePatch, `{"metadata":{"labels":{"show":"yes"}},"status":{"replicas":1}}`)
	j.patch(in("apps/v1:deployments/@d"), mergePatch, `{"metadata":{"labels":{"show":"yes"}},"spec":{"replicas":2}}`)
	j.post(in("configmaps"), of(configMapDocument, "@old", "-metadata.labels.show"))
	j.end(in("configmaps"))
}

func evaluatedPods(j *evaluation) {
	j.begins(evaluatedPolicy("@a", rules(rule("", "pods,pods/ephemeralcontainers,pods/eviction,pods/binding,bindings,pods/status,pods/resize", "*")),
		mustHold(
			validation(`!(request.kind.kind == 'Pod') || object == null || object.spec.containers.all(c, c.image.startsWith('good/'))`, `"messageExpression":"'bad images: ' + object.spec.containers.filter(c, !c.image.startsWith('good/')).map(c, c.image).join(', ')"`),
			validation(`!(request.?subResource.orValue('') == 'ephemeralcontainers') || object.spec.ephemeralContainers.all(c, c.image.startsWith('good/'))`, `"message":"bad ephemeral container"`),
			validation(`request.kind.kind != 'Eviction' || !object.metadata.name.endsWith('kept')`, `"messageExpression":"'no eviction of ' + object.metadata.name + ' ' + object.apiVersion + ' ' + request.name + ' ' + string(has(object.deleteOptions)) + ' ' + request.?subResource.orValue('') + ' ' + request.operation"`),
			validation(`request.kind.kind != 'Binding' || object.target.name != 'badnode'`, `"messageExpression":"'not on ' + object.target.name + ' ' + object.metadata.name + ' ' + request.resource.resource + ' ' + request.?subResource.orValue('') + ' ' + request.operation"`),
			validation(`request.?subResource.orValue('') != 'resize' || object.spec.containers.all(c, c.?resources.?limits.?cpu.orValue('0') != '2')`, `"message":"too large"`),
			validation(`request.operation != 'DELETE' || !oldObject.metadata.name.endsWith('kept')`, `"messageExpression":"'kept on ' + oldObject.spec.?nodeName.orValue('no node')"`),
		)), binding("@a"))
	pods := in("pods")
	j.post(pods, of(podDocument, "@bad", `spec.containers.0.image="bad/app"`))
	j.post(pods, of(podDocument, "@bad", `spec.containers=[]`))
	for _, name := range []string{"@p", "@kept", "@q"} {
		j.post(pods, of(podDocument, name))
	}
	j.patch(in("pods/@p"), strategic, `{"spec":{"containers":[{"name":"c","image":"bad/app"}]}}`)
	j.patch(in("pods/@p"), strategic, `{"spec":{"containers":[{"name":"c","image":"good/other"}]}}`)
	j.patch(in("pods/@p"), strategic, `{"spec":{"containers":[{"name":"d","image":"bad/app"}]}}`) // not allowed anyway
	j.patch(in("pods/@p"), jsonPatch, `[{"op":"replace","path":"/spec/containers/0/image","value":"bad/x"}]`)
	j.apply(in("pods/@p")+"?force=true", "me", of(podDocument, "@p", `spec.containers.0.image="bad/app"`))
	j.apply(in("pods/@p")+"?force=true", "me", of(podDocument, "@p", `spec.containers.0.image="good/app2"`))
	for _, image := range []string{"bad/e", "good/e"} {
		j.patch(in("pods/@p/ephemeralcontainers"), strategic, `{"spec":{"ephemeralContainers":[{"name":"e","image":"`+image+`"}]}}`)
	}
	j.patch(in("pods/@p/resize"), strategic, `{"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":"2"}}}]}}`)
	j.patch(in("pods/@p/status"), strategic, `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`)
	eviction := `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"%s"}}`
	j.post(in("pods/@kept/eviction"), of(eviction, "@kept"))
	j.post(in("pods/@kept/eviction")+"?dryRun=All", of(eviction, "@kept", `deleteOptions={"dryRun":["All"]}`))
	j.post(in("pods/@kept/eviction"), of(`{"apiVersion":"policy/v1beta1","kind":"Eviction","metadata":{"name":"%s"}}`, "@kept"))
	j.post(in("pods/@q/eviction"), of(eviction, "@q"))
	j.post(in("pods/@none/eviction"), of(eviction, "@none"))
	j.post(in("pods/@none-kept/eviction"), of(eviction, "@none-kept"))
	bind := `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"%s"},"target":{"kind":"Node","name":"badnode"}}`
	j.post(in("pods/@kept/binding"), of(bind, "@kept"))
	j.post(in("bindings"), of(bind, "@kept"))
	j.post(in("pods/@kept/binding"), of(bind, "@kept", `target.name="node"`))
	j.post(in("bindings"), of(bind, "@kept", `target.name="node"`))
	j.delete(in("pods/@kept"))
	j.delete(in("pods/@kept") + "?gracePeriodSeconds=0")
	j.delete(in("pods/@p"))
	j.delete(in("pods/@p") + "?gracePeriodSeconds=0")
	j.end(pods)
}

func evaluatedConnections(j *evaluation) {
	show := `"messageExpression":"request.operation + ' ' + request.kind.kind + ' ' + request.name + ' ' + request.?subResource.orValue('none') + ' ' + string(has(request.options)) + ' ' + object.kind + ' ' + object.apiVersion + ' ' + string(oldObject == null) + ' ' + object.?command.orValue([]).join(' ') + ' ' + object.?container.orValue('-') + ' ' + string(object.?stdin.orValue(false)) + string(object.?tty.orValue(false)) + string(object.?stdout.orValue(false)) + ' ' + object.?path.orValue('-') + ' ' + object.?ports.orValue([]).map(p, string(p)).join(',')"`
	j.begins(evaluatedPolicy("@a", rules(rule("", "pods/exec,pods/attach,pods/portforward,pods/proxy,services/proxy,pods/log", "CONNECT", "CREATE")), mustHold(
		validation(`object.?command.orValue(['fine'])[0] != 'rm'`, show), validation(`object.?container.orValue('c') == 'c'`, show), validation(`!object.?path.orValue('').contains('secret')`, show), validation(`!object.?ports.orValue([]).exists(p, p == 22)`, show))), binding("@a"))
	j.post(in("pods"), of(podDocument, "@p"))
	j.post(in("services"), of(serviceDocument, "@v"))
	upgrade := []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Protocol", "v5.channel.k8s.io"}
	spdy := []string{"Connection", "Upgrade", "Upgrade", "SPDY/3.1", "X-Stream-Protocol-Version", "v4.channel.k8s.io"}
	for _, headers := range [][]string{nil, upgrade, spdy} {
		method := "POST"
		if len(headers) > 0 && headers[3] == "websocket" {
			method = "GET"
		}
		for _, query := range []string{"command=rm&command=-r&stdout=true", "command=ls&container=c&stdin=true&tty=true&stdout=1", "command=rm&container=d", "", "command=ls&stdin=x"} {
			j.do(method, in("pods/@p/exec?"+query), "", headers...)
		}
		j.do(method, in("pods/@p/attach?container=d&stdout=true"), "", headers...)
		j.do(method, in("pods/@p/attach?container=c&stdout=true"), "", headers...)
		j.do(method, in("pods/@none/exec?command=rm"), "", headers...)
		j.do(method, in("pods/@none/exec?command=ls"), "", headers...)
	}
	j.post(in("pods/@p/portforward"), "")
	j.post(in("pods/@p/portforward?ports=22&ports=23"), "")
	for _, method := range []string{"GET", "PUT", "DELETE"} {
		j.do(method, in("pods/@p/proxy/secret/x?y=z"), "")
		j.do(method, in("pods/@p/proxy/"), "")
		j.do(method, in("services/@v/proxy/a/secret"), "")
	}
	j.get(in("pods/@p/log?container=d"))
	j.end()
}

func evaluatedScales(j *evaluation) {
	j.begins(evaluatedPolicy("@a", rules(rule("apps", "deployments,deployments/scale,replicasets/scale", "*"), rule("judged.example.com", "things,things/scale,things/status", "*")),
		mustHold(validation(`object == null || request.kind.kind == 'ReplicaSet' || object.spec.replicas <= 3`, `"messageExpression":"request.kind.kind + ' ' + request.kind.group + ' ' + request.kind.version + ' of ' + request.resource.resource + '/' + request.?subResource.orValue('') + ': ' + string(object.spec.replicas) + ' from ' + string(oldObject == null ? -1 : oldObject.spec.replicas) + ' ' + object.kind"`))), binding("@a"))
	for _, one := range []struct{ path, document, name string }{{"apps/v1:deployments", deployDocument, "@d"}, {"judged.example.com/v1:things", thingDocument, "@t"}} {
		item := in(one.path + "/" + one.name)
		j.post(in(one.path), of(one.document, one.name))
		j.get(item + "/scale")
		for _, replicas := range []int{9, 2} {
			j.patch(item+"/scale", mergePatch, fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
			j.patch(item+"/scale", jsonPatch, fmt.Sprintf(`[{"op":"replace","path":"/spec/replicas","value":%d}]`, replicas))
			j.put(item+"/scale", fmt.Sprintf(`{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"%s","namespace":"@ns"},"spec":{"replicas":%d}}`, one.name, replicas))
			j.apply(item+"/scale?force=true", "me", fmt.Sprintf(`{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"%s","namespace":"@ns"},"spec":{"replicas":%d}}`, one.name, replicas))
			j.patch(item, mergePatch, fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
		}
		j.patch(item+"/scale", mergePatch, `{"spec":{"replicas":-1}}`)
		j.patch(item+"/status", mergePatch, `{"status":{"replicas":4}}`)
	}
	j.patch(in("apps/v1:deployments/@none/scale"), mergePatch, `{"spec":{"replicas":9}}`)
	j.end(in("apps/v1:deployments"), in("judged.example.com/v1:things"))
}

func evaluatedCustomResources(j *evaluation) {
	j.begins(evaluatedPolicy("@a", rules(rule("judged.example.com", "things,things/status", "*")), mustHold(
		validation(`object == null || object.spec.size < 10`, `"messageExpression":"'size ' + string(object.spec.size) + ' of ' + object.spec.?colour.orValue('nothing') + ' ' + object.apiVersion"`),
		validation(`object == null || object.spec.?parts.orValue([]).all(p, p.count > 0)`, `"messageExpression":"object.spec.parts.map(p, p.name + string(p.count)).join(',')"`),
		validation(`object == null || !has(object.status) || object.status.?phase.orValue('') != 'Bad'`, `"messageExpression":"string(object.status.phase)"`),
		shows(`string(has(object.spec.size) ? object.spec.size : -1) + ' ' + string(has(object.spec.unknown)) + ' ' + string(has(object.status)) + ' ' + string(object.metadata.generation)`))), binding("@a"))
	things, item := in("judged.example.com/v1:things"), in("judged.example.com/v1:things/@t")
	j.post(things, of(thingDocument, "@t", shown))
	j.post(things, of(thingDocument, "@t", shown, `spec.unknown=1`, `status={"phase":"X"}`))
	j.post(things+"?fieldValidation=Strict", of(thingDocument, "@t", shown, `spec.unknown=1`))
	j.post(things, of(thingDocument, "@t", `spec.size=11`))
	j.post(things, of(thingDocument, "@t", `spec.size=101`)) // invalid
	j.post(things, of(thingDocument, "@t", `spec.size="x"`))
	j.post(things, of(thingDocument, "@t", `spec.parts=[{"name":"a"},{"name":"b","count":0}]`))
	j.post(things, of(thingDocument, "@t", `spec.parts=[{"name":"a"},{"name":"b","count":2}]`))
	j.put(item, of(thingDocument, "@t", `spec.size=12`, `metadata.resourceVersion="{{rv:@t}}"`))
	j.put(item, of(thingDocument, "@t", `spec.size=12`))
	j.patch(item, mergePatch, `{"spec":{"size":13}}`)
	j.patch(item, mergePatch, `{"spec":{"size":null}}`)
	j.patch(item, mergePatch, `{"spec":{"size":4}}`)
	j.patch(item, strategic, `{"spec":{"size":14}}`) // not supported
	j.patch(item, jsonPatch, `[{"op":"add","path":"/spec/size","value":15}]`)
	j.apply(item, "me", of(thingDocument, "@t", `spec.parts=[{"name":"c","count":0}]`))
	j.apply(item, "me", of(thingDocument, "@t", `spec.parts=[{"name":"c"}]`))
	j.apply(in("judged.example.com/v1:things/@u"), "me", of(thingDocument, "@u", `spec.size=16`))
	j.patch(item+"/status", mergePatch, `{"status":{"phase":"Bad"}}`)
	j.patch(item+"/status", mergePatch, `{"status":{"phase":"Good"},"spec":{"size":17}}`)
	j.put(item+"/status", of(thingDocument, "@t", `spec.size=18`, `status={"phase":"Bad"}`, `metadata.resourceVersion="{{rv:@t}}"`))
	j.patch(item, mergePatch, `{"metadata":{"labels":{"show":"yes"}}}`)
	j.delete(item)
	j.end(things)
}

// Policies about another version of a resource than the one that is asked for.
func evaluatedVersions(j *evaluation) {
	j.begin()
	only := func(group, version, resource string) string {
		return fmt.Sprintf(`spec.matchConstraints.resourceRules=[{"apiGroups":[%q],"apiVersions":[%q],"operations":["CREATE","UPDATE"],"resources":[%q]}]`, group, version, resource)
	}
	seen := mustHold(shows(`object.apiVersion + ' ' + request.kind.version + ' ' + request.resource.version + ' for ' + request.requestKind.version + ' ' + request.requestResource.version + ' ' + (oldObject == null ? 'none' : oldObject.apiVersion)`))
	j.post(policiesPath, evaluatedPolicy("@a", only("judged.example.com", "v1", "things"), seen))
	j.post(bindingsPath, binding("@a"))
	j.settle()
	write := func() {
		for _, version := range []string{"v1", "v2"} {
			document := strings.Replace(thingDocument, "/v1", "/"+version, 1)
			things := in("judged.example.com/" + version + ":things")
			j.post(things, of(document, "@t-"+version, shown))
			j.apply(things+"/@s-"+version, "me", of(document, "@s-"+version, shown))
			j.post(things, of(document, "@u-"+version))
			j.patch(things+"/@u-"+version, mergePatch, `{"metadata":{"labels":{"show":"yes"}}}`)
			j.put(things+"/@u-"+version, of(document, "@u-"+version, shown, `metadata.resourceVersion="{{rv:@u-`+version+`}}"`))
		}
	}
	write()
	j.patch(policiesPath+"/@a", mergePatch, `{"spec":{"matchConstraints":{"matchPolicy":"Exact"}}}`)
	j.settle()
	write()
	event := `{"apiVersion":"%s","kind":"Event","metadata":{"name":"@e","namespace":"@ns","labels":{"s":"@all","show":"yes"}},"reason":"R","type":"Normal","action":"A","%s":{"kind":"Pod","namespace":"@ns","name":"p"}%s}`
	for _, rules := range []string{only("", "v1", "events"), only("events.k8s.io", "v1", "events")} {
		j.replacePolicy("@a", evaluatedPolicy("@a", rules, seen))
		j.settle()
		j.post(in("events"), fmt.Sprintf(event, "v1", "involvedObject", ""))
		j.post(in("events.k8s.io/v1:events"), fmt.Sprintf(event, "events.k8s.io/v1", "regarding", `,"eventTime":"2024-01-01T00:00:00.000000Z","reportingController":"example.com/x","reportingInstance":"y"`))
	}
	j.end(in("judged.example.com/v1:things"))
}

const memoryMetrics = `[{\"type\":\"Resource\",\"resource\":{\"name\":\"memory\",\"targetAverageValue\":\"1024Mi\"}}]`

// otherMetrics are what a server reads in its own way in place of memoryMetrics.
var otherMetrics = []string{
	`[{\"type\":\"Resource\",\"resource\":{\"name\":\"cpu\",\"targetAverageUtilization\":1}}]`,
	`[1]`,
	`[{\"TYPE\":\"Resource\",\"Resource\":{\"NAME\":\"memory\",\"targetaverageutilization\":1}}]`,
	`[{\"type\":\"Resource\",\"resource\":{\"name\":\"memory\",\"targetAverageUtilization\":1},\"x\":\"\\ud800\"}]`,
}

// autoscalers are documents in both versions: version 1 has in annotations what only version 2 has in fields.
var autoscalers = map[string]string{
	"v1": `{"apiVersion":"autoscaling/v1","kind":"HorizontalPodAutoscaler","metadata":{"name":"%s","labels":{"s":"@all"},"annotations":{"a":"b",` +
		`"autoscaling.alpha.kubernetes.io/metrics":"` + memoryMetrics + `"}},` +
		`"spec":{"maxReplicas":3,"targetCPUUtilizationPercentage":55,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"x"}}}`,
	"v2": `{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","metadata":{"name":"%s","labels":{"s":"@all"}},` +
		`"spec":{"maxReplicas":3,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"x"},` +
		`"metrics":[{"type":"Pods","pods":{"metric":{"name":"q"},"target":{"type":"AverageValue","averageValue":"1500m"}}},` +
		`{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":60}}}],` +
		`"behavior":{"scaleUp":{"policies":[{"type":"Pods","value":4,"periodSeconds":15}]}}}}`,
}

// Policies about another version of autoscalers than the one of the request.
func evaluatedAutoscalers(j *evaluation) {
	const annotation = "object.metadata.?annotations[?'autoscaling.alpha.kubernetes.io/%s'].orValue('none')"
	fields := map[string]string{
		"v1": `string(object.spec.?targetCPUUtilizationPercentage.orValue(-1)) + ' ' + ` + fmt.Sprintf(annotation, "metrics") + ` + ' ' + ` + fmt.Sprintf(annotation, "behavior"),
		"v2": `object.spec.metrics.map(m, m.type + ' ' + (has(m.resource) ? m.resource.name + ' ' + m.resource.target.type + ' ' + string(m.resource.target.?averageUtilization.orValue(-1)) + ' ' + string(m.resource.target.?averageValue.orValue('none')) : m.pods.metric.name + ' ' + string(m.pods.target.averageValue))).join(', ')` +
			` + ' ' + string(object.spec.?behavior.scaleUp.policies.orValue([]).size()) + ' ' + ` + fmt.Sprintf(annotation, "metrics"),
	}
	about := func(version string) string {
		seen := `request.operation + ' ' + object.apiVersion + ' for ' + request.requestKind.version + ' ' + object.metadata.?annotations.a.orValue('none') + ' ' + string(object.spec.?minReplicas.orValue(-1)) + ' ' + (oldObject == null ? 'none' : oldObject.apiVersion) + ': ' + `
		return evaluatedPolicy("@a", fmt.Sprintf(`spec.matchConstraints.resourceRules=[{"apiGroups":["autoscaling"],"apiVersions":[%q],"operations":["CREATE","UPDATE"],"resources":["horizontalpodautoscalers"]}]`, version), mustHold(shows(seen+fields[version])))
	}
	j.begins(about("v1"), binding("@a"))
	for _, version := range []string{"v1", "v2"} {
		if version != "v1" {
			j.replacePolicy("@a", about(version))
			j.settle()
		}
		for _, asked := range []string{"v1", "v2"} {
			document, own := autoscalers[asked], "@"+version+asked
			all := in("autoscaling/" + asked + ":horizontalpodautoscalers")
			j.post(all, of(document, "@h", shown))
			j.inProtobuf("POST", all, of(document, "@h", shown))
			j.apply(all+"/@h", "me", of(document, "@h", shown))
			for _, metrics := range otherMetrics {
				if asked == "v1" {
					j.post(all, of(strings.Replace(document, memoryMetrics, metrics, 1), "@h", shown))
				}
			}
			j.post(all, of(document, own))
			j.patch(all+"/"+own, mergePatch, `{"metadata":{"labels":{"show":"yes"}}}`)
			j.patch(all+"/"+own, strategic, `{"metadata":{"labels":{"show":"yes"}},"spec":{"minReplicas":2}}`)
			j.put(all+"/"+own, of(document, own, shown, `spec.minReplicas=2`))
		}
	}
	j.end(in("autoscaling/v2:horizontalpodautoscalers"))
}

func evaluatedNamespaces(j *evaluation) {
	j.begin()
	j.post(policiesPath, policy("@a", `spec.matchConstraints={"objectSelector":{"matchLabels":{"s":"@all"}},"resourceRules":[`+rule("", "namespaces,namespaces/status,namespaces/finalize", "*")+`]}`,
		mustHold(validation(`object == null || !('deny' in object.metadata.labels)`, `"messageExpression":"string(namespaceObject == null) + ' ' + request.?namespace.orValue('none') + ' ' + object.spec.?finalizers.orValue([]).join(',') + ' ' + object.status.?phase.orValue('none') + ' ' + object.metadata.labels[?'kubernetes.io/metadata.name'].orValue('none')"`),
			validation(`object != null || !('kept' in oldObject.metadata.labels)`, `"messageExpression":"string(namespaceObject == null) + ' ' + request.?namespace.orValue('none')"`))))
	j.post(bindingsPath, binding("@a", `spec.matchResources={"namespaceSelector":{"matchExpressions":[{"key":"free","operator":"DoesNotExist"}]}}`))
	j.settle()
	namespace := func(name, labels string) string {
		return `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"` + name + `","labels":{"s":"@all"` + labels + `}}}`
	}
	j.post("/api/v1/namespaces", namespace("@n1", `,"deny":"a"`))
	j.post("/api/v1/namespaces", namespace("@n1", `,"deny":"a","free":"b"`))
	j.post("/api/v1/namespaces", namespace("@n2", `,"kept":"a"`))
	j.patch("/api/v1/namespaces/@n1", mergePatch, `{"metadata":{"labels":{"free":null}}}`)
	j.patch("/api/v1/namespaces/@n2", mergePatch, `{"metadata":{"labels":{"deny":"a"}}}`)
	j.put("/api/v1/namespaces/@n2", namespace("@n2", `,"deny":"a","kept":"a"`))
	j.put("/api/v1/namespaces/@n2/finalize", namespace("@n2", `,"deny":"a","kept":"a"`))
	j.patch("/api/v1/namespaces/@n2/status", mergePatch, `{"metadata":{"labels":{"deny":"a"}}}`)
	j.apply("/api/v1/namespaces/@n3", "me", namespace("@n3", `,"deny":"a"`))
	j.apply("/api/v1/namespaces/@n2", "me", namespace("@n2", `,"deny":"a","kept":"a"`))
	j.delete("/api/v1/namespaces/@n2")
	j.delete("/api/v1/namespaces/@n2?dryRun=All")
	j.delete("/api/v1/namespaces/@none")
	j.end("/api/v1/namespaces")
}

// Namespaces whose labels decide, and change.
func evaluatedRelabelling(j *evaluation) {
	j.begin(`"env":"prod"`)
	j.post(policiesPath, evaluatedPolicy("@a", mustHold(validation(`namespaceObject.metadata.labels.env != 'prod' || object.data.mode != 'slow'`,
		`"messageExpression":"namespaceObject.metadata.labels.env + ' ' + namespaceObject.metadata.name + ' ' + namespaceObject.status.phase + ' ' + namespaceObject.metadata.?annotations.orValue({'owner':'nobody'}).owner"`))))
	j.post(bindingsPath, binding("@a"))
	j.post(policiesPath, evaluatedPolicy("@b", `spec.matchConstraints.namespaceSelector.matchExpressions=[{"key":"env","operator":"In","values":["test","prod"]}]`, mustHold(`object.data.size != '9'`)))
	j.post(bindingsPath, binding("@b", `spec.matchResources={"namespaceSelector":{"matchExpressions":[{"key":"env","operator":"NotIn","values":["prod"]}]}}`))
	j.settle()
	write := func() {
		for _, edit := range []string{`data.mode="slow"`, `data.size="9"`} {
			j.post(in("configmaps?dryRun=All"), of(configMapDocument, "@x", edit))
		}
	}
	write()
	for _, labels := range []string{`{"labels":{"env":"test"}}`, `{"labels":{"env":"prod"},"annotations":{"owner":"me"}}`, `{"labels":{"env":"other"}}`, `{"labels":{"env":null}}`, `{"labels":{"env":"test"}}`} {
		j.patch("/api/v1/namespaces/@ns", mergePatch, `{"metadata":`+labels+`}`)
		j.settle()
		write()
	}
	j.post("/api/v1/namespaces/@absent/configmaps", of(configMapDocument, "@x", `data.mode="slow"`))
	j.end(in("configmaps"))
}

// One object in every encoding.
func evaluatedEncodings(j *evaluation) {
	j.begins(evaluatedPolicy("@a", rules(rule("", "configmaps,pods,secrets,services,pods/eviction", "*"), rule("apps", "deployments,deployments/scale", "*")), mustHold(
		validation(`object == null || !('deny' in object.metadata.?labels.orValue({}))`, `"messageExpression":"request.kind.kind + ' ' + object.metadata.name"`),
		validation(`request.kind.kind != 'Deployment' || object == null || object.spec.replicas < 4`, `"messageExpression":"string(object.spec.replicas)"`),
		validation(`request.kind.kind != 'Scale' || object.spec.replicas < 4`, `"messageExpression":"string(object.spec.replicas)"`),
		validation(`request.kind.kind != 'Eviction'`, `"messageExpression":"string(object.metadata.name)"`),
		validation(`request.kind.kind != 'Secret' || object == null || object.data.?password.orValue('') != 'YmFk'`, `"message":"bad"`),
	)), binding("@a"))
	deny := `metadata.labels.deny="yes"`
	for _, one := range []struct {
		path, document string
		bad            string
	}{{"configmaps", configMapDocument, deny}, {"pods", podDocument, deny}, {"services", serviceDocument, deny}, {"apps/v1:deployments", deployDocument, `spec.replicas=9`}, {"secrets", secretDocument, `data={"password":"YmFk"}`}} {
		path, item := in(one.path), in(one.path+"/@x")
		for _, document := range []string{of(one.document, "@x", one.bad, "-stringData"), of(one.document, "@x")} {
			j.inProtobuf("POST", path, document)
			j.post(path+"?dryRun=All", document, "Accept", protobufType)
			j.do("POST", path+"?dryRun=All", document, contentHeader, yamlType, "Accept", yamlType)
			j.inProtobuf("PUT", item, document, "Accept", protobufType)
			j.inProtobuf("PUT", item, document)
			j.post(path+"?dryRun=All", document, "Accept", tableType)
			j.post(path+"?dryRun=All", document, "Accept", partialType)
		}
	}
	j.inProtobuf("PUT", in("apps/v1:deployments/@x/scale"), `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"@x","namespace":"@ns"},"spec":{"replicas":5}}`)
	j.inProtobuf("PUT", in("apps/v1:deployments/@x/scale"), `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"@x","namespace":"@ns"},"spec":{"replicas":3}}`)
	j.inProtobuf("POST", in("pods/@x/eviction"), `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"@x"}}`)
	j.do("POST", in("configmaps"), "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: @yaml\n  labels: {deny: 'yes'}\n", contentHeader, yamlType)
	j.do("POST", in("configmaps"), "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: @yaml\n  labels: {s: '@all'}\ndata: {a: 'b'}\n", contentHeader, yamlType)
	j.do("PATCH", in("configmaps/@yaml")+"?fieldManager=me", "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  labels: {deny: 'yes'}\n", contentHeader, applyPatch)
	j.end(in("configmaps"), in("pods"), in("apps/v1:deployments"))
}

// Bodies that are no objects, or not of the kind.
func evaluatedBodies(j *evaluation) {
	j.begins(evaluatedPolicy("@a", rules(rule("", "configmaps", "*")), mustHold(validation(`object == null || !('deny' in object.metadata.?labels.orValue({}))`))), binding("@a"))
	maps, item := in("configmaps"), in("configmaps/@x")
	deny := of(configMapDocument, "@x", `metadata.labels.deny="yes"`)
	for _, body := range []string{"", "{", "[]", "null", `"x"`, "{}", `{"kind":"ConfigMap"}`, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"@x"}}`, `{"apiVersion":"v2","kind":"ConfigMap","metadata":{"name":"@x"}}`,
		of(configMapDocument, "Not Valid", `metadata.labels.deny="yes"`), of(configMapDocument, "@x", `metadata.namespace="other"`, `metadata.labels.deny="yes"`), of(configMapDocument, "@x", `data.mode=5`), of(configMapDocument, "@x", `what=5`, `metadata.labels.deny="yes"`),
		strings.Replace(deny, `"data":`, `"data":{"a":"b"},"data":`, 1), edited(deny, "-metadata.name"), edited(deny, "-metadata"), edited(deny, "-apiVersion", "-kind"), deny + deny, deny + "x"} {
		j.post(maps, body)
		j.post(maps+"?fieldValidation=Strict", body)
		j.put(item, body)
	}
	j.post(maps, of(configMapDocument, "@x"))
	for _, kind := range []string{mergePatch, strategic, jsonPatch, applyPatch, "application/nope", jsonType, "text/plain", ""} {
		for _, body := range []string{"", "{", "[]", "null", `{"metadata":{"labels":{"deny":"a"}}}`, `[{"op":"add","path":"/metadata/labels/deny","value":"a"}]`, `[{"op":"remove","path":"/metadata/labels/none"}]`, `{"metadata":{"name":"@y"}}`, `{"metadata":{"labels":{"deny":5}}}`, `{"what":1}`} {
			j.patch(item+"?fieldManager=me", kind, body)
		}
	}
	for _, kind := range []string{"text/plain", "application/cbor", "", "application/json; charset=utf-8", "application/x-yaml", "application/vnd.kubernetes.protobuf"} {
		j.do("POST", maps, deny, contentHeader, kind)
		j.do("PUT", item, deny, contentHeader, kind)
	}
	for _, raw := range []string{"k8s\x00", "k8s\x00\x0a\x03abc", "nothing"} {
		j.protobuf("POST", maps, base64.StdEncoding.EncodeToString([]byte(raw)))
	}
	j.post(maps+"?fieldValidation=x", deny)
	j.post(maps+"?dryRun=x", deny)
	j.patch(item+"?force=true", mergePatch, `{"metadata":{"labels":{"deny":"a"}}}`)
	j.patch(item, applyPatch, deny)
	j.end(maps)
}

func evaluatedDryRuns(j *evaluation) {
	j.begins(evaluatedPolicy("@a", rules(rule("", "configmaps,pods", "*"), rule("judged.example.com", "things", "*")), mustHold(
		validation(`(object == null ? oldObject : object).metadata.?labels.orValue({})[?'deny'].orValue('no') == 'no'`, `"messageExpression":"string(has(request.dryRun) && request.dryRun) + ' ' + request.?options.?dryRun.orValue([]).join(',')"`))), binding("@a"))
	deny := `metadata.labels.deny="yes"`
	for _, one := range []struct{ path, document string }{{"configmaps", configMapDocument}, {"judged.example.com/v1:things", thingDocument}} {
		path, item := in(one.path), in(one.path+"/@x")
		j.post(path+"?dryRun=All", of(one.document, "@x", deny))
		j.post(path+"?dryRun=All", of(one.document, "@x"))
		j.post(path, of(one.document, "@x"))
		j.post(path+"?dryRun=All", of(one.document, "@x"))
		for _, query := range []string{"?dryRun=All", "?dryRun=x", ""} {
			j.put(item+query, of(one.document, "@x", deny, `metadata.resourceVersion="{{rv:@x}}"`))
			j.patch(item+query, mergePatch, `{"metadata":{"labels":{"deny":"yes"}}}`)
			j.patch(item+query, mergePatch, `{"metadata":{"labels":{"more":"yes"}}}`)
		}
		j.apply(item+"?dryRun=All&force=true", "me", of(one.document, "@x", deny))
		j.apply(item+"?dryRun=All&force=true", "me", of(one.document, "@x", `metadata.labels.x="y"`))
		j.delete(item + "?dryRun=All")
		j.do("DELETE", item, `{"dryRun":["All"]}`, contentHeader, jsonType)
		j.get(item)
	}
	j.post(in("pods?dryRun=All"), of(podDocument, "@p"))
	j.post(in("pods?dryRun=All"), edited(of(podDocument, "x"), "-metadata.name", `metadata.generateName="@g-"`))
	j.end(in("configmaps"), in("judged.example.com/v1:things"))
}

func evaluatedCollections(j *evaluation) {
	j.begins(evaluatedPolicy("@a", rules(rule("", "configmaps,pods", "DELETE"), rule("judged.example.com", "things", "DELETE")), mustHold(
		validation(`!('kept' in oldObject.metadata.labels)`, `"messageExpression":"'kept: ' + oldObject.metadata.name + ', name ' + (has(request.name) ? request.name : 'absent') + ' ' + request.options.kind + ' ' + request.operation + ' ' + string(object == null)"`))), binding("@a"))
	for _, one := range []struct{ path, document string }{{"configmaps", configMapDocument}, {"pods", podDocument}, {"judged.example.com/v1:things", thingDocument}} {
		path := in(one.path)
		j.post(path, of(one.document, "@x1", `metadata.labels.part="a"`))
		j.post(path, of(one.document, "@x2", `metadata.labels.part="b"`, `metadata.labels.kept="yes"`))
		j.delete(path + "?labelSelector=part%3Db")
		j.delete(path + "?labelSelector=part%3Db&dryRun=All")
		j.delete(path + "?fieldSelector=metadata.name%3D@x2")
		j.do("DELETE", path+"?labelSelector=part%3Db", `{"dryRun":["All"],"propagationPolicy":"Orphan"}`, contentHeader, jsonType)
		j.delete(path + "?labelSelector=part%3Dnone")
		j.delete(path + "?labelSelector=part%20in%20(")
		j.delete(path + "?labelSelector=part%3Da&dryRun=All")
		j.get(path + "?labelSelector=part")
		j.delete(path + "?labelSelector=part%3Da")
		j.get(path + "?labelSelector=part")
		j.patch(path+"/@x2", mergePatch, `{"metadata":{"labels":{"kept":null}}}`)
		j.delete(path + "?labelSelector=part")
		j.get(path + "?labelSelector=part")
	}
	// A rule with a name never matches an item of a collection.
	j.replacePolicy("@a", evaluatedPolicy("@a", rules(strings.Replace(rule("", "configmaps", "DELETE"), `"apiGroups"`, `"resourceNames":["@y"],"apiGroups"`, 1)), mustHold("false")))
	j.settle()
	j.post(in("configmaps"), of(configMapDocument, "@y", `metadata.labels.part="a"`))
	j.delete(in("configmaps/@y"))
	j.delete(in("configmaps?labelSelector=part"))
	j.end(in("configmaps"), in("pods"))
}

func evaluatedDeletions(j *evaluation) {
	j.begins(evaluatedPolicy("@a", rules(rule("", "configmaps,pods", "DELETE")), mustHold(
		validation(`!('kept' in oldObject.metadata.labels)`, `"messageExpression":"request.name + ' ' + string(request.options.?gracePeriodSeconds.orValue(-1)) + ' ' + request.options.?propagationPolicy.orValue('none') + ' ' + string(request.options.?orphanDependents.orValue(false)) + ' ' + string(has(request.options.preconditions)) + ' ' + request.options.?dryRun.orValue([]).join(',') + ' ' + string(has(oldObject.metadata.managedFields)) + ' ' + string(size(request.options))"`))), binding("@a"))
	for _, one := range []struct{ path, document string }{{"configmaps", configMapDocument}, {"pods", podDocument}} {
		item := in(one.path + "/@x")
		j.post(in(one.path), of(one.document, "@x", `metadata.labels.kept="yes"`, `metadata.finalizers=["example.com/hold"]`))
		j.delete(item)
		j.delete(item + "?gracePeriodSeconds=5&propagationPolicy=Foreground")
		j.delete(item + "?orphanDependents=true")
		j.delete(item + "?propagationPolicy=x")
		j.delete(item + "?dryRun=All")
		j.delete(item + "?dryRun=x")
		for _, body := range []string{`{}`, `{"gracePeriodSeconds":0}`, `{"preconditions":{"uid":"{{uid:@x}}"}}`, `{"preconditions":{"uid":"wrong"}}`, `{"preconditions":{"resourceVersion":"1"}}`, `{"preconditions":{"resourceVersion":"{{rv:@x}}"}}`,
			`{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Background","dryRun":["All"]}`, `{"kind":"DeleteOptions","apiVersion":"policy/v1"}`, `{"kind":"Pod","apiVersion":"v1"}`, `{`, `[]`, `{"gracePeriodSeconds":"x"}`, `{"unknown":5}`} {
			j.do("DELETE", item, body, contentHeader, jsonType)
		}
		j.inProtobuf("DELETE", item, `{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":3}`)
		j.do("DELETE", item, "gracePeriodSeconds: 4\n", contentHeader, yamlType)
		j.delete(in(one.path + "/@none"))
		j.get(item)
		j.patch(item, mergePatch, `{"metadata":{"labels":{"kept":null}}}`)
		j.delete(item)
		j.get(item)
		j.delete(item)
		j.patch(item, mergePatch, `{"metadata":{"finalizers":null}}`)
		j.get(item)
	}
	j.end(in("configmaps"), in("pods"))
}
