package cluster

import (
	"slices"
	"strings"
)

// hostileRows are requests that someone sends who looks for a form that policies do not see.
func hostileRows() (rows []hostileRow) {
	rows = append(rows, hostileVerbs()...)
	rows = append(rows, hostilePaths()...)
	rows = append(rows, hostileHeads()...)
	rows = append(rows, hostileDeletions()...)
	rows = append(rows, hostileSizes()...)
	return append(rows, hostileConnections()...)
}

// hostileDeletions have options that can be read in another way, such as that nothing is to be deleted.
func hostileDeletions() (rows []hostileRow) {
	for _, target := range []string{"@ns/configmaps/a", "@ns/configmaps", "@ns/pods/a", "/apis/judged.example.com/v1/namespaces/hostile/things/a", "/apis/apps/v1/namespaces/hostile/deployments/a", "/api/v1/namespaces/hostile", "/api/v1/nodes/hostile-a"} {
		for _, body := range []string{`{}`, `null`, `[]`, `5`, ` `, `{"dryRun":["All"]}`, `{"dryRun":"All"}`, `{"dryRun":["All","All"]}`, `{"dryRun":["x"]}`, `{"dryRun":[]}`, `{"dryRun":null}`, `{"DryRun":["All"]}`, `{"dryRun":["All"],"dryRun":[]}`, `{"dryRun":[],"dryRun":["All"]}`, `{"dryRun":[""]}`, `{"kind":"DeleteOptions","apiVersion":"v1"}`, `{"kind":"DeleteOptions","apiVersion":"apps/v1"}`,
			`{"kind":"DeleteOptions","apiVersion":"meta.k8s.io/v1"}`, `{"kind":"DeleteOptions","apiVersion":"v9"}`, `{"kind":"DeleteOptions"}`, `{"apiVersion":"v1"}`, `{"kind":"Pod","apiVersion":"v1"}`, `{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1","dryRun":["All"]}`, `{"kind":"deleteoptions","apiVersion":"v1"}`, `{"propagationPolicy":"Orphan"}`, `{"propagationPolicy":"orphan"}`, `{"propagationPolicy":null}`, `{"orphanDependents":true}`, `{"orphanDependents":true,"propagationPolicy":"Foreground"}`,
			`{"gracePeriodSeconds":0}`, `{"gracePeriodSeconds":-1}`, `{"gracePeriodSeconds":"5"}`, `{"gracePeriodSeconds":5.0}`, `{"gracePeriodSeconds":1e1}`, `{"gracePeriodSeconds":99999999999999999999}`, `{"preconditions":{}}`, `{"preconditions":{"uid":""}}`, `{"preconditions":{"uid":null}}`, `{"preconditions":{"resourceVersion":""}}`, `{"preconditions":{"resourceVersion":"0"}}`, `{"preconditions":{"uid":"x"}}`, `{"unknown":1}`,
			"dryRun: [All]", "dryRun: [All]\n---\ndryRun: []", "\ufeff{}", `{"dryRun":["All"]}x`, `{"dryRun":["All"]} {}`, `{`} {
			for _, media := range []string{jsonType, yamlType, ""} {
				rows = append(rows, row("DELETE", target, media, body))
			}
			rows = append(rows, row("DELETE", target+"?dryRun=All&gracePeriodSeconds=7", jsonType, body))
		}
	}
	return rows
}

// hostileVerbs are all methods for collections, objects and subresources.
func hostileVerbs() (rows []hostileRow) {
	of := func(group, path string) string {
		return "/apis/" + group + "/namespaces/" + hostileNamespace + "/" + path
	}
	var items []string
	for path, subresources := range map[string]string{
		"@ns/configmaps/a": "status,x", "@ns/secrets/a": "", "@ns/serviceaccounts/a": "token,token/x", "@ns/pods/a": "status,log,binding,eviction,ephemeralcontainers,resize,scale,nothing",
		"@ns/services/a": "status", "@ns/persistentvolumeclaims/a": "status", "@ns/resourcequotas/a": "status", "@ns/replicationcontrollers/a": "status,scale", "/api/v1/namespaces/hostile": "status,finalize",
		of("apps/v1", "deployments/a"): "status,scale,rollback", of("apps/v1", "replicasets/a"): "status,scale", of("apps/v1", "statefulsets/a"): "status,scale", of("batch/v1", "jobs/a"): "status",
		of("autoscaling/v2", "horizontalpodautoscalers/a"): "status", of("autoscaling/v1", "horizontalpodautoscalers/a"): "status", of("policy/v1", "poddisruptionbudgets/a"): "status",
		of("networking.k8s.io/v1", "ingresses/a"): "status", of("judged.example.com/v1", "things/a"): "status,scale,other", of("judged.example.com/v2", "things/a"): "status,scale",
		"/api/v1/nodes/hostile-a": "status", "/api/v1/persistentvolumes/hostile-a": "status", "/apis/judged.example.com/v1/ceilings/hostile-a": "status",
		"/apis/rbac.authorization.k8s.io/v1/clusterroles/hostile-a": "", "/apis/scheduling.k8s.io/v1/priorityclasses/hostile-a": "",
		"/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations/hostile-a": "status", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/limits.judged.example.com": "status",
		"/apis/apiregistration.k8s.io/v1/apiservices/v1.apps": "status", "/apis/storage.k8s.io/v1/storageclasses/none": "", "/apis/certificates.k8s.io/v1/certificatesigningrequests/none": "status,approval",
		"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/none": "", "/apis/unknown.example.com/v1/namespaces/hostile/others/a": "status",
	} {
		items = append(items, path)
		for _, subresource := range strings.Split(subresources, ",") {
			if subresource != "" {
				items = append(items, path+"/"+subresource)
			}
		}
	}
	slices.Sort(items)
	for _, item := range items {
		collection := item[:strings.LastIndex(item, "/")]
		isItem := strings.HasSuffix(item, "/a") || strings.HasSuffix(item, "hostile-a")
		for _, media := range []string{mergePatch, "application/strategic-merge-patch+json"} {
			rows = append(rows, row("PATCH", item, media, `{"metadata":{"labels":{"x":"y"}}}`))
		}
		rows = append(rows, row("PATCH", item, jsonPatchType, `[{"op":"add","path":"/metadata/labels","value":{"x":"y"}}]`), row("PATCH", item, mergePatch, `{}`),
			row("PATCH", item+"?fieldManager=m&force=true", applyPatch, `{"metadata":{"labels":{"x":"y"}}}`),
			row("POST", item, jsonType, `{}`), row("POST", item, jsonType, ``), row("PUT", item, jsonType, `{"metadata":{"name":"a"}}`), row("DELETE", item+"?dryRun=All", "", ``), row("GET", item, "", ``), row("HEAD", item, "", ``),
			row("OPTIONS", item, "", ``), row("post", item, jsonType, `{}`), row("Delete", item+"?dryRun=All", "", ``), row("PROPPATCH", item, jsonType, `{}`))
		if isItem {
			rows = append(rows, row("POST", collection, jsonType, `{"metadata":{"generateName":"g"}}`), row("DELETE", collection+"?dryRun=All", "", ``), row("DELETE", collection, jsonType, `{"dryRun":["All"]}`),
				row("DELETE", collection+"?labelSelector=app%3Da&dryRun=All", "", ``), row("PUT", collection, jsonType, `{"metadata":{"name":"a"}}`), row("PATCH", collection, mergePatch, `{}`), row("POST", collection+"?dryRun=All", jsonType, `{"kind":"List","apiVersion":"v1","items":[]}`))
		}
	}
	for _, created := range [][2]string{
		{"@ns/bindings", `{"metadata":{"name":"a"},"target":{"kind":"Node","name":"n"}}`}, {"@ns/pods/a/binding", `{"metadata":{"name":"a"},"target":{"kind":"Node","name":"n"}}`},
		{"@ns/pods/a/eviction", `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"a"}}`}, {"@ns/pods/a/eviction", `{"apiVersion":"policy/v1beta1","kind":"Eviction","metadata":{"name":"a"}}`},
		{"@ns/pods/a/eviction?dryRun=All", `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"a"},"deleteOptions":{"dryRun":["All"],"gracePeriodSeconds":0}}`},
		{"@ns/serviceaccounts/a/token", `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"audiences":["x"]}}`}, {"@ns/serviceaccounts/a/token", `{}`},
		{"@ns/events", `{"metadata":{"name":"e","namespace":"hostile"},"involvedObject":{"kind":"Pod","name":"a","namespace":"hostile"}}`},
		{"/apis/events.k8s.io/v1/namespaces/hostile/events", `{"metadata":{"name":"e"},"eventTime":"2026-01-01T00:00:00.000000Z","action":"a","reason":"r","type":"Normal","reportingController":"c/d","reportingInstance":"i","regarding":{"namespace":"hostile"}}`},
		{"/api/v1/componentstatuses", `{"metadata":{"name":"a"}}`}, {"/api/v1/nodes", `{"metadata":{"name":"n"}}`}, {"/api/v1/namespaces", `{"metadata":{"name":"n"}}`}, {"/api/v1/namespaces", `{"metadata":{"generateName":"g"}}`},
		{"/apis/authentication.k8s.io/v1/tokenreviews", `{"spec":{"token":"x"}}`}, {"/apis/authentication.k8s.io/v1/selfsubjectreviews", `{}`},
		{"/apis/authorization.k8s.io/v1/subjectaccessreviews", `{"spec":{"user":"x","nonResourceAttributes":{"path":"/","verb":"get"}}}`}, {"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", `{"spec":{"nonResourceAttributes":{"path":"/","verb":"get"}}}`},
		{"/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", `{"spec":{"namespace":"hostile"}}`}, {"/apis/authorization.k8s.io/v1/namespaces/hostile/localsubjectaccessreviews", `{"spec":{"user":"x","resourceAttributes":{"namespace":"hostile","verb":"get","resource":"pods"}}}`},
		{"/apis/apiregistration.k8s.io/v1/apiservices", `{"metadata":{"name":"v1.x.example.com"},"spec":{"group":"x.example.com","version":"v1","groupPriorityMinimum":1,"versionPriority":1,"service":{"name":"x","namespace":"y"}}}`},
		{"/apis/certificates.k8s.io/v1/certificatesigningrequests", `{"metadata":{"name":"x"},"spec":{"request":"","signerName":"x.io/y","usages":["client auth"]}}`},
		{"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations?dryRun=All", `{"metadata":{"name":"x"}}`}, {"/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies?dryRun=All", `{"metadata":{"name":"x"}}`},
		{"/apis/storage.k8s.io/v1/storageclasses", `{"metadata":{"name":"x"},"provisioner":"p"}`}, {"/apis/node.k8s.io/v1/runtimeclasses", `{"metadata":{"name":"x"},"handler":"p"}`},
		{"/apis/internal.apiserver.k8s.io/v1alpha1/storageversions", `{"metadata":{"name":"x.y"},"spec":{}}`}, {"/apis/coordination.k8s.io/v1/namespaces/hostile/leases", `{"metadata":{"name":"x"}}`},
		{"/apis/discovery.k8s.io/v1/namespaces/hostile/endpointslices", `{"metadata":{"name":"x"},"addressType":"IPv4","endpoints":[]}`}, {"@ns/endpoints", `{"metadata":{"name":"x"}}`}, {"@ns/podtemplates", `{"metadata":{"name":"x"},"template":{}}`},
		{"@ns/limitranges", `{"metadata":{"name":"x"},"spec":{"limits":[]}}`}, {"@ns/secrets", `{"metadata":{"name":"x"},"stringData":{"a":"b"}}`}, {"@ns/configmaps", `{"metadata":{"name":"x"},"binaryData":{"a":"MQ=="}}`},
	} {
		rows = append(rows, row("POST", created[0], jsonType, created[1]))
	}
	return rows
}

// hostilePaths write one ConfigMap by many spellings of its path.
func hostilePaths() (rows []hostileRow) {
	const item = "/api/v1/namespaces/hostile/configmaps/a"
	var paths []string
	for at := range item {
		if item[at] == '/' {
			for _, instead := range []string{"//", "///", "/./", "/x/../", "/%2e/", "/%2e%2e/", "%2f", "%2F", "/%2f", "%2f/", "\\", "%5c", "/;/", ";/", "/.;/", "/%20", "%20/", "/%00", "/%09", "/%0a", "/+", "/%252f", "/*"} {
				paths = append(paths, item[:at]+instead+item[at+1:])
			}
		} else {
			paths = append(paths, item[:at]+"%"+strings.ToUpper(hexDigits(item[at]))+item[at+1:])
		}
	}
	for _, end := range []string{"/", "//", "/.", "/..", "/../a", "/x/..", "%00", "%20", ";", ";x=1", "?", "??", "?/", "%3f", "%23", "#", "#x", "/%2e%2e/a", "%2e", ".", "..", "%", "%g1", "%c0%af", "%ff", "\u00e9", "A", ",b", "|b"} {
		paths = append(paths, item+end)
	}
	paths = append(paths, "//api/v1/namespaces/hostile/configmaps/a", "/api/v1/watch/namespaces/hostile/configmaps/a", "/api/v1/proxy/namespaces/hostile/configmaps/a", "/API/v1/namespaces/hostile/configmaps/a", "/api/V1/namespaces/hostile/configmaps/a",
		"/api/v1/Namespaces/hostile/configmaps/a", "/api/v1/namespaces/Hostile/configmaps/a", "/api/v1/namespaces/hostile/ConfigMaps/a", "/api/v1/namespaces/hostile/configmap/a", "/api/v1/namespaces/hostile/cm/a", "/api/v1/configmaps/a",
		"/api/v1/configmaps", "/apis/v1/namespaces/hostile/configmaps/a", "/apis//v1/namespaces/hostile/configmaps/a", "/apis/core/v1/namespaces/hostile/configmaps/a", "/api/v1/namespaces/hostile/namespaces/hostile/configmaps/a",
		"/api/v1/namespaces/hostile/status/a", "/api/v1/namespaces/hostile/finalize/a", "/api/v1/namespaces/hostile/nodes/hostile-a", "/api/v1/namespaces//nodes/hostile-a", "/api/v1/namespaces//configmaps/a", "/api//namespaces/hostile/configmaps/a",
		"http://@host/api/v1/namespaces/hostile/configmaps/a", "https://@host/api/v1/namespaces/hostile/configmaps/a", "http://other/api/v1/namespaces/hostile/configmaps/a", "HTTP://@host/api/v1/namespaces/hostile/configmaps/a",
		"http://u:p@@host/api/v1/namespaces/hostile/configmaps/a", "api/v1/namespaces/hostile/configmaps/a", "*", "", "@host/api/v1/namespaces/hostile/configmaps/a", "/api/v1/namespaces/hostile/configmaps/a HTTP/1.1 x",
		"/api/v1/watch/namespaces/hostile/configmaps", "/api/v1/proxy/nodes/hostile-a", "/api/v1/redirect/nodes/hostile-a", "/openapi/v2", "/healthz", "/api", "/apis", "/api/v1", "/version", "/metrics", "/logs/x", "/debug/pprof/", "/.well-known/openid-configuration")
	for _, path := range paths {
		rows = append(rows, row("PUT", path, jsonType, `{"metadata":{"name":"a"},"data":{"x":"y"}}`), row("DELETE", path, "", ``), row("PATCH", path, mergePatch, `{"data":{"x":"y"}}`), row("POST", path, jsonType, `{"metadata":{"name":"x"}}`))
	}
	return rows
}

func hexDigits(one byte) string {
	const digits = "0123456789abcdef"
	return string([]byte{digits[one>>4], digits[one&15]})
}

// hostileHeads write one ConfigMap with heads that could be read in another way.
func hostileHeads() (rows []hostileRow) {
	const item = "@ns/configmaps/a"
	put := row("PUT", item, jsonType, `{"metadata":{"name":"a"},"data":{"x":"y"}}`)
	for _, lines := range [][]string{
		{"X-HTTP-Method-Override: DELETE"}, {"X-HTTP-Method: GET"}, {"X-Method-Override: GET"}, {"Audit-ID: x"}, {"Impersonate-User: bob"}, {"Impersonate-User: mallory", "Impersonate-Group: system:masters"}, {"Impersonate-Uid: x"},
		{"X-Remote-User: bob"}, {"X-Remote-User: bob", "X-Remote-Group: x", "X-Remote-Extra-a: b"}, {"X-Forwarded-User: bob"}, {"Connection: X-Remote-User", "X-Remote-User: bob"}, {"Connection: Content-Type"}, {"Connection: Authorization"}, {"Connection: close"},
		{"Authorization: Bearer x"}, {"Authorization: Basic eDp5"}, {"Authorization: Bearer x", "Authorization: Bearer y"}, {"Expect: 100-continue"}, {"Expect: x"}, {"Content-Encoding: gzip"}, {"Content-Encoding: identity"}, {"Accept-Encoding: gzip"}, {"Accept: application/yaml"},
		{"Accept: application/vnd.kubernetes.protobuf"}, {"Accept: application/cbor"}, {"Accept: x/y"}, {"Accept: application/json;as=Table;v=v1;g=meta.k8s.io"}, {"Accept: application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"}, {"Accept: */*;q=0"},
		{"Upgrade: websocket", "Connection: Upgrade"}, {"Upgrade: SPDY/3.1", "Connection: Upgrade"}, {"Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA"}, {"Transfer-Encoding: identity"}, {"Host: other"}, {"Host: a", "Host: b"}, {"Host:"},
		{"Content-Type: application/yaml"}, {"Content-Type : application/json"}, {"content-type:text/plain"}, {"Trailer: X"}, {"TE: trailers"}, {"Forwarded: for=x"}, {"If-Match: x"}, {"If-None-Match: *"}, {"Range: bytes=0-1"}, {"Warning: 299 - x"}, {"X-Kubernetes-PF-FlowSchema-UID: x"},
		{"X-Fairgate-Reason: x"}, {"Kubectl-Command: x"}, {"Origin: http://x"}, {"Cookie: a=b"}, {"Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.eA"}, {"traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}, {"X-A:\tb"}, {"X-A: \x80"},
		{"User-Agent: "}, {"User-Agent: a/b c"}, {"User-Agent: " + strings.Repeat("x", 200)}, {"Max-Forwards: 0"}, {"Proxy-Authorization: Bearer x"}, {"Keep-Alive: 5"}, {"X-Original-URL: /api"}, {"X-Rewrite-URL: /api"},
	} {
		for _, version := range []string{"1.1", "1.0"} {
			one := put.with(lines...)
			one.version = version
			rows = append(rows, one)
		}
		rows = append(rows, row("DELETE", item, "", ``).with(lines...), row("PATCH", item, mergePatch, `{"data":{"x":"y"}}`).with(lines...), row("POST", "@ns/configmaps", jsonType, `{"metadata":{"name":"x"}}`).with(lines...))
	}
	chunked := func(size, body string) string { return size + "\r\n" + body + "\r\n0\r\n" }
	body := `{"metadata":{"name":"a"},"data":{"x":"y"}}`
	for _, sent := range []string{chunked("2a", body) + "\r\n", chunked("2A", body) + "X-Remote-User: bob\r\n\r\n", chunked("2a;x=y", body) + "\r\n", chunked("02a", body) + "\r\n", chunked("+2a", body) + "\r\n", chunked("0x2a", body) + "\r\n",
		chunked("2a ", body) + "\r\n", chunked("2a", body) + "Content-Type: text/plain\r\n\r\n", "2a\n" + body + "\n0\n\n", chunked("2a\t", body) + "\r\n"} {
		for _, encoding := range []string{"chunked", "Chunked", "gzip, chunked", "chunked, identity", "identity", "x"} {
			rows = append(rows, hostileRow{method: "PUT", target: item, headers: []string{"Content-Type: application/json", "Transfer-Encoding: " + encoding, "Connection: close"}, body: sent})
		}
		rows = append(rows, hostileRow{method: "PUT", target: item, headers: []string{"Content-Type: application/json", "Transfer-Encoding: chunked", "Content-Length: 5", "Connection: close"}, body: sent},
			hostileRow{method: "PUT", target: item, headers: []string{"Content-Type: application/json", "Transfer-Encoding: chunked", "Connection: close"}, body: sent, version: "1.0"})
	}
	for _, length := range []string{"42", "042", "+42", "42, 42", " 42 ", "0x2a", "41", "0", "-1", "99999999999999999999"} {
		rows = append(rows, hostileRow{method: "PUT", target: item, headers: []string{"Content-Type: application/json", "Content-Length: " + length, "Connection: close"}, body: body},
			hostileRow{method: "DELETE", target: item, headers: []string{"Content-Type: application/json", "Content-Length: " + length, "Connection: close"}, body: `{"dryRun":["All"],"apiVersion":"v1"        }`})
	}
	for _, media := range []string{"application/json", "application/json;", "application/json; charset=utf-16", "application/json; charset=\"utf-8\"", "APPLICATION/JSON", "application/json, application/yaml", "text/json", "application/*", "*/*", "application/yaml", "application/x-yaml", "text/yaml",
		"application/vnd.kubernetes.protobuf", "application/cbor", "application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch", "application/apply-patch+cbor", "application/apply-patch+yaml", "application/merge-patch+json", "application/merge-patch+json; charset=utf-8",
		"application/strategic-merge-patch+json", "application/json-patch+json", "application/json-patch+json;x", " application/json", "application/json\t", "application/x-www-form-urlencoded", "multipart/form-data", "", ";", "/", "application/json;;", "application/json; a", "application/json; a=b; a=c"} {
		for _, method := range []string{"PUT", "POST", "PATCH", "DELETE"} {
			target := item
			if method == "POST" {
				target = "@ns/configmaps"
			}
			sent := hostileRow{method: method, target: target, headers: []string{"Content-Type: " + media}, body: body}
			twice := hostileRow{method: method, target: target, headers: []string{"Content-Type: " + media, "Content-Type: application/json"}, body: body}
			rows = append(rows, sent, twice)
		}
	}
	return rows
}

// hostileConnections are for what connects to an object, and what does not.
func hostileConnections() (rows []hostileRow) {
	for _, target := range []string{"@ns/pods/a/exec?command=x", "@ns/pods/a/exec/?command=x", "@ns/pods/a/exec/x?command=x", "@ns/pods/a/attach", "@ns/pods/a/portforward?ports=80", "@ns/pods/a/proxy", "@ns/pods/a/proxy/", "@ns/pods/a/proxy/x/y", "@ns/pods/a/proxy/x//y", "@ns/pods/a/proxy/../x",
		"@ns/pods/a/proxy/x%2fy", "@ns/pods/a/proxy/%2e%2e/x", "@ns/pods/a:80/proxy/x", "@ns/pods/http:a:80/proxy/x", "@ns/services/a/proxy", "@ns/services/a/proxy/x", "@ns/services/https:a:80/proxy/x", "@ns/services/a:/proxy/", "/api/v1/nodes/hostile-a/proxy", "/api/v1/nodes/hostile-a/proxy/x",
		"/api/v1/nodes/hostile-a:10250/proxy/run/x", "/api/v1/nodes/https:hostile-a:1/proxy/", "/api/v1/proxy/namespaces/hostile/pods/a", "/api/v1/proxy/nodes/hostile-a", "@ns/pods/a/exec%2fx", "@ns/pods/a%2fexec", "@ns/pods//exec", "@ns/pods/a//exec", "@ns/pods/a/./exec", "@ns/pods/none/exec?command=x",
		"@ns/pods/a/proxy?watch=true", "@ns/pods/a/exec?watch=1&command=x", "@ns/pods/a/exec?command=x&container=c&stdin=1&stdout=true&tty=TRUE&stderr=maybe", "@ns/pods/a/log?follow=true", "@ns/pods/a/log?container=c&insecureSkipTLSVerifyBackend=true", "@ns/pods/a/EXEC", "@ns/Pods/a/exec",
		"/apis/apps/v1/namespaces/hostile/deployments/a/proxy", "/apis/judged.example.com/v1/namespaces/hostile/things/a/exec", "@ns/services/a/exec", "@ns/nodes/hostile-a/proxy", "/api/v1/pods/a/exec", "/api/v1/nodes/hostile-a/exec", "@ns/pods/a/portforward", "@ns/pods/a/portforward?ports=80&ports=x"} {
		for _, method := range []string{"GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "CONNECT", "TRACE", "get", "X"} {
			rows = append(rows, row(method, target, "", ``))
			if method == "GET" || method == "POST" || method == "PUT" {
				rows = append(rows, row(method, target, "", ``).with("Upgrade: SPDY/3.1", "Connection: Upgrade", "X-Stream-Protocol-Version: v4.channel.k8s.io"),
					row(method, target, "", ``).with("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Protocol: v5.channel.k8s.io"),
					row(method, target, jsonType, `{"kind":"PodExecOptions","apiVersion":"v1","command":["y"]}`))
			}
		}
	}
	return rows
}

// hostileSizes are deep and wide, where expressions print them.
func hostileSizes() (rows []hostileRow) {
	limits := "/apis/judged.example.com/v1/namespaces/hostile/limits"
	for _, depth := range []int{50, 1000, 9000, 10001} {
		for _, around := range [][2]string{{`[`, `]`}, {`{"a":`, `}`}, {`[{"a":`, `}]`}} {
			deep := strings.Repeat(around[0], depth) + `1` + strings.Repeat(around[1], depth)
			for _, body := range []string{`{"apiVersion":"judged.example.com/v1","kind":"Limit","metadata":{"name":"deep"},"spec":{"any":` + deep + `}}`, `{"apiVersion":"judged.example.com/v1","kind":"Limit","metadata":{"name":"deep"},"spec":{"free":{"x":` + deep + `}}}`} {
				rows = append(rows, row("POST", limits, jsonType, body))
			}
			rows = append(rows, row("PATCH", "@ns/configmaps/a", mergePatch, `{"x":`+deep+`}`), row("PATCH", "@ns/pods/a", strategicType, `{"metadata":{"labels":`+deep+`}}`), row("PATCH", "@ns/configmaps/a", jsonPatchType, `[{"op":"add","path":"/metadata/annotations","value":`+deep+`}]`))
		}
	}
	for _, wide := range []string{`[` + strings.Repeat(`1,`, 60_000) + `1]`, `{` + strings.Repeat(`"a":1,`, 60_000) + `"b":1}`, `"` + strings.Repeat("x", 1_000_000) + `"`} {
		rows = append(rows, row("POST", limits, jsonType, `{"apiVersion":"judged.example.com/v1","kind":"Limit","metadata":{"name":"wide"},"spec":{"any":`+wide+`}}`), row("PATCH", "@ns/configmaps/a", mergePatch, `{"data":{"x":`+wide+`}}`))
	}
	return rows
}
