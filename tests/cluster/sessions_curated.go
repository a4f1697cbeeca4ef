package cluster

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// CuratedSessions are written by hand, each about one subject of the API.
func CuratedSessions() []Session {
	var all []Session
	for _, entry := range []struct {
		name          string
		managedFields bool
		write         func(*script)
	}{
		{"codes", false, successCodes},
		{"discovery", false, discovery},
		{"builtin", false, builtinObjects},
		{"params", false, parameters},
		{"routes", false, routing},
		{"meta", false, objectMetadata},
		{"rules", false, metadataRules},
		{"generation", false, generations},
		{"names", false, objectNames},
		{"generate", false, generatedNames},
		{"finalizers", false, finalizers},
		{"policies", false, deletionPolicies},
		{"preconditions", false, preconditions},
		{"create", false, creation},
		{"read", false, reading},
		{"list", false, listing},
		{"selectors", false, selectors},
		{"pages", false, paging},
		{"watch", false, watching},
		{"update", false, updating},
		{"delete", false, deleting},
		{"collection", false, deletingCollections},
		{"patch", false, patching},
		{"strategic", false, strategicPatching},
		{"status", false, statusSubresource},
		{"dry", false, dryRuns},
		{"managers", true, fieldManagers},
		{"strict", false, fieldValidation},
		{"pretty", false, prettyPrinting},
		{"apply", true, applying},
		{"conflicts", true, applyConflicts},
		{"migration", true, kubectlMigration},
		{"ownership", true, ownership},
		{"ancient", true, ancientManagers},
		{"accept", false, negotiation},
		{"tables", false, tables},
		{"partial", false, partialObjects},
		{"protobuf", false, protobufBodies},
		{"yaml", false, yamlBodies},
		{"defaults", false, defaulting},
		{"decode", false, decodeErrors},
		{"schemas", false, flowSchemaRules},
		{"levels", false, levelRules},
	} {
		s := &script{Session{Name: entry.name, ManagedFields: entry.managedFields}}
		entry.write(s)
		all = append(all, s.Session)
	}
	return all
}

func successCodes(s *script) {
	for _, kind := range []struct {
		path, name, body, patched string
	}{
		{flowSchemasPath, "@f", flowSchema("@f"), `{"spec":{"matchingPrecedence":8000}}`},
		{levelsPath, "@p", level("@p"), `{"spec":{"limited":{"nominalConcurrencyShares":7}}}`},
	} {
		item := kind.path + "/" + kind.name
		s.get(item)
		s.post(kind.path, kind.body)
		s.post(kind.path, kind.body)
		s.get(item)
		s.get(item + "/status")
		s.get(kind.path + "?labelSelector=s=@all")
		s.put(item, kind.body)
		s.patch(item, mergePatch, kind.patched)
		s.patch(item, strategic, kind.patched)
		s.patch(item, jsonPatch, `[{"op":"add","path":"/metadata/annotations","value":{"a":"b"}}]`)
		s.apply(item, "me", edited(kind.body, `metadata.labels.x="y"`))
		s.apply(kind.path+"/"+kind.name+"2", "me", edited(kind.body, `metadata.name="`+kind.name+`2"`))
		s.delete(item)
		s.delete(item)
		s.get(item)
		s.put(item, kind.body)
		s.patch(item, mergePatch, kind.patched)
		s.delete(kind.path + "?labelSelector=s=@all")
		s.delete(kind.path + "?labelSelector=s=@all")
		s.get(kind.path + "?labelSelector=s=@all")
	}
}

func discovery(s *script) {
	s.get(groupPath)
	s.get(groupPath + "/")
	s.get(versionPath)
	s.get(versionPath + "/")
	s.get(versionPath, "Accept", yamlType)
	s.get(versionPath, "Accept", "application/vnd.kubernetes.protobuf")
	s.get(versionPath, "Accept", "text/html")
	s.post(groupPath, "{}")
	s.post(versionPath, "{}")
	s.do("HEAD", versionPath, "")
	s.get("/apis/flowcontrol.apiserver.k8s.io/v1beta1")
}

func builtinObjects(s *script) {
	for _, name := range []string{"exempt", "catch-all", "probes", "system-nodes", "global-default", "workload-leader-election", "service-accounts"} {
		s.get(flowSchemasPath + "/" + name)
	}
	for _, name := range []string{"exempt", "catch-all", "global-default", "leader-election", "node-high", "system", "workload-high", "workload-low"} {
		s.get(levelsPath + "/" + name)
	}
	s.patch(flowSchemasPath+"/exempt?dryRun=All", mergePatch, `{"spec":{"matchingPrecedence":2}}`)
	s.patch(flowSchemasPath+"/catch-all?dryRun=All", mergePatch, `{"spec":{"matchingPrecedence":9999}}`)
	s.patch(levelsPath+"/exempt?dryRun=All", mergePatch, `{"spec":{"exempt":{"nominalConcurrencyShares":5}}}`)
	s.patch(levelsPath+"/exempt?dryRun=All", mergePatch, `{"spec":{"type":"Limited"}}`)
	s.patch(levelsPath+"/exempt?dryRun=All", mergePatch, `{"spec":{"type":"Limited","limited":{"limitResponse":{"type":"Reject"}}}}`)
	s.patch(levelsPath+"/catch-all?dryRun=All", mergePatch, `{"spec":{"limited":{"nominalConcurrencyShares":6}}}`)
	s.delete(levelsPath + "/catch-all?dryRun=All")
	s.post(flowSchemasPath+"?dryRun=All", flowSchema("exempt"))
	s.post(flowSchemasPath+"?dryRun=All", flowSchema("catch-all"))
	s.post(levelsPath+"?dryRun=All", level("exempt"))
}

func parameters(s *script) {
	item := flowSchemasPath + "/@a"
	list := flowSchemasPath + "?labelSelector=s=@all"
	s.post(flowSchemasPath, flowSchema("@a"))
	s.post(flowSchemasPath, flowSchema("@b", "spec.matchingPrecedence=8000"))
	for _, query := range []string{
		"limit=x", "limit=-1", "limit=0", "limit=1", "limit=", "limit=9223372036854775808", "timeoutSeconds=abc", "timeoutSeconds=1",
		"timeoutSeconds=-5", "watch=false", "watch=0", "watch=False", "allowWatchBookmarks=x", "unknown=1", "limit=1&limit=2", "continue=",
		"resourceVersion=abc", "resourceVersion=0", "resourceVersion=-1", "resourceVersion=", "resourceVersion=01", "resourceVersion=1.5",
		"resourceVersionMatch=Exact", "resourceVersion=0&resourceVersionMatch=Exact", "resourceVersion=0&resourceVersionMatch=NotOlderThan",
		"resourceVersion=1&resourceVersionMatch=exact", "resourceVersionMatch=foo", "sendInitialEvents=true", "sendInitialEvents=false",
		"sendInitialEvents=", "includeObject=x", "timeout=x", "timeout=10", "timeout=10s", "timeout=-1s", "timeout=0", "timeout=100s",
		"fieldSelector=metadata.name=@a", "shardSelector=x", "pretty=x", "labelSelector=none=none",
	} {
		s.get(list + "&" + query)
	}
	s.get(flowSchemasPath + "?&labelSelector=s=@all&limit=1")
	s.get(list + "&limit=1;x=2")
	s.get(list + "&limit=1&x=%ZZ&limit=x")
	s.get(list + "&limit=%31")
	s.get(list + "&limit=+1")
	for _, query := range []string{"resourceVersion=0", "resourceVersion=abc", "resourceVersion={{rv:@a}}", "export=true", "export=false", "export=",
		"timeout=x", "includeObject=x", "limit=x", "unknown", "resourceVersion=-1"} {
		s.get(item + "?" + query)
	}
	again := flowSchema("@a")
	for _, query := range []string{"dryRun=", "dryRun=true", "dryRun=All&dryRun=All", "dryRun=All&dryRun=x", "dryRun=all", "fieldManager=" + strings.Repeat("x", 128),
		"fieldManager=" + strings.Repeat("x", 129), "fieldManager=a%0Ab", "fieldManager=%00", "fieldManager=", "fieldValidation=x", "fieldValidation=strict",
		"fieldValidation=", "fieldValidation=Ignore", "force=true", "force=x", "timeout=1x", "dryRun=x&fieldManager=%0A&fieldValidation=y"} {
		s.put(item+"?"+query, again)
		s.patch(item+"?"+query, mergePatch, "{}")
	}
	s.post(flowSchemasPath+"?dryRun=x", flowSchema("@c"))
	s.post(flowSchemasPath+"?fieldManager=%0A", flowSchema("@c"))
	s.post(flowSchemasPath+"?fieldValidation=bad&dryRun=x", flowSchema("@c"))
	for _, query := range []string{"gracePeriodSeconds=x", "gracePeriodSeconds=-1&dryRun=All", "propagationPolicy=x", "propagationPolicy=Orphan&orphanDependents=true",
		"orphanDependents=x&dryRun=x", "dryRun=x", "uid=nope", "resourceVersion=1", "resourceVersion=x", "propagationPolicy=&dryRun=All",
		"ignoreStoreReadErrorWithClusterBreakingPotential=true&dryRun=All", "timeout=x", "gracePeriodSeconds=0&dryRun=All"} {
		s.delete(item + "?" + query)
	}
	s.delete(item + "?gracePeriodSeconds=30&propagationPolicy=Background")
	s.delete(flowSchemasPath + "/@b?orphanDependents=false")
}

func routing(s *script) {
	for _, path := range []string{"/apis/nope/v1", "/nope", "/apis/flowcontrol.apiserver.k8s.io/v9", "/apis/flowcontrol.apiserver.k8s.io/v9/flowschemas",
		versionPath + "/foos", versionPath + "/foos/x", flowSchemasPath + "/x/foo", flowSchemasPath + "/x/status/y", versionPath + "/watch",
		versionPath + "/watch/foos", versionPath + "/watch/flowschemas/x/status", versionPath + "/namespaces/default/flowschemas",
		versionPath + "/namespaces/default/flowschemas/x", flowSchemasPath + "/", versionPath + "/FlowSchemas", flowSchemasPath + "/@absent/",
		flowSchemasPath + "//x", flowSchemasPath + "/%2e%2e", flowSchemasPath + "/a%2Fb", flowSchemasPath + "/a%20b"} {
		if path == flowSchemasPath+"/" {
			path += "?labelSelector=s=@none"
		}
		s.get(path)
		s.delete(path)
	}
	for _, path := range []string{levelsPath + "//?labelSelector=s=@none", levelsPath + "/@absent//", levelsPath + "/@absent/status//", levelsPath + "/@absent/foo//", versionPath + "/watch/prioritylevelconfigurations//?labelSelector=s=@none&timeoutSeconds=1",
		"/apis/flowcontrol.apiserver.k8s.io/v9//", "/apis//", "/version/x", "/index.html/", "/healthz/", "/livez/", "/readyz/", "/metrics/", "/openapi/v2/", "/openapi/v3/", "/openapi/v3/apis/flowcontrol.apiserver.k8s.io/v1/"} {
		s.get(path)
	}
	paths := []string{flowSchemasPath + "?labelSelector=s=@none", flowSchemasPath + "/@x", flowSchemasPath + "/@x/status",
		versionPath + "/watch/flowschemas?labelSelector=s=@none&timeoutSeconds=1", versionPath + "/watch/flowschemas/@x?timeoutSeconds=1"}
	for _, path := range paths {
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "NOPE"} {
			s.do(method, path, "", contentHeader, mergePatch)
		}
	}
	for _, kind := range []string{jsonType, "", "text/plain", "application/merge-patch+json; charset=utf-8", "APPLICATION/MERGE-PATCH+JSON", "application/apply-patch+cbor", "nonsense"} {
		s.patch(flowSchemasPath+"/@x", kind, "{}")
		s.do("DELETE", flowSchemasPath+"/@x", "{}", contentHeader, kind)
		s.do("POST", flowSchemasPath, flowSchema("@x"), contentHeader, kind)
		s.do("PUT", flowSchemasPath+"/@x", flowSchema("@x"), contentHeader, kind)
		s.delete(flowSchemasPath + "/@x")
	}
	for _, accept := range []string{"text/html", "application/*", "*/*", "image/png, */*;q=0.1", "application/cbor", "application/json;q=0", "text/html, application/yaml", "garbage", ";", ","} {
		s.get(flowSchemasPath+"/@x", "Accept", accept)
		s.get(flowSchemasPath+"?labelSelector=s=@none", "Accept", accept)
		s.post(flowSchemasPath+"?dryRun=All", "{}", "Accept", accept)
		s.delete(flowSchemasPath+"/@x", "Accept", accept)
	}
	s.patch(flowSchemasPath+"/@x", mergePatch, "{}", "Accept", "text/html")
	s.get("/apis/nope/v1", "Accept", "text/html")
	s.get(versionPath+"/foos", "Accept", yamlType)
	s.get(versionPath+"/foos", "Accept", protobufType)
	s.put(flowSchemasPath, "{}", "Accept", yamlType)
}

func objectMetadata(s *script) {
	server := []string{`metadata.uid="00000000-0000-0000-0000-000000000001"`, `metadata.creationTimestamp="2001-01-01T00:00:00Z"`,
		`metadata.deletionTimestamp="2001-01-01T00:00:00Z"`, `metadata.deletionGracePeriodSeconds=5`, `metadata.generation=77`, `metadata.selfLink="/x"`,
		`metadata.namespace="default"`, `metadata.resourceVersion="0"`}
	s.post(flowSchemasPath, flowSchema("@a", server...))
	item := flowSchemasPath + "/@a"
	s.get(item)
	s.put(item, flowSchema("@a", server[1:]...))
	s.put(item, flowSchema("@a", `metadata.namespace="other"`, `metadata.annotations={"a":"1"}`))
	for _, part := range []string{`"namespace":"x"`, `"selfLink":"x"`, `"generation":99`, `"creationTimestamp":null`, `"creationTimestamp":"2001-01-01T00:00:00Z"`,
		`"deletionTimestamp":"2001-01-01T00:00:00Z"`, `"deletionGracePeriodSeconds":1`, `"uid":""`, `"uid":"{{uid:@a}}"`, `"uid":"00000000-0000-0000-0000-000000000001"`,
		`"name":"@b"`, `"name":""`, `"name":null`, `"generateName":"@g-"`, `"generateName":"Bad_"`, `"labels":null`, `"annotations":{"k":null,"m":"1"}`, `"resourceVersion":"1"`,
		`"resourceVersion":"x"`, `"resourceVersion":"0"`, `"resourceVersion":""`, `"resourceVersion":null`, `"resourceVersion":"{{rv:@a}}"`, `"managedFields":[]`, `"managedFields":null`,
		`"managedFields":[{}]`, `"managedFields":[{"manager":"x"}]`, `"ownerReferences":[]`, `"finalizers":[]`} {
		s.patch(item, mergePatch, `{"metadata":{`+part+`}}`)
	}
	s.patch(item, mergePatch, `{"metadata":null}`)
	s.patch(item, mergePatch, `{"metadata":{}}`)
	s.get(item)
	s.apply(item, "m", flowSchema("@a", `metadata.namespace="default"`))
	s.post(flowSchemasPath, flowSchema("@c", `metadata.resourceVersion="5"`))
	s.post(flowSchemasPath, flowSchema("@c", `metadata.resourceVersion="x"`))
	s.delete(item)
}

func metadataRules(s *script) {
	long := strings.Repeat("x", 64)
	for _, edit := range []string{
		`metadata.labels={"a b":"x"}`, `metadata.labels={"a":"x y"}`, `metadata.labels={"` + long + `":"x"}`, `metadata.labels={"a":"` + long + `"}`, `metadata.labels={"":"x"}`,
		`metadata.labels={"/a":"x"}`, `metadata.labels={"A_/b":"x"}`, `metadata.labels={"a/b/c":"x"}`, `metadata.labels={"a":""}`, `metadata.labels={"-a":"b-"}`,
		`metadata.labels={"example.com/":"b"}`, `metadata.labels={"b":"-","a":"_"}`, `metadata.labels={"a":1}`, `metadata.labels=[]`, `metadata.labels="x"`,
		`metadata.annotations={"a b":"x"}`, `metadata.annotations={"UPPER.com/x":"any thing"}`, `metadata.annotations={"":"x"}`, `metadata.annotations={"a":null}`,
		`metadata.finalizers=["a"]`, `metadata.finalizers=["a b"]`, `metadata.finalizers=[""]`, `metadata.finalizers=["example.com/x","example.com/x"]`,
		`metadata.finalizers=["orphan","foregroundDeletion"]`, `metadata.finalizers=["kubernetes"]`, `metadata.finalizers=["orphan"]`, `metadata.finalizers="x"`,
		`metadata.ownerReferences=[{}]`, `metadata.ownerReferences=[{"apiVersion":"v1","kind":"Pod","name":"x","uid":"u"}]`,
		`metadata.ownerReferences=[{"apiVersion":"v1","kind":"Event","name":"x","uid":"u"}]`, `metadata.ownerReferences=[{"apiVersion":"a/b/c","kind":"Pod","name":"x","uid":"u"}]`,
		`metadata.ownerReferences=[{"apiVersion":"v1","kind":"Pod","name":"x","uid":"u"},{"apiVersion":"v1","kind":"Pod","name":"x","uid":"u"}]`,
		`metadata.ownerReferences=[{"apiVersion":"v1","kind":"Pod","name":"x","uid":"u"},{"apiVersion":"v1","kind":"Pod","name":"y","uid":"u"}]`,
		`metadata.ownerReferences=[{"apiVersion":"v1","kind":"Pod","name":"x","uid":"u","controller":true},{"apiVersion":"v1","kind":"Pod","name":"y","uid":"w","controller":true}]`,
		`metadata.ownerReferences=[{"apiVersion":"v1","kind":"Pod","name":"x","uid":"u","controller":true,"blockOwnerDeletion":false}]`,
		`metadata.ownerReferences=[{"apiVersion":"","kind":"","name":"","uid":""},null]`, `metadata.ownerReferences=[null]`,
		`metadata.managedFields=[{"manager":"x","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{}}}]`,
		`metadata.managedFields=[{"manager":"x","operation":"Bad"}]`, `metadata.managedFields=[{"manager":"x","operation":"Update","fieldsType":"FieldsV2"}]`,
		`metadata.generateName="@g-"`, `metadata.generateName="_"`, `metadata.deletionGracePeriodSeconds=-1`, `metadata.generation="x"`, `metadata.uid=5`,
		`metadata.creationTimestamp="yesterday"`, `metadata.creationTimestamp=5`, `metadata.creationTimestamp="2001-01-01T00:00:00.5+02:00"`, `metadata=[]`, `metadata="x"`, `metadata=null`,
	} {
		s.post(flowSchemasPath+"?dryRun=All", flowSchema("@a", edit))
	}
	s.post(flowSchemasPath, flowSchema("@a"))
	for _, body := range []string{
		`{"metadata":{"labels":{"a b":"x"}}}`, `{"metadata":{"finalizers":["a b"]}}`, `{"metadata":{"annotations":{"a b":"x"}}}`,
		`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"x","uid":"u"},{"apiVersion":"v1","kind":"Pod","name":"x","uid":"u"}]}}`,
		`{"metadata":{"ownerReferences":null,"labels":{"b c":"d"}},"spec":{"matchingPrecedence":-1}}`, `{"metadata":{"managedFields":[{"manager":"x","operation":"Bad"}]}}`,
	} {
		s.patch(flowSchemasPath+"/@a", mergePatch, body)
	}
	s.patch(flowSchemasPath+"/@a/status", mergePatch, `{"metadata":{"labels":{"a b":"x"}}}`)
	s.delete(flowSchemasPath + "/@a")
}

func generations(s *script) {
	item := levelsPath + "/@a"
	s.post(levelsPath, level("@a"))
	for _, body := range []string{`{"metadata":{"labels":{"x":"1"}}}`, `{"spec":{"limited":{"nominalConcurrencyShares":3}}}`, `{"spec":{"limited":{"lendablePercent":null}}}`,
		`{"spec":{"limited":{"lendablePercent":0}}}`, `{"spec":{"limited":{"borrowingLimitPercent":0}}}`, `{"spec":{"limited":{"borrowingLimitPercent":null}}}`,
		`{"status":{"conditions":[{"type":"X","status":"True"}]}}`, `{"metadata":{"generation":55}}`, `{"spec":{"limited":{"nominalConcurrencyShares":null}}}`,
		`{"spec":{"limited":{"nominalConcurrencyShares":30}}}`} {
		s.patch(item, mergePatch, body)
	}
	s.patch(item+"/status", mergePatch, `{"status":{"conditions":[{"type":"X","status":"True"}]}}`)
	s.patch(item, mergePatch, `{"metadata":{"finalizers":["example.com/x"]}}`)
	s.delete(item)
	s.patch(item, mergePatch, `{"spec":{"limited":{"nominalConcurrencyShares":31}}}`)
	s.delete(item)
	s.patch(item, mergePatch, `{"metadata":{"finalizers":null}}`)
	s.get(item)
	schema := flowSchemasPath + "/@f"
	s.post(flowSchemasPath, fullFlowSchema("@f"))
	s.patch(schema, mergePatch, `{"spec":{"distinguisherMethod":null}}`)
	s.patch(schema, jsonPatch, `[{"op":"add","path":"/spec/rules/0/resourceRules/0/namespaces/-","value":"other"}]`)
	s.patch(schema, jsonPatch, `[{"op":"add","path":"/spec/rules/0/resourceRules/0/clusterScope","value":false}]`)
	s.patch(schema, jsonPatch, `[{"op":"replace","path":"/spec/rules","value":[]}]`)
	s.patch(schema, jsonPatch, `[{"op":"remove","path":"/spec/rules"}]`)
	s.patch(schema, mergePatch, `{"spec":{"matchingPrecedence":0}}`)
	s.patch(schema, mergePatch, `{"spec":{"matchingPrecedence":1000}}`)
	s.delete(schema)
}

func objectNames(s *script) {
	for _, name := range []string{"@UPPER", "@a_b", "@a.b", "@a..b", "-@a", "@a-", "@ä", "@a b", "@a/b", "@a%", strings.Repeat("a", 254), "@" + strings.Repeat("a", 62) + ".b", "", ".", "..", "@a:b"} {
		s.post(flowSchemasPath+"?dryRun=All", flowSchema(name))
		s.post(levelsPath+"?dryRun=All", level(name))
		if name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/") {
			s.apply(flowSchemasPath+"/"+url.PathEscape(name)+"?dryRun=All", "m", flowSchema(name))
		}
	}
	s.post(flowSchemasPath+"?dryRun=All", flowSchema("x", "-metadata.name"))
	s.post(flowSchemasPath+"?dryRun=All", flowSchema("x", "metadata.name=7"))
	s.post(flowSchemasPath+"?dryRun=All", flowSchema("x", "metadata.name=null"))
	s.get(flowSchemasPath + "/@UPPER")
	s.put(flowSchemasPath+"/@b", flowSchema("@a"))
	s.put(flowSchemasPath+"/@b", flowSchema("@b", "-metadata.name"))
	s.apply(flowSchemasPath+"/@b", "m", flowSchema("@a"))
	s.apply(flowSchemasPath+"/@b", "m", flowSchema("@b", "-metadata.name"))
}

func generatedNames(s *script) {
	for _, prefix := range []string{"@", "@g-", strings.Repeat("g", 70), "@x.", "@UP", "@a_", "a-", "-", "."} {
		s.post(flowSchemasPath+"?dryRun=All", flowSchema("x", "-metadata.name", `metadata.generateName="`+prefix+`"`))
	}
	s.post(flowSchemasPath, flowSchema("x", "-metadata.name", `metadata.generateName="@g-"`))
	s.post(flowSchemasPath, flowSchema("x", "-metadata.name", `metadata.generateName="@g-"`))
	s.get(flowSchemasPath + "/{{generated:10}}")
	s.delete(flowSchemasPath + "/{{generated:11}}")
	s.post(flowSchemasPath, flowSchema("@named", `metadata.generateName="@h-"`))
	s.patch(flowSchemasPath+"/@named", mergePatch, `{"metadata":{"generateName":"@i-"}}`)
	s.patch(flowSchemasPath+"/@named", mergePatch, `{"metadata":{"generateName":"@_"}}`)
	s.patch(flowSchemasPath+"/@named", mergePatch, `{"metadata":{"generateName":null}}`)
	s.apply(flowSchemasPath+"/@late", "m", flowSchema("x", "-metadata.name", `metadata.generateName="@h-"`))
	s.delete(flowSchemasPath + "?labelSelector=s=@all")
}

func finalizers(s *script) {
	item := flowSchemasPath + "/@a"
	s.post(flowSchemasPath, flowSchema("@a", `metadata.finalizers=["example.com/one","example.com/two"]`))
	s.delete(item + "?dryRun=All")
	s.delete(item)
	s.delete(item)
	s.post(flowSchemasPath, flowSchema("@a"))
	s.get(item)
	s.patch(item, mergePatch, `{"metadata":{"finalizers":["example.com/one","example.com/two","example.com/three"]}}`)
	s.patch(item, mergePatch, `{"metadata":{"deletionTimestamp":null}}`)
	s.patch(item, mergePatch, `{"metadata":{"deletionTimestamp":"2030-01-01T00:00:00Z","deletionGracePeriodSeconds":7}}`)
	s.put(item, flowSchema("@a", `metadata.finalizers=["example.com/one"]`))
	s.patch(item+"/status", mergePatch, `{"metadata":{"finalizers":null},"status":{"conditions":[{"type":"T","status":"True"}]}}`)
	s.get(item)
	s.patch(item+"?dryRun=All", mergePatch, `{"metadata":{"finalizers":[]}}`)
	s.get(item)
	s.patch(item, jsonPatch, `[{"op":"remove","path":"/metadata/finalizers/0"}]`)
	s.get(item)
	s.post(flowSchemasPath, flowSchema("@b", `metadata.finalizers=["example.com/one"]`))
	s.delete(flowSchemasPath + "/@b?orphanDependents=false")
	s.delete(flowSchemasPath + "/@b?orphanDependents=true")
	s.watch(flowSchemasPath, "fieldSelector=metadata.name=@b&resourceVersion={{first:@b}}")
	s.put(flowSchemasPath+"/@b", flowSchema("@b", `metadata.annotations={"last":"words"}`))
	s.watch(flowSchemasPath, "fieldSelector=metadata.name=@b&resourceVersion={{first:@b}}")
	s.get(flowSchemasPath + "/@b")
	s.post(flowSchemasPath, flowSchema("@c", `metadata.finalizers=["example.com/one"]`))
	s.delete(flowSchemasPath + "?labelSelector=s=@all")
	s.get(flowSchemasPath + "?labelSelector=s=@all")
	s.apply(flowSchemasPath+"/@c?force=true", "m", flowSchema("@c", `metadata.finalizers=["example.com/four"]`))
	s.patch(flowSchemasPath+"/@c", strategic, `{"metadata":{"$deleteFromPrimitiveList/finalizers":["example.com/one"]}}`)
	s.get(flowSchemasPath + "/@c")
}

func deletionPolicies(s *script) {
	number := 0
	for _, had := range []string{`[]`, `["orphan"]`, `["foregroundDeletion"]`, `["example.com/x"]`} {
		for _, query := range []string{"", "propagationPolicy=Orphan", "propagationPolicy=Foreground", "propagationPolicy=Background", "orphanDependents=true", "orphanDependents=false"} {
			number++
			name := fmt.Sprintf("@p%d", number)
			s.post(levelsPath, level(name, "metadata.finalizers="+had, `spec={"type":"Limited","limited":{"limitResponse":{"type":"Reject"}}}`))
			s.delete(levelsPath + "/" + name + "?" + query)
		}
	}
	s.do("DELETE", levelsPath+"/@p2", `{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Background"}`, contentHeader, jsonType)
	for _, name := range []string{"@p7", "@p8", "@p13", "@p14", "@p19", "@p20"} {
		s.patch(levelsPath+"/"+name, mergePatch, `{"metadata":{"finalizers":null}}`)
	}
	s.get(levelsPath + "?labelSelector=s=@all&limit=1")
	s.do("DELETE", levelsPath+"?labelSelector=s=@all", `{"gracePeriodSeconds":0}`, contentHeader, jsonType)
}

func preconditions(s *script) {
	item := flowSchemasPath + "/@a"
	s.post(flowSchemasPath, flowSchema("@a"))
	wrong := "00000000-0000-0000-0000-000000000001"
	for _, body := range []string{`{"preconditions":{"uid":"` + wrong + `"}}`, `{"preconditions":{"resourceVersion":"1"}}`,
		`{"preconditions":{"uid":"{{uid:@a}}","resourceVersion":"1"}}`, `{"preconditions":{"uid":"` + wrong + `","resourceVersion":"1"}}`, `{"preconditions":{"uid":""}}`,
		`{"dryRun":["All"],"preconditions":{}}`, `{"dryRun":["All"],"preconditions":{"uid":"{{uid:@a}}","resourceVersion":"{{rv:@a}}"}}`} {
		s.do("DELETE", item, body, contentHeader, jsonType)
	}
	s.delete(item + "?uid=" + wrong)
	s.delete(item + "?resourceVersion=1")
	s.put(item, flowSchema("@a", `metadata.uid="`+wrong+`"`))
	s.put(item, flowSchema("@a", `metadata.uid="{{uid:@a}}"`, "spec.matchingPrecedence=10"))
	s.patch(item, mergePatch, `{"metadata":{"uid":"`+wrong+`"}}`)
	s.patch(flowSchemasPath+"/@none", mergePatch, `{"metadata":{"uid":"`+wrong+`"}}`)
	s.apply(flowSchemasPath+"/@none", "m", flowSchema("@none", `metadata.uid="`+wrong+`"`))
	s.apply(item, "m", flowSchema("@a", `metadata.uid="`+wrong+`"`))
	s.apply(flowSchemasPath+"/@none", "m", flowSchema("@none", `metadata.resourceVersion="5"`))
	s.put(flowSchemasPath+"/@none", flowSchema("@none", `metadata.uid="`+wrong+`"`))
	s.post(flowSchemasPath, flowSchema("@b"))
	s.do("DELETE", flowSchemasPath+"?labelSelector=s=@all", `{"preconditions":{"uid":"{{uid:@b}}"}}`, contentHeader, jsonType)
	s.do("DELETE", flowSchemasPath+"?labelSelector=s=@all", `{"preconditions":{"resourceVersion":"1"}}`, contentHeader, jsonType)
	s.do("DELETE", item, `{"preconditions":{"uid":"{{uid:@a}}","resourceVersion":"{{rv:@a}}"}}`, contentHeader, jsonType)
	s.delete(flowSchemasPath + "/@b?uid={{uid:@b}}&resourceVersion={{rv:@b}}")
}

func creation(s *script) {
	s.post(flowSchemasPath, flowSchema("@a", "-apiVersion", "-kind"))
	s.post(flowSchemasPath, flowSchema("@b", "-apiVersion"))
	s.post(flowSchemasPath, flowSchema("@c", "-kind"))
	s.post(flowSchemasPath, flowSchema("@d", `apiVersion="flowcontrol.apiserver.k8s.io/v1beta3"`))
	s.post(flowSchemasPath, flowSchema("@d", `apiVersion="flowcontrol.apiserver.k8s.io/v7"`))
	s.post(flowSchemasPath, flowSchema("@d", `apiVersion="v1"`))
	s.post(flowSchemasPath, flowSchema("@d", `apiVersion="a/b/c"`))
	s.post(flowSchemasPath, flowSchema("@d", `kind="PriorityLevelConfiguration"`))
	s.post(flowSchemasPath, level("@d"))
	s.post(flowSchemasPath, flowSchema("@d", `kind="Nonsense"`))
	s.post(flowSchemasPath, flowSchema("@d", `kind="FlowSchemaList"`))
	s.post(flowSchemasPath, flowSchema("@d", `kind=""`))
	s.post(flowSchemasPath, flowSchema("@d", `kind=5`))
	s.post(flowSchemasPath, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"@d"}}`)
	s.post(flowSchemasPath, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"@d"}}`)
	// Kinds that every version of every group has.
	for _, kind := range []string{"WatchEvent", "ListOptions", "GetOptions", "DeleteOptions", "CreateOptions", "UpdateOptions", "PatchOptions", "Status", "APIGroup", "Table", "List"} {
		s.post(flowSchemasPath, `{"apiVersion":"flowcontrol.apiserver.k8s.io/v1","kind":"`+kind+`"}`)
	}
	for _, version := range []string{"v1", "flowcontrol.apiserver.k8s.io/v1beta3", "flowcontrol.apiserver.k8s.io/__internal", "meta.k8s.io/v1", "nope/v9"} {
		s.post(levelsPath, `{"apiVersion":"`+version+`","kind":"DeleteOptions"}`)
		s.put(levelsPath+"/@a", `{"apiVersion":"`+version+`","kind":"Status"}`)
	}
	s.post(flowSchemasPath, `{"apiVersion":"v1","kind":"Status","status":5}`)
	s.post(flowSchemasPath, `{"apiVersion":"flowcontrol.apiserver.k8s.io/v1","kind":"FlowSchemaList","items":{}}`)
	s.post(flowSchemasPath, flowSchema("@e", `status={"conditions":[{"type":"X","status":"True"}]}`))
	s.post(flowSchemasPath+"/@f", flowSchema("@f"))
	s.post(flowSchemasPath+"/@a/status", flowSchema("@a"))
	s.post(flowSchemasPath, flowSchema("@f"), contentHeader, "application/json; charset=utf-8")
	s.do("POST", flowSchemasPath, flowSchema("@g"))
	s.post(flowSchemasPath, flowSchema("@h")+"\n\n")
	s.post(flowSchemasPath, flowSchema("@i")+flowSchema("@j"))
	s.post(flowSchemasPath, "\ufeff"+flowSchema("@i"))
	s.post(flowSchemasPath, "  \n"+flowSchema("@k"))
	s.post(flowSchemasPath, `{"metadata":{"name":"@l"}}`)
	s.post(flowSchemasPath, `{"metadata":{"name":"@l"},"spec":{}}`)
	s.post(levelsPath, `{"metadata":{"name":"@l"}}`)
	s.post(levelsPath, `{"metadata":{"name":"@l"},"spec":null}`)
	s.post(levelsPath, `{"metadata":{"name":"@l"},"spec":{"type":"Limited"}}`)
	s.post(levelsPath, `{"metadata":{"name":"@l","labels":{"s":"@all"}},"spec":{"type":"Limited","limited":{"limitResponse":{"type":"Reject"}}}}`)
	s.post(levelsPath, `{"metadata":{"name":"@m","labels":{"s":"@all"}},"spec":{"type":"Limited","limited":{"limitResponse":{"type":"Queue","queuing":{}}}}}`)
	s.post(levelsPath, `{"metadata":{"name":"@n","labels":{"s":"@all"}},"spec":{"type":"Exempt","exempt":{}}}`)
	s.delete(levelsPath + "?labelSelector=s=@all")
	s.delete(flowSchemasPath + "?labelSelector=s=@all")
}

func reading(s *script) {
	s.post(flowSchemasPath, flowSchema("@a"))
	item := flowSchemasPath + "/@a"
	for _, query := range []string{"resourceVersion={{rv:@a}}", "resourceVersion=1", "resourceVersion=0", "resourceVersion=abc", "resourceVersion=", "resourceVersion=-1",
		"resourceVersion=999999999999999999", "resourceVersion=99999999999999999999", "resourceVersionMatch=Exact", "watch=true", "labelSelector=x=y", "fieldSelector=bad"} {
		s.get(item + "?" + query)
	}
	s.get(item + "/status?resourceVersion=0")
	s.get(flowSchemasPath + "/@none?resourceVersion=0")
	s.get(flowSchemasPath + "/@none/status")
	s.get(levelsPath + "/@a")
	s.delete(item)
}

func listing(s *script) {
	for _, name := range []string{"@b", "@a", "@c"} {
		s.post(flowSchemasPath, flowSchema(name))
	}
	s.patch(flowSchemasPath+"/@c", mergePatch, `{"metadata":{"labels":{"tier":"x"}}}`)
	list := flowSchemasPath + "?labelSelector=s=@all"
	for _, query := range []string{"", "&resourceVersion=0", "&resourceVersion={{rv:@b}}", "&resourceVersion={{first:@c}}&resourceVersionMatch=Exact",
		"&resourceVersion={{first:@b}}&resourceVersionMatch=Exact", "&resourceVersion={{first:@a}}&limit=5", "&resourceVersion={{first:@a}}&limit=1",
		"&resourceVersion={{rv:@a}}&resourceVersionMatch=NotOlderThan", "&resourceVersionMatch=NotOlderThan", "&resourceVersion=0&resourceVersionMatch=Exact",
		"&resourceVersion=5&resourceVersionMatch=Bad", "&resourceVersionMatch=Exact&continue=x", "&resourceVersion=abc", "&resourceVersion=abc&resourceVersionMatch=Exact",
		"&resourceVersion=999999999999999999&resourceVersionMatch=Exact", "&resourceVersion=999999999999999999", "&sendInitialEvents=true",
		"&resourceVersion=0&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", "&resourceVersion=x&limit=1", "&resourceVersion=0&limit=1"} {
		s.get(list + query)
	}
	s.get(flowSchemasPath + "?labelSelector=s=@nothing")
	s.get(levelsPath + "?labelSelector=s=@all")
	s.delete(list)
}

func selectors(s *script) {
	for i, name := range []string{"@a", "@b", "@c", "@d"} {
		labels := []string{`{"s":"@all","n":"1","x":"a"}`, `{"s":"@all","n":"22","x":"b"}`, `{"s":"@all","n":"word"}`, `{"s":"@all","x":""}`}[i]
		s.post(levelsPath, level(name, "metadata.labels="+labels, `spec={"type":"Limited","limited":{"limitResponse":{"type":"Reject"}}}`))
	}
	for _, part := range []string{"x", "!x", "x=a", "x==a", "x!=a", "x in (a,b)", "x notin (a)", "x in ()", "x in (,a)", "n>5", "n<5", "n>x", "n>-1", "x=", "x!=", " x = a ", "x in(a)", "in in (a)",
		"x in (a", "x ina", "x=a=b", "x,,n", ",x", "x,", "=a", "x=a b", "x in (a b)", "!x=a", "x>", "(", ")", "-x", "x=-", "a/b/c=d", "notin", "x notin (a),n", "exists", "x in (in,notin)", "!", "!!x",
		strings.Repeat("k", 64), "x=" + strings.Repeat("v", 64), "x in (a,a)", "x = ", "x in (a),", "é=1", "x=é", "x gt 5", "n>1,n<50"} {
		// The name keeps to this session's objects whatever the rest says.
		s.get(levelsPath + "?includeObject=None&labelSelector=" + escaped("s=@all,"+part))
		s.get(levelsPath+"?limit=1&fieldSelector=metadata.name=@a&labelSelector="+escaped(part), "Accept", partialsType)
	}
	for _, part := range []string{"metadata.name=@a", "metadata.name==@a", "metadata.name!=@a", "metadata.name=@a,metadata.name=@b", "metadata.name!=@a,metadata.name!=@b",
		"metadata.namespace=default", "metadata.namespace!=default", "metadata.namespace=", "spec.type=Limited", "metadata.name", "=x", "metadata.name=", ",", "metadata.name=a=b", `metadata.name=a\=b`,
		`metadata.name=a\x`, `metadata.name=a\`, "metadata.name=@a,", "metadata.name in (a)", "metadata.uid=x", "name=x", " metadata.name=@a", "metadata.name= @a", "metadata.name=A_B", "metadata.name=a/b"} {
		s.get(levelsPath+"?labelSelector=s=@all&fieldSelector="+escaped(part), "Accept", partialsType)
	}
	s.delete(levelsPath + "?labelSelector=s=@all&fieldSelector=metadata.name=@a")
	s.delete(levelsPath + "?labelSelector=s=@all&fieldSelector=spec.type=x")
	s.delete(levelsPath + "?labelSelector=s=@all&labelSelector=zzz")
	s.get(levelsPath + "?labelSelector=s=@all")
	s.get(levelsPath + "?labelSelector=s=@all&fieldSelector=spec.type=x&resourceVersionMatch=x")
}

func paging(s *script) {
	for _, name := range []string{"@a", "@b", "@c", "@d", "@e"} {
		s.post(levelsPath, level(name, `spec={"type":"Limited","limited":{"limitResponse":{"type":"Reject"}}}`))
	}
	list := levelsPath + "?labelSelector=s=@all"
	for _, accept := range []string{jsonType, partialsType, tableType} {
		s.get(list+"&limit=2", "Accept", accept)
		s.get(list+"&limit=2&continue={{continue}}", "Accept", accept)
		s.get(list+"&limit=2&continue={{continue}}", "Accept", accept)
	}
	s.get(list + "&limit=2")
	s.delete(levelsPath + "/@c")
	s.post(levelsPath, level("@f"))
	s.get(list + "&continue={{continue}}")
	s.get(list + "&continue={{continue}}&resourceVersion=0")
	s.get(list + "&continue={{continue}}&resourceVersion=5")
	s.get(list + "&continue={{continue}}&resourceVersion=0&resourceVersionMatch=NotOlderThan")
	s.get(list + "&continue={{continue}}&resourceVersionMatch=Exact")
	token := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	for _, bad := range []string{"x", "!!!", token("x"), token("{}"), token(`{"v":"meta.k8s.io/v1"}`), token(`{"v":"meta.k8s.io/v1","rv":0,"start":"x\u0000"}`),
		token(`{"v":"meta.k8s.io/v1","rv":5}`), token(`{"v":"meta.k8s.io/v2","rv":5,"start":"x"}`), token(`{"v":"","rv":5,"start":"x"}`), token(`{"v":"meta.k8s.io/v1","rv":5,"start":"../x\u0000"}`),
		token(`{"v":"meta.k8s.io/v1","rv":-5,"start":"x\u0000"}`), token(`{"v":"meta.k8s.io/v1","rv":"5","start":"x"}`)} {
		s.get(list + "&continue=" + bad)
	}
	// What is no base64, and where that is seen.
	for _, bad := range []string{"x!", "xx=", "xx==", "xxx=", "x===", "abcde", "ab%0Acd", "abcd%0A", "abcd%0D%0Ae", "a%0A", "ab=c", "abcdx%0Ay%0Az%0A!", "abcd%C3%A9", "%20", "ab/c"} {
		s.get(list + "&continue=" + bad)
	}
	s.delete(list + "&limit=2")
	s.delete(list + "&continue={{continue}}")
	s.delete(list)
}

func watching(s *script) {
	s.post(flowSchemasPath, flowSchema("@a"))
	s.post(flowSchemasPath, flowSchema("@b"))
	s.patch(flowSchemasPath+"/@a", mergePatch, `{"metadata":{"labels":{"tier":"x"}}}`)
	s.patch(flowSchemasPath+"/@a", mergePatch, `{"spec":{"matchingPrecedence":77}}`)
	s.patch(flowSchemasPath+"/@a", mergePatch, `{"spec":{"matchingPrecedence":77}}`)
	s.patch(flowSchemasPath+"/@a", mergePatch, `{"metadata":{"labels":{"tier":null}}}`)
	s.patch(flowSchemasPath+"/@a/status", mergePatch, `{"status":{"conditions":[{"type":"T","status":"True","message":"<&>"}]}}`)
	s.delete(flowSchemasPath + "/@b")
	own := "labelSelector=s=@all&"
	for _, query := range []string{"resourceVersion={{first:@a}}", "", "resourceVersion=0", "labelSelector=no", "allowWatchBookmarks=true", "allowWatchBookmarks=true&sendInitialEvents=true",
		"sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", "sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
		"sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&resourceVersion=0", "sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion={{first:@a}}",
		"sendInitialEvents=true&resourceVersionMatch=Exact", "resourceVersionMatch=NotOlderThan", "sendInitialEvents=false&resourceVersionMatch=NotOlderThan", "resourceVersion=abc",
		"sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&resourceVersion={{rv:@a}}", "resourceVersion={{rv:@a}}&limit=1&continue=x",
		"resourceVersion={{first:@a}}&fieldSelector=metadata.name=@b", "resourceVersion={{first:@a}}&pretty=true", "fieldSelector=bad", "resourceVersionMatch=NotOlderThan&continue=x&sendInitialEvents=true",
		"resourceVersion=999999999999", "resourceVersion=-1", "sendInitialEvents=x"} {
		if query == "labelSelector=no" {
			s.watch(flowSchemasPath, "labelSelector="+escaped("s=@all,tier=x")+"&resourceVersion={{first:@a}}")
			s.watch(flowSchemasPath, "labelSelector="+escaped("s=@all,!tier")+"&resourceVersion={{first:@a}}")
			continue
		}
		s.watch(flowSchemasPath, own+query)
	}
	s.get(flowSchemasPath + "?watch=1&timeoutSeconds=1&" + own + "resourceVersion={{first:@a}}")
	s.get(flowSchemasPath + "?watch&timeoutSeconds=1&" + own + "resourceVersion={{rv:@a}}")
	s.get(flowSchemasPath + "?watch=true&timeoutSeconds=x&" + own)
	s.get(versionPath + "/watch/flowschemas?timeoutSeconds=1&" + own + "resourceVersion={{first:@a}}")
	s.get(versionPath + "/watch/flowschemas?watch=false&timeoutSeconds=1&" + own)
	s.get(versionPath + "/watch/flowschemas/@a?timeoutSeconds=1")
	s.get(versionPath + "/watch/flowschemas/@a?timeoutSeconds=1&resourceVersion={{first:@a}}")
	s.get(versionPath + "/watch/flowschemas/@none?timeoutSeconds=1")
	s.get(versionPath + "/watch/flowschemas/@a?timeoutSeconds=1&fieldSelector=metadata.name=@b")
	s.get(versionPath + "/watch/flowschemas/@a?timeoutSeconds=1&fieldSelector=metadata.name=@a")
	for _, accept := range []string{tableType, partialType, partialsType, yamlType, protobufType, protobufType + ";stream=watch", "application/json;stream=watch", "text/html", "application/cbor-seq"} {
		s.watch(flowSchemasPath, own+"resourceVersion={{first:@a}}", "Accept", accept)
	}
	s.watch(flowSchemasPath, own+"sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", "Accept", tableType)
	s.watch(flowSchemasPath, own+"sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", "Accept", partialType)
	s.delete(flowSchemasPath + "/@a")
}

func updating(s *script) {
	item := flowSchemasPath + "/@a"
	s.put(item, flowSchema("@a"))
	s.post(flowSchemasPath, flowSchema("@a"))
	s.put(item, flowSchema("@a"))
	s.put(item, flowSchema("@a", "spec.matchingPrecedence=10", `metadata.resourceVersion="{{rv:@a}}"`))
	s.put(item, flowSchema("@a", "spec.matchingPrecedence=11", `metadata.resourceVersion="{{first:@a}}"`))
	s.put(item, flowSchema("@a", "spec.matchingPrecedence=11", `metadata.resourceVersion="0"`))
	s.put(item, flowSchema("@a", "spec.matchingPrecedence=12", `metadata.resourceVersion="1"`))
	s.put(item, flowSchema("@a", "spec.matchingPrecedence=12", `metadata.resourceVersion="junk"`))
	s.put(item, flowSchema("@a", "spec.matchingPrecedence=12", `metadata.resourceVersion="-3"`))
	s.put(item, flowSchema("@a", "spec.matchingPrecedence=12", `metadata.resourceVersion=5`))
	s.put(item, flowSchema("@b"))
	s.put(item, flowSchema("@a", "-metadata.name"))
	s.put(item, flowSchema("@a", "-metadata"))
	s.put(item, flowSchema("@a", "-spec"))
	s.put(item, flowSchema("@a", "-metadata.labels"))
	s.put(item, flowSchema("@a", `apiVersion="flowcontrol.apiserver.k8s.io/v1beta3"`))
	s.put(item, flowSchema("@a", `kind="PriorityLevelConfiguration"`))
	s.put(item, flowSchema("@a", `kind="PriorityLevelConfiguration"`, "-spec"))
	s.put(item, flowSchema("@a", "-kind", "-apiVersion", `status={"conditions":[{"type":"A","status":"True"}]}`))
	s.put(item, flowSchema("@a", "spec.matchingPrecedence=-4"))
	s.put(item, "")
	s.put(item, "{}")
	s.put(item, "[]")
	s.put(item, "null")
	s.put(item, flowSchema("@a", "spec.rules=[]"))
	s.put(item, flowSchema("@a", "spec.rules=null"))
	s.put(levelsPath+"/@a", level("@a"))
	s.delete(item)
}

func deleting(s *script) {
	item := flowSchemasPath + "/@a"
	s.post(flowSchemasPath, flowSchema("@a"))
	for _, body := range []string{`{"kind":"DeleteOptions","apiVersion":"v1","dryRun":["All"]}`, `{"kind":"DeleteOptions","apiVersion":"meta.k8s.io/v1","dryRun":["All"]}`,
		`{"kind":"DeleteOptions","apiVersion":"flowcontrol.apiserver.k8s.io/v1","dryRun":["All"]}`, `{"kind":"DeleteOptions","apiVersion":"flowcontrol.apiserver.k8s.io/v1beta3","dryRun":["All"]}`,
		`{"kind":"DeleteOptions","apiVersion":"policy/v1","dryRun":["All"]}`, `{"kind":"DeleteOptions","apiVersion":"nope/v1","dryRun":["All"]}`, `{"kind":"Pod","apiVersion":"v1","dryRun":["All"]}`,
		`{"kind":"FlowSchema","apiVersion":"flowcontrol.apiserver.k8s.io/v1"}`, `{"dryRun":["All"]}`, `{"dryRun":["x"]}`, `{"dryRun":"All"}`, `{"dryRun":["All"],"unknown":1}`, `{"dryRun":["All"],"dryRun":["All"]}`,
		`{"dryRun":["All"],"propagationPolicy":"x"}`, `{"dryRun":["All"],"propagationPolicy":"Orphan","orphanDependents":true}`, `{"dryRun":["All"],"gracePeriodSeconds":-1}`, `{"dryRun":["All"],"gracePeriodSeconds":"x"}`,
		`{"dryRun":["All"],"ignoreStoreReadErrorWithClusterBreakingPotential":true}`, `{"dryRun":["All"],"propagationPolicy":""}`, `{"kind":"Status","apiVersion":"v1"}`, `{"kind":"Status","apiVersion":"nope/v1","status":5}`, `{"kind":"ListOptions"}`, `{"kind":"ListOptions","apiVersion":"v1"}`, `{"kind":"Table","apiVersion":"meta.k8s.io/v1"}`, `[]`, `x`, `null`, `{`, `"x"`} {
		s.do("DELETE", item, body, contentHeader, jsonType)
		if strings.Contains(body, "null") {
			s.post(flowSchemasPath, flowSchema("@a"))
		}
	}
	s.do("DELETE", item, "dryRun: [All]\n", contentHeader, yamlType)
	s.do("DELETE", item, `{"dryRun":["All"]}`)
	s.do("DELETE", item, `{"dryRun":["All"]}`, contentHeader, "text/plain")
	s.do("DELETE", item+"?dryRun=All", `{"dryRun":["x"]}`, contentHeader, jsonType)
	s.do("DELETE", item+"?dryRun=x", `{"dryRun":["All"]}`, contentHeader, jsonType)
	s.do("DELETE", item+"?dryRun=x", ``, contentHeader, "nonsense")
	s.delete(item+"?dryRun=All", "Accept", tableType)
	s.delete(item+"?dryRun=All", "Accept", yamlType)
	s.delete(item + "/status")
	s.delete(item + "?dryRun=All&pretty=true")
	s.delete(flowSchemasPath + "/@none?dryRun=All")
	s.do("DELETE", item+"?dryRun=All", `{}`, contentHeader, jsonType)
	s.delete(item)
}

func deletingCollections(s *script) {
	for _, name := range []string{"@a", "@b", "@c"} {
		s.post(flowSchemasPath, flowSchema(name, `spec={"matchingPrecedence":9,"priorityLevelConfiguration":{"name":"x"}}`))
	}
	s.patch(flowSchemasPath+"/@b", mergePatch, `{"metadata":{"finalizers":["example.com/x"],"labels":{"kept":"yes"}}}`)
	list := flowSchemasPath + "?labelSelector=s=@all"
	for _, query := range []string{"&dryRun=All", "&dryRun=x", "&limit=1&dryRun=All", "&limit=x", "&resourceVersion=0", "&resourceVersion={{rv:@a}}&dryRun=All", "&resourceVersionMatch=Exact",
		"&sendInitialEvents=true", "&propagationPolicy=x", "&timeoutSeconds=x", "&fieldSelector=bad", "&fieldSelector=metadata.name=@none", "&watch=true&dryRun=All", "&uid=x", "&continue=x", "&gracePeriodSeconds=x"} {
		s.delete(list + query)
	}
	s.get(list)
	s.delete(list+"&dryRun=All", "Accept", tableType)
	s.delete(list+"&dryRun=All", "Accept", partialsType)
	s.delete(list+"&dryRun=All", "Accept", yamlType)
	s.do("DELETE", list, `{"dryRun":["x"]}`, contentHeader, jsonType)
	s.do("DELETE", list+"&resourceVersion=0", `{"dryRun":["All"]}`, contentHeader, jsonType)
	s.do("DELETE", list, `{"kind":"DeleteOptions","apiVersion":"v1"}`, contentHeader, jsonType)
	s.get(list)
	s.watch(flowSchemasPath, "labelSelector=s=@all&resourceVersion={{first:@a}}")
	s.delete(list)
	s.patch(flowSchemasPath+"/@b", mergePatch, `{"metadata":{"finalizers":[]}}`)
	s.get(list)
}

func patching(s *script) {
	item := flowSchemasPath + "/@a"
	s.post(flowSchemasPath, flowSchema("@a"))
	for _, body := range []string{`[]`, `[{"op":"test","path":"/spec/matchingPrecedence","value":9000}]`, `[{"op":"test","path":"/spec/matchingPrecedence","value":1}]`,
		`[{"op":"replace","path":"/spec/matchingPrecedence","value":8}]`, `[{"op":"replace","path":"/spec/none","value":8}]`, `[{"op":"remove","path":"/spec/none"}]`, `[{"op":"add","path":"/spec/none/x","value":1}]`,
		`[{"op":"add","path":"/spec/none","value":1}]`, `[{"op":"copy","from":"/metadata/labels","path":"/metadata/annotations"}]`, `[{"op":"move","from":"/metadata/annotations","path":"/metadata/x"}]`,
		`[{"op":"add","path":"/spec/rules/0/subjects/-","value":{"kind":"Group","group":{"name":"g"}}}]`, `[{"op":"remove","path":"/spec/rules/0/subjects/-1"}]`, `[{"op":"remove","path":"/spec/rules/0/subjects/9"}]`,
		`[{"op":"nope","path":"/x"}]`, `[{"path":"/x"}]`, `[{"op":"add"}]`, `[{"op":"add","path":"x","value":1}]`, `[{"op":"replace","path":"","value":{}}]`, `[{"op":"replace","path":"/metadata/name","value":"@b"}]`,
		`[{"op":"replace","path":"/spec","value":"x"}]`, `[{"op":"add","path":"/metadata/labels/a~1b","value":"c"}]`, `[{"op":"add","path":"/metadata/labels/x","value":"1","extra":1}]`,
		`[{"op":"add","op":"remove","path":"/metadata/labels/x","value":"1"}]`, `[{"op":"test","path":"/metadata/nope"}]`, `[{"op":"test","path":"/metadata/nope","value":null}]`, `{}`, `"x"`, `null`, ``, `[`, `[1]`, `[null]`,
		`[{"op":"add","path":"/metadata/resourceVersion","value":"1"}]`, `[{"op":"replace","path":"/kind","value":"X"}]`, `[{"op":"remove","path":"/kind"}]`, `[{"op":"replace","path":"/apiVersion","value":"v1"}]`} {
		s.patch(item, jsonPatch, body)
	}
	for _, body := range []string{`{}`, `{"spec":{"matchingPrecedence":7}}`, `{"spec":{"matchingPrecedence":"7"}}`, `{"spec":{"matchingPrecedence":7.5}}`, `{"spec":{"matchingPrecedence":null}}`, `{"spec":null}`,
		`{"spec":{"rules":null,"matchingPrecedence":6,"priorityLevelConfiguration":{"name":"x"}}}`, `{"spec":{"rules":{}}}`, `{"spec":[]}`, `{"metadata":{"labels":{"s":"@all"}}}`, `[]`, `"x"`, `5`, `null`, ``, `{`,
		`{"kind":"Other"}`, `{"apiVersion":"v1"}`, `{"kind":null,"apiVersion":null}`, `{"foo":1}`, `{"spec":{"foo":1}}`, `{"spec":{"matchingPrecedence":1,"matchingPrecedence":5}}`, `{} {}`, `{"status":{"conditions":null}}`, `{"spec":{"matchingPrecedence":20000}}`} {
		s.patch(item, mergePatch, body)
	}
	for _, mode := range []string{"Ignore", "Strict"} {
		for _, kind := range []string{jsonPatch, mergePatch, strategic} {
			for _, body := range []string{`{}`, `[]`, `"x"`, `null`, `{`, `1`} {
				s.patch(item+"?fieldValidation="+mode, kind, body)
			}
		}
	}
	s.patch(item+"?force=true", mergePatch, `{}`)
	s.patch(item+"?force=false", mergePatch, `{}`)
	s.patch(item+"?force=true", jsonPatch, `[]`)
	s.patch(item, applyPatch, flowSchema("@a"))
	s.patch(flowSchemasPath+"/@none", jsonPatch, `[]`)
	s.patch(flowSchemasPath+"/@none", strategic, `{}`)
	s.patch(flowSchemasPath+"/@none", mergePatch, `{`)
	s.patch(flowSchemasPath, mergePatch, `{}`)
	s.get(item)
	s.delete(item)
}

func strategicPatching(s *script) {
	item := flowSchemasPath + "/@a"
	s.post(flowSchemasPath, flowSchema("@a", `metadata.finalizers=["example.com/a","example.com/b"]`,
		`metadata.ownerReferences=[{"apiVersion":"v1","kind":"Pod","name":"x","uid":"u1"},{"apiVersion":"v1","kind":"Pod","name":"y","uid":"u2"}]`))
	s.patch(item+"/status", mergePatch, `{"status":{"conditions":[{"type":"A","status":"True"},{"type":"B","status":"False"}]}}`)
	for _, body := range []string{`{}`, `{"spec":{"rules":[{"subjects":[{"kind":"Group","group":{"name":"g"}}],"nonResourceRules":[{"verbs":["get"],"nonResourceURLs":["/x"]}]}]}}`, `{"metadata":{"finalizers":["example.com/c"]}}`,
		`{"metadata":{"$deleteFromPrimitiveList/finalizers":["example.com/a"]}}`, `{"metadata":{"$setElementOrder/finalizers":["example.com/c","example.com/b"],"finalizers":["example.com/c"]}}`,
		`{"metadata":{"$setElementOrder/finalizers":["example.com/x"],"finalizers":["example.com/y"]}}`, `{"metadata":{"finalizers":null}}`, `{"metadata":{"ownerReferences":[{"uid":"u1","name":"z"}]}}`,
		`{"metadata":{"ownerReferences":[{"$patch":"delete","uid":"u2"}]}}`, `{"metadata":{"ownerReferences":[{"name":"nokey"}]}}`, `{"metadata":{"ownerReferences":[{"$patch":"replace"},{"apiVersion":"v1","kind":"Pod","name":"w","uid":"u3"}]}}`,
		`{"metadata":{"ownerReferences":[{"$patch":"nope","uid":"u3"}]}}`, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"n","uid":"u9"},{"apiVersion":"v1","kind":"Pod","name":"m","uid":"u3"}],"$setElementOrder/ownerReferences":[{"uid":"u9"},{"uid":"u3"}]}}`,
		`{"metadata":{"ownerReferences":null}}`, `{"metadata":{"labels":{"$patch":"replace","s":"@all","only":"one"}}}`, `{"metadata":{"annotations":{"a":"1","b":null}}}`, `{"metadata":{"annotations":{"$patch":"delete"}}}`,
		`{"metadata":{"labels":{"$patch":"wrong"}}}`, `{"spec":{"$retainKeys":["matchingPrecedence","priorityLevelConfiguration"],"matchingPrecedence":44,"priorityLevelConfiguration":{"name":"global-default"}}}`,
		`{"spec":{"$retainKeys":["x"],"matchingPrecedence":44}}`, `{"spec":{"$retainKeys":"x"}}`, `{"spec":{"rules":null}}`, `{"spec":{"rules":{"a":1}}}`, `{"spec":{"distinguisherMethod":null}}`, `{"spec":{"matchingPrecedence":"x"}}`,
		`{"foo":{"a":1}}`, `{"spec":{"foo":[1]}}`, `{"metadata":{"$deleteFromPrimitiveList/finalizers":"x"}}`, `{"metadata":{"$setElementOrder/finalizers":"x"}}`, `[]`, `null`, `"x"`, `{`, `{"spec":"x"}`, `{"spec":[]}`, `{"metadata":{"name":"@z"}}`,
		`{"spec":{"$patch":"replace","matchingPrecedence":9000,"priorityLevelConfiguration":{"name":"x"}}}`, `{"$patch":"replace","metadata":{"name":"@a"}}`, `{"$patch":"delete"}`, `{"metadata":{"resourceVersion":"1"}}`} {
		s.patch(item, strategic, body)
	}
	for _, body := range []string{`{"status":{"conditions":[{"type":"B","status":"True"},{"type":"C","status":"Unknown","reason":"R"}]}}`, `{"status":{"conditions":[{"$patch":"delete","type":"A"}]}}`,
		`{"status":{"$setElementOrder/conditions":[{"type":"C"},{"type":"B"}],"conditions":[{"type":"C","message":"m"}]}}`, `{"status":{"conditions":[{"status":"x"}]}}`, `{"status":{"conditions":[{"$patch":"replace"}]}}`, `{"status":null}`} {
		s.patch(item+"/status", strategic, body)
	}
	s.delete(flowSchemasPath + "/@a")
	s.patch(item, strategic, `{"metadata":{"finalizers":null}}`)
}

func statusSubresource(s *script) {
	for _, kind := range []struct{ path, body string }{{flowSchemasPath, flowSchema("@a")}, {levelsPath, level("@a")}} {
		item := kind.path + "/@a"
		s.put(item+"/status", kind.body)
		s.patch(item+"/status", mergePatch, `{}`)
		s.apply(item+"/status", "m", kind.body)
		s.post(kind.path, edited(kind.body, `status={"conditions":[{"type":"X","status":"True"}]}`))
		s.put(item+"/status", edited(kind.body, "-spec", `metadata={"name":"@a"}`, `status={"conditions":[{"type":"X","status":"True","lastTransitionTime":"2024-01-01T00:00:00Z"}]}`))
		s.put(item+"/status", edited(kind.body, `metadata.labels.x="y"`, `metadata.annotations={"a":"b"}`, `metadata.finalizers=["example.com/x"]`, `metadata.generateName="zz-"`, `metadata.ownerReferences=[{"apiVersion":"v1","kind":"Pod","name":"x","uid":"u"}]`,
			`status={"conditions":[{"type":"X","status":"False","lastTransitionTime":null}]}`))
		s.put(item+"/status", edited(kind.body, "-status"))
		s.put(item+"/status", edited(kind.body, `spec={}`, `status={"conditions":[]}`))
		s.put(item+"/status", edited(kind.body, `metadata.resourceVersion="1"`, `status={"conditions":[{"type":"X"}]}`))
		s.put(item+"/status", edited(kind.body, `status={"conditions":[{"type":"X"},{"type":"X"},{"status":"True"},{}]}`))
		s.put(item+"/status", edited(kind.body, `status={"conditions":[{"type":"X","status":"Nonsense","reason":"any thing"}]}`))
		s.put(item+"/status", edited(kind.body, `status={"conditions":"x"}`))
		s.put(item+"/status", edited(kind.body, `status={"conditions":[{"type":"X","lastTransitionTime":"x"}]}`))
		s.put(item+"/status", edited(kind.body, `metadata.name="@b"`))
		s.patch(item+"/status", mergePatch, `{"spec":{"matchingPrecedence":-5,"type":"Bad"}}`)
		s.patch(item+"/status", mergePatch, `{"metadata":{"labels":{"q":"r"}}}`)
		s.patch(item+"/status", mergePatch, `{"status":{"conditions":[{"type":"PatchStatusFailed","status":"False","reason":"e2e"}]}}`)
		s.patch(item+"/status", jsonPatch, `[{"op":"add","path":"/status/conditions/-","value":{"type":"Y","status":"True"}}]`)
		s.patch(item+"/status", strategic, `{"status":{"conditions":[{"type":"Z","status":"True"}]}}`)
		s.apply(item+"/status", "m", edited(kind.body, "-spec", "-metadata.labels", `status={"conditions":[{"type":"M","status":"True"}]}`))
		s.apply(item+"/status", "other", edited(kind.body, "-spec", "-metadata.labels", `status={"conditions":[{"type":"M","status":"False"}]}`))
		s.patch(item, mergePatch, `{"status":null}`)
		s.patch(item, mergePatch, `{"status":{"conditions":null,"foo":1}}`)
		s.put(item, kind.body)
		s.get(item + "/status")
		s.get(item+"/status", "Accept", tableType)
		s.delete(item)
	}
}

func dryRuns(s *script) {
	item := flowSchemasPath + "/@a"
	s.post(flowSchemasPath+"?dryRun=All", flowSchema("@a"))
	s.get(item)
	s.post(flowSchemasPath, flowSchema("@a"))
	s.post(flowSchemasPath+"?dryRun=All", flowSchema("@a"))
	s.put(item+"?dryRun=All", flowSchema("@a", "spec.matchingPrecedence=3"))
	s.put(item+"?dryRun=All", flowSchema("@a", "spec.matchingPrecedence=0", `metadata.resourceVersion="1"`))
	s.patch(item+"?dryRun=All", mergePatch, `{"spec":{"matchingPrecedence":3}}`)
	s.patch(item+"?dryRun=All", mergePatch, `{"spec":{"matchingPrecedence":-3}}`)
	s.patch(item+"/status?dryRun=All", mergePatch, `{"status":{"conditions":[{"type":"A"}]}}`)
	s.apply(item+"?dryRun=All", "m", flowSchema("@a", "spec.matchingPrecedence=3"))
	s.apply(flowSchemasPath+"/@n?dryRun=All", "m", flowSchema("@n"))
	s.delete(item + "?dryRun=All")
	s.delete(flowSchemasPath + "?dryRun=All&labelSelector=s=@all")
	s.get(item)
	s.watch(flowSchemasPath, "labelSelector=s=@all&resourceVersion={{rv:@a}}")
	s.delete(item)
}

func fieldManagers(s *script) {
	s.post(flowSchemasPath, flowSchema("@a"), "User-Agent", "kubectl/v1.36 (linux)")
	s.post(flowSchemasPath, flowSchema("@b"), "User-Agent", "")
	s.post(flowSchemasPath, flowSchema("@c"), "User-Agent", "/x")
	s.post(flowSchemasPath, flowSchema("@d"), "User-Agent", strings.Repeat("u", 140))
	s.post(flowSchemasPath+"?fieldManager=named", flowSchema("@e"))
	s.post(flowSchemasPath, flowSchema("@f"), "User-Agent", "with blank/1")
	s.post(flowSchemasPath, flowSchema("@g"), "User-Agent", "\tä\t/1")
	s.delete(flowSchemasPath + "?labelSelector=s=@all&fieldManager=x")
}

func fieldValidation(s *script) {
	bad := flowSchema("@a", "spec.foo=1", "bar=2", `metadata.baz="x"`, `spec.rules.0.subjects.0.qux={"a":1}`, `status={"zip":1}`)
	double := strings.Replace(flowSchema("@a"), `"matchingPrecedence":9000`, `"matchingPrecedence":9000,"matchingPrecedence":8000,"matchingPrecedence":7000`, 1)
	cased := strings.Replace(flowSchema("@a"), "matchingPrecedence", "MatchingPrecedence", 1)
	mapped := strings.Replace(flowSchema("@a"), `"s":`, `"z":"1","z":"2","s":`, 1)
	s.post(flowSchemasPath, flowSchema("@x"))
	for _, mode := range []string{"", "?fieldValidation=Warn", "?fieldValidation=Ignore", "?fieldValidation=Strict"} {
		dry := "?dryRun=All"
		if mode != "" {
			dry = mode + "&dryRun=All"
		}
		for _, body := range []string{bad, double, cased, mapped} {
			s.post(flowSchemasPath+dry, body)
			s.put(flowSchemasPath+"/@x"+dry, strings.Replace(body, `"name":"@a"`, `"name":"@x"`, 1))
		}
		item := flowSchemasPath + "/@x" + dry
		s.post(flowSchemasPath+dry, "metadata:\n  name: @y\n  name: @y\nspec:\n  foo: 1\n  priorityLevelConfiguration: {name: x}\n", contentHeader, yamlType)
		for _, kind := range []string{mergePatch, strategic} {
			s.patch(item, kind, `{"spec":{"foo":1,"matchingPrecedence":5},"bar":2}`)
			s.patch(item, kind, `{"spec":{"matchingPrecedence":5,"matchingPrecedence":6}}`)
			s.patch(item, kind, `{"spec":{"foo":{"a":[1,{"b":1}]},"rules":[{"subjects":[],"z":1}]}}`)
		}
		s.patch(item, jsonPatch, `[{"op":"add","path":"/spec/foo","value":1},{"op":"add","path":"/spec/matchingPrecedence","value":5,"what":1}]`)
		s.patch(item, jsonPatch, `[{"op":"add","path":"/spec/matchingPrecedence","value":5,"value":6}]`)
		s.apply(item, "m", flowSchema("@x", "spec.foo=1"))
		s.apply(item, "m", strings.Replace(flowSchema("@x"), `"matchingPrecedence":9000`, `"matchingPrecedence":9000,"matchingPrecedence":8000`, 1))
		s.apply(item, "m", "apiVersion: flowcontrol.apiserver.k8s.io/v1\nkind: FlowSchema\nmetadata:\n  name: @x\n  name: @x\n")
		s.patch(flowSchemasPath+"/@x/status"+dry, mergePatch, `{"status":{"foo":1}}`)
		s.patch(item, mergePatch, `{"spec":{"matchingPrecedence":-1,"foo":1}}`)
	}
	many := make([]string, 120)
	for i := range many {
		many[i] = fmt.Sprintf(`"unknown%03d":1`, i)
	}
	wide := `{"metadata":{"name":"@y"},"spec":{"priorityLevelConfiguration":{"name":"x"},` + strings.Join(many, ",") + `}}`
	s.post(flowSchemasPath+"?dryRun=All", wide)
	s.post(flowSchemasPath+"?dryRun=All&fieldValidation=Strict", wide)
	s.post(flowSchemasPath+"?dryRun=All", `{"metadata":{"name":"@y"},"spec":{"priorityLevelConfiguration":{"name":"x"},"quo\"te\\d":1,"new\nline":2,"ümlaut":3,"`+strings.Repeat("l", 300)+`":4}}`)
	s.delete(flowSchemasPath + "/@x")
}

func prettyPrinting(s *script) {
	s.get(flowSchemasPath+"/@none", "User-Agent", "curl/8.0")
	s.get(flowSchemasPath + "/@none?pretty=true")
	s.get(flowSchemasPath + "/@none?pretty=1")
	s.get(flowSchemasPath+"/@none", "Accept", "application/json;pretty=1")
	s.get(flowSchemasPath+"/@none?pretty=true", "Accept", yamlType)
	s.get(flowSchemasPath+"/@none", "Accept", "application/json; charset=utf-8")
}

func applying(s *script) {
	item := flowSchemasPath + "/@a"
	small := `{"apiVersion":"flowcontrol.apiserver.k8s.io/v1","kind":"FlowSchema","metadata":{"name":"@a"}}`
	s.patch(item, applyPatch, flowSchema("@a"))
	s.apply(item, "one", flowSchema("@a"))
	s.apply(item, "one", flowSchema("@a"))
	s.apply(item, "two", edited(small, `metadata.labels={"mine":"two"}`))
	s.apply(item, "one", flowSchema("@a", "-spec.distinguisherMethod"))
	s.apply(item, "two", small)
	s.apply(item, "one", flowSchema("@a", "spec.matchingPrecedence=8000", `metadata.labels={"s":"@all","t":"1"}`))
	s.apply(item, "one", flowSchema("@a", "-spec.matchingPrecedence"))
	s.apply(item, "two", flowSchema("@a", "-spec.matchingPrecedence"))
	s.apply(item, "three", edited(small, `metadata.finalizers=["example.com/a"]`, `metadata.ownerReferences=[{"apiVersion":"v1","kind":"Pod","name":"x","uid":"u"}]`))
	s.apply(item, "three", edited(small, `metadata.ownerReferences=[{"apiVersion":"v1","kind":"Pod","name":"y","uid":"v"}]`))
	s.apply(item, "three", small)
	s.apply(item, "yaml", "apiVersion: flowcontrol.apiserver.k8s.io/v1\nkind: FlowSchema\nmetadata:\n  name: @a\n  annotations: {y: \"1\"}\n")
	s.apply(item, "null", edited(small, `metadata.annotations={"n":null}`, `metadata.labels=null`))
	s.apply(item, "status", edited(small, `status={"conditions":[{"type":"A","status":"True"}]}`))
	s.apply(item+"/status", "status", edited(small, `status={"conditions":[{"type":"A","status":"True"},{"type":"B","status":"True"}]}`))
	s.apply(item+"/status", "status", edited(small, `status={"conditions":[{"type":"B","status":"False"}]}`))
	s.apply(item+"/status", "status", edited(small, `spec={"matchingPrecedence":1}`, `metadata.labels={"x":"y"}`))
	for _, body := range []string{edited(small, `kind="Other"`), edited(small, "-kind"), edited(small, "-apiVersion"), edited(small, `apiVersion="flowcontrol.apiserver.k8s.io/v1beta3"`), edited(small, `metadata.managedFields=[]`),
		edited(small, `metadata.managedFields=[{"manager":"x","operation":"Apply"}]`), edited(small, `metadata.managedFields=null`), edited(small, `spec={"foo":1}`), edited(small, `spec={"rules":[{"subjects":[{"foo":1}]}]}`), edited(small, `foo=1`), edited(small, `spec={"matchingPrecedence":"x"}`),
		edited(small, `spec={"rules":{}}`), edited(small, `spec=[]`), edited(small, `spec="x"`), edited(small, `spec={"matchingPrecedence":1.5}`), edited(small, `spec={"matchingPrecedence":-1}`), edited(small, `metadata.labels=[]`), edited(small, `metadata.labels={"a":1}`),
		edited(small, `metadata.finalizers=["x","x"]`), edited(small, `metadata.ownerReferences=[{"name":"nokey"}]`), edited(small, `metadata.name="@b"`), edited(small, `-metadata.name`), edited(small, `metadata=null`), `[]`, `"x"`, `null`, ``, "a: [", "a: 1\na: 2", "{", "- x",
		edited(small, `metadata.resourceVersion="1"`), edited(small, `metadata.resourceVersion="{{rv:@a}}"`), edited(small, `metadata.resourceVersion="0"`), edited(small, `metadata.uid="{{uid:@a}}"`), edited(small, `metadata.generateName="x-"`),
		edited(small, `metadata.creationTimestamp=null`), edited(small, `metadata.generation=4`), edited(small, `spec=null`), edited(small, `spec={}`), edited(small, `spec={"distinguisherMethod":{}}`)} {
		s.apply(item, "bad", body)
	}
	s.apply(item+"?force=true", "big", flowSchema("@a"))
	s.apply(item+"?force=x", "big", flowSchema("@a"))
	s.patch(item+"?fieldManager=", applyPatch, flowSchema("@a"))
	s.apply(levelsPath+"/@p", "one", level("@p"))
	s.apply(levelsPath+"/@p", "one", level("@p", "-spec.limited.limitResponse.queuing", `spec.limited.limitResponse.type="Reject"`))
	s.apply(levelsPath+"/@p", "one", level("@p", "-spec.limited.nominalConcurrencyShares"))
	s.apply(levelsPath+"/@p", "one", level("@p", `spec={"type":"Exempt","exempt":{"lendablePercent":5}}`))
	s.apply(levelsPath+"/@p", "one", level("@p", `spec={"type":"Exempt"}`))
	s.delete(levelsPath + "/@p")
	s.delete(item)
	// Where there is no object, which of several mistakes is reported.
	for _, edits := range [][]string{{`metadata.name="@b"`}, {"-metadata.name"}, {`metadata.namespace="default"`, `metadata.name="@b"`}, {`metadata.resourceVersion="junk"`}, {`metadata.resourceVersion="junk"`, "spec=5"}, {"spec.matchingPrecedence=-1"}} {
		s.apply(item, "none", edited(small, append(edits, `metadata.uid="00000000-0000-0000-0000-000000000001"`)...))
	}
	s.apply(item, "none", edited(small, `metadata.resourceVersion="junk"`, `metadata.name="@b"`))
	for _, version := range []string{"0", "1", "007"} {
		s.apply(item+"?dryRun=All", "none", edited(small, `spec.priorityLevelConfiguration.name="system"`, `metadata.resourceVersion="`+version+`"`))
	}
}

func applyConflicts(s *script) {
	item := flowSchemasPath + "/@a"
	s.post(flowSchemasPath+"?fieldManager=creator", flowSchema("@a"))
	s.apply(item, "one", flowSchema("@a", "spec.matchingPrecedence=10"))
	s.apply(item, "one", flowSchema("@a"))
	s.apply(item, "one", flowSchema("@a", "spec.matchingPrecedence=10", `spec.priorityLevelConfiguration.name="x"`, `metadata.labels.s="@other"`))
	s.apply(item, "two", flowSchema("@a", `spec.rules=[]`, "spec.matchingPrecedence=12"))
	s.apply(item+"?force=true", "two", flowSchema("@a", "spec.matchingPrecedence=12"))
	s.apply(item, "one", flowSchema("@a"))
	s.apply(item, "one", flowSchema("@a", "spec.matchingPrecedence=13"))
	s.patch(item+"?fieldManager=patcher", mergePatch, `{"spec":{"matchingPrecedence":14}}`)
	s.apply(item, "two", flowSchema("@a", "spec.matchingPrecedence=12"))
	s.patch(item+"/status?fieldManager=controller", mergePatch, `{"status":{"conditions":[{"type":"A","status":"True","lastTransitionTime":"2024-01-01T00:00:00Z"}]}}`)
	s.apply(item+"/status", "two", edited(flowSchema("@a"), "-spec", `status={"conditions":[{"type":"A","status":"False"}]}`))
	s.apply(item+"/status?force=true", "two", edited(flowSchema("@a"), "-spec", `status={"conditions":[{"type":"A","status":"False"}]}`))
	s.apply(item+"?dryRun=All", "four", flowSchema("@a", "spec.matchingPrecedence=99", `spec.priorityLevelConfiguration.name="y"`))
	s.apply(item+"?dryRun=All&force=true", "four", flowSchema("@a", "spec.matchingPrecedence=99", `spec.priorityLevelConfiguration.name="y"`))
	s.put(item+"?fieldManager=replacer", flowSchema("@a", "spec.matchingPrecedence=15"))
	s.delete(item)
}

func kubectlMigration(s *script) {
	item := levelsPath + "/@a"
	last := strings.ReplaceAll(strings.ReplaceAll(level("@a"), `\`, `\\`), `"`, `\"`)
	s.post(levelsPath+"?fieldManager=kubectl-client-side-apply", level("@a", `metadata.annotations={"kubectl.kubernetes.io/last-applied-configuration":"`+last+`\n"}`))
	s.apply(item, "kubectl", level("@a", "spec.limited.nominalConcurrencyShares=9"))
	s.apply(item, "kubectl", level("@a", "spec.limited.nominalConcurrencyShares=9"))
	s.patch(item, jsonPatch, `[{"op":"replace","path":"/metadata/managedFields","value":[{"manager":"kubectl","operation":"Apply","apiVersion":"flowcontrol.apiserver.k8s.io/v1","time":"2024-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:type":{}}}}]},{"op":"replace","path":"/metadata/resourceVersion","value":"{{rv:@a}}"}]`)
	s.patch(item, jsonPatch, `[{"op":"replace","path":"/metadata/managedFields","value":[{}]},{"op":"replace","path":"/metadata/resourceVersion","value":"1"}]`)
	s.patch(item, jsonPatch, `[{"op":"replace","path":"/metadata/managedFields","value":[{}]}]`)
	s.patch(item, mergePatch, `{"metadata":{"labels":{"after":"reset"}}}`)
	s.apply(item, "kubectl", level("@a", "spec.limited.nominalConcurrencyShares=11"))
	s.apply(item, "kubectl", level("@a", `metadata.annotations={"kubectl.kubernetes.io/last-applied-configuration":"junk"}`))
	s.apply(item, "kubectl", level("@a", "spec.limited.nominalConcurrencyShares=12"))
	s.delete(item)
}

func ownership(s *script) {
	item := flowSchemasPath + "/@a"
	s.post(flowSchemasPath+"?fieldManager=e2e", flowSchema("@a"))
	s.put(item+"?fieldManager=e2e", flowSchema("@a"))
	s.put(item+"?fieldManager=other", flowSchema("@a"))
	s.put(item+"?fieldManager=other", flowSchema("@a", "spec.matchingPrecedence=5", `metadata.annotations={"x":"y"}`))
	s.patch(item+"?fieldManager=third", mergePatch, `{"metadata":{"annotations":{"x":"z","w":""}},"spec":{"distinguisherMethod":null}}`)
	s.patch(item+"?fieldManager=third", mergePatch, `{"metadata":{"annotations":null}}`)
	s.patch(item+"?fieldManager=e2e", mergePatch, `{"status":{"conditions":[{"type":"A","status":"True"}]}}`)
	s.patch(item+"/status?fieldManager=e2e", mergePatch, `{"status":{"conditions":[{"type":"A","status":"True"}]}}`)
	s.patch(item+"/status?fieldManager=other", strategic, `{"status":{"conditions":[{"type":"A","status":"False"},{"type":"B","status":"False","lastTransitionTime":"2024-01-01T00:00:00Z"}]}}`)
	s.put(item+"?fieldManager=other", flowSchema("@a", "metadata.managedFields=[]"))
	s.put(item+"?fieldManager=other", flowSchema("@a", `metadata.managedFields=[{"manager":"made-up","operation":"Update","apiVersion":"flowcontrol.apiserver.k8s.io/v1","time":"2024-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:rules":{}}}}]`, "spec.matchingPrecedence=6"))
	s.put(item+"?fieldManager=other", flowSchema("@a", `metadata.managedFields=[{"manager":"made-up","operation":"Update","apiVersion":"flowcontrol.apiserver.k8s.io/v9","time":"2024-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:rules":{}}}}]`, "spec.matchingPrecedence=7"))
	s.put(item+"?fieldManager=other", flowSchema("@a", `metadata.managedFields=[{"manager":"made-up","operation":"Update","apiVersion":"flowcontrol.apiserver.k8s.io/v1","fieldsType":"FieldsV1","fieldsV1":{"bad":{}}}]`, "spec.matchingPrecedence=8"))
	s.patch(item+"?fieldManager=last", jsonPatch, `[{"op":"remove","path":"/metadata/labels"}]`)
	s.put(item+"?fieldManager=last", "apiVersion: flowcontrol.apiserver.k8s.io/v1\nkind: FlowSchema\nmetadata: {name: @a, managedFields: []}\nspec: {priorityLevelConfiguration: {name: system}}\n", contentHeader, yamlType)
	// Within a list that is owned as a whole, an empty list is another value than none.
	hollow, plain := `{"spec":{"rules":[{"subjects":[{"kind":"User","user":{"name":"u"}}],"resourceRules":[],"nonResourceRules":[{"verbs":["*"],"nonResourceURLs":["*"]}]}]}}`, `{"apiVersion":"flowcontrol.apiserver.k8s.io/v1","kind":"FlowSchema","metadata":{"name":"@a"},"spec":{"rules":[{"subjects":[{"kind":"User","user":{"name":"u"}}],"nonResourceRules":[{"verbs":["*"],"nonResourceURLs":["*"]}]}]}}`
	s.patch(item+"?fieldManager=last", mergePatch, hollow)
	for _, kind := range []string{mergePatch, strategic} {
		s.apply(item+"?force=true", "applier", plain)
		s.patch(item+"?fieldManager=last", kind, hollow)
	}
	s.apply(item+"?force=true", "applier", plain)
	s.put(item+"?fieldManager=last", flowSchema("@a", `spec.rules=[{"subjects":[{"kind":"User","user":{"name":"u"}}],"resourceRules":[],"nonResourceRules":[{"verbs":["*"],"nonResourceURLs":["*"]}]}]`))
	s.get(item)
	s.get(item, "Accept", partialType)
	s.delete(item)
}

// ancientManagers has more updaters than a server keeps apart. Their names are in the order of their writes,
// since it is by time, and within a second by name, which are merged.
func ancientManagers(s *script) {
	item := levelsPath + "/@a"
	s.post(levelsPath+"?fieldManager=a", level("@a"))
	for i := range 12 {
		s.patch(fmt.Sprintf("%s?fieldManager=m%02d", item, i), mergePatch, fmt.Sprintf(`{"metadata":{"labels":{"m%02d":"x"}}}`, i))
		if i < 7 {
			// The answers to these say nothing more than the next.
			s.Requests[len(s.Requests)-1].Headers["Accept"] = tableType
		}
	}
	s.apply(item, "applier", level("@a"))
	s.delete(item)
}

func negotiation(s *script) {
	s.post(flowSchemasPath, flowSchema("@a"))
	item := flowSchemasPath + "/@a"
	list := flowSchemasPath + "?labelSelector=s=@all"
	for _, accept := range []string{jsonType, yamlType, protobufType, "application/cbor", "*/*", "application/*", "application/yaml;q=0.5,application/json;q=0.4", "application/json;q=0.1,application/yaml",
		protobufType + ", */*", "text/html,*/*;q=0.2", "application/json;as=Nope;v=v1;g=meta.k8s.io", "application/json;as=Nope;v=v1;g=meta.k8s.io,application/json", "application/json;as=Table;v=v2;g=meta.k8s.io", "application/json;as=Table;g=meta.k8s.io;v=v1beta1",
		"application/json;as=Table", "application/yaml;as=Table;v=v1;g=meta.k8s.io", protobufType + ";as=Table;v=v1;g=meta.k8s.io", protobufType + ";as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "application/json;as=Table;v=v1;g=other.io", "application/json;stream=watch", "application/json;stream=x",
		"application/json;sv=v1", "application/json;sv=v2", "application/json;profile=x", "application/json;unknown=1", "application/json;export=1", "APPLICATION/JSON", "application/json;charset=utf-8", " application/json ", "application/json,", "application/json;q=x", "text/json"} {
		s.get(item, "Accept", accept)
		s.get(list, "Accept", accept)
		s.get(flowSchemasPath+"/@none", "Accept", accept)
	}
	s.post(flowSchemasPath+"?dryRun=All", flowSchema("@b"), "Accept", tableType)
	s.post(flowSchemasPath+"?dryRun=All", flowSchema("@b"), "Accept", partialType)
	s.post(flowSchemasPath+"?dryRun=All", flowSchema("@b"), "Accept", yamlType)
	s.post(flowSchemasPath+"?dryRun=All", flowSchema("@b"), "Accept", protobufType)
	s.put(item, flowSchema("@a"), "Accept", tableType)
	s.patch(item, mergePatch, `{}`, "Accept", yamlType)
	s.patch(item, mergePatch, `{"spec":{"matchingPrecedence":-1}}`, "Accept", yamlType)
	s.patch(item, mergePatch, `{"spec":{"matchingPrecedence":-1}}`, "Accept", protobufType)
	// No watch speaks YAML, but another error comes first.
	for _, query := range []string{"", "&resourceVersion=x", "&includeObject=x", "&resourceVersion=x&includeObject=x"} {
		s.watch(flowSchemasPath, "labelSelector=s=@none"+query, "Accept", "application/yaml;as=Table;v=v1;g=meta.k8s.io")
	}
	s.delete(item, "Accept", protobufType)
}

func tables(s *script) {
	s.post(flowSchemasPath, flowSchema("@a", "spec.matchingPrecedence=900"))
	s.post(flowSchemasPath, flowSchema("@b", "spec.matchingPrecedence=800", "-spec.distinguisherMethod"))
	s.post(flowSchemasPath, flowSchema("@c", "spec.matchingPrecedence=800"))
	s.patch(flowSchemasPath+"/@c/status", mergePatch, `{"status":{"conditions":[{"type":"Other","status":"True"}]}}`)
	s.post(levelsPath, level("@a"))
	s.post(levelsPath, level("@b", `spec={"type":"Limited","limited":{"nominalConcurrencyShares":0,"limitResponse":{"type":"Reject"}}}`))
	s.post(levelsPath, level("@c", `spec.limited.lendablePercent=50`))
	for _, path := range []string{flowSchemasPath, levelsPath} {
		list := path + "?labelSelector=s=@all"
		for _, include := range []string{"", "&includeObject=None", "&includeObject=Metadata", "&includeObject=Object", "&includeObject=x", "&limit=1"} {
			s.get(list+include, "Accept", tableType)
		}
		s.get(list+"&includeObject=Object", "Accept", "application/json;as=Table;v=v1beta1;g=meta.k8s.io")
		s.get(list, "Accept", "application/json;as=Table;v=v1beta1;g=meta.k8s.io")
		s.get(path+"/@a", "Accept", tableType)
		s.get(path+"/@a?includeObject=None", "Accept", tableType)
		s.get(path+"/@a?includeObject=Object", "Accept", tableType)
		s.get(path+"/@a?includeObject=x", "Accept", tableType)
		s.get(path+"/@none", "Accept", tableType)
		s.get(path+"?labelSelector=s=@nothing", "Accept", tableType)
		s.delete(path+"/@b", "Accept", tableType)
		s.watch(path, "labelSelector=s=@all&resourceVersion={{first:@a}}", "Accept", tableType)
		s.watch(path, "labelSelector=s=@all&resourceVersion={{first:@a}}&includeObject=Object", "Accept", tableType)
		s.watch(path, "labelSelector=s=@all&resourceVersion={{first:@a}}&includeObject=None", "Accept", tableType)
		s.delete(list, "Accept", tableType)
	}
	s.get(levelsPath+"/exempt?includeObject=None", "Accept", tableType)
	s.get(flowSchemasPath+"/exempt?includeObject=None", "Accept", tableType)
}

func partialObjects(s *script) {
	s.post(levelsPath, level("@a"))
	list := levelsPath + "?labelSelector=s=@all"
	for _, version := range []string{"v1", "v1beta1"} {
		one := "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=" + version
		many := "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=" + version
		for _, accept := range []string{one, many, many + "," + one, one + "," + jsonType} {
			s.get(levelsPath+"/@a", "Accept", accept)
			s.get(list, "Accept", accept)
			s.get(levelsPath+"/@none", "Accept", accept)
		}
	}
	for _, accept := range []string{yamlType, protobufType} {
		s.get(levelsPath+"/@a", "Accept", accept+";as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
		s.get(list, "Accept", accept+";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
	}
	s.delete(list, "Accept", partialsType)
}

// escaped is a query value in which the session's name can still be put.
func escaped(value string) string {
	return strings.ReplaceAll(url.QueryEscape(value), "%40", "@")
}

// protobufOf encodes an object as client-go does.
func protobufOf(object runtime.Object) string {
	kinds, _, err := scheme.Scheme.ObjectKinds(object)
	if err != nil {
		panic(err)
	}
	object.GetObjectKind().SetGroupVersionKind(kinds[0])
	text, err := runtime.Encode(protobufSerializer, object)
	if err != nil {
		panic(err)
	}
	return base64.StdEncoding.EncodeToString(text)
}

func (s *script) protobuf(method, path, body string, headers ...string) {
	s.do(method, path, "", append([]string{contentHeader, protobufType}, headers...)...)
	s.Requests[len(s.Requests)-1].Base64 = body
}

func protobufBodies(s *script) {
	labels := map[string]string{"s": s.Name + "-all"}
	schema := &flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: s.Name + "-a", Labels: labels}, Spec: flowcontrolv1.FlowSchemaSpec{
		MatchingPrecedence: 10000, PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "global-default"},
		DistinguisherMethod: &flowcontrolv1.FlowDistinguisherMethod{Type: flowcontrolv1.FlowDistinguisherMethodByUserType},
		Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
			Subjects:         []flowcontrolv1.Subject{{Kind: "User", User: &flowcontrolv1.UserSubject{Name: "example"}}, {Kind: "ServiceAccount", ServiceAccount: &flowcontrolv1.ServiceAccountSubject{Namespace: "n", Name: "*"}}},
			ResourceRules:    []flowcontrolv1.ResourcePolicyRule{{Verbs: []string{"*"}, APIGroups: []string{""}, Resources: []string{"pods"}, ClusterScope: true, Namespaces: []string{"*"}}},
			NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}}},
		}},
	}}
	shares := int32(0)
	limited := &flowcontrolv1.PriorityLevelConfiguration{ObjectMeta: metav1.ObjectMeta{Name: s.Name + "-b", Labels: labels}, Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
		Type: "Limited", Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{NominalConcurrencyShares: &shares, LimitResponse: flowcontrolv1.LimitResponse{Type: "Queue", Queuing: &flowcontrolv1.QueuingConfiguration{Queues: 8, HandSize: 2}}},
	}}
	s.protobuf("POST", flowSchemasPath, protobufOf(schema))
	s.protobuf("POST", levelsPath, protobufOf(limited), "Accept", protobufType+", */*")
	s.protobuf("POST", levelsPath, protobufOf(schema))
	schema.Spec.MatchingPrecedence = 5
	s.protobuf("PUT", flowSchemasPath+"/@a?fieldValidation=Strict", protobufOf(schema))
	schema.Spec.MatchingPrecedence = -5
	s.protobuf("PUT", flowSchemasPath+"/@a", protobufOf(schema), "Accept", protobufType)
	schema.Status.Conditions = []flowcontrolv1.FlowSchemaCondition{{Type: "X", Status: "True", LastTransitionTime: metav1.Unix(1700000000, 0), Message: "m"}}
	s.protobuf("PUT", flowSchemasPath+"/@a/status", protobufOf(schema), "Accept", protobufType)
	s.protobuf("PATCH", flowSchemasPath+"/@a", protobufOf(schema))
	for _, body := range []string{"", "k8s", "k8s\x00", "k8s\x00\x0a\x02", "{}", "\x00\x01\x02"} {
		s.protobuf("POST", flowSchemasPath, base64.StdEncoding.EncodeToString([]byte(body)))
	}
	s.get(flowSchemasPath+"?labelSelector=s=@all", "Accept", protobufType)
	s.watch(flowSchemasPath, "labelSelector=s=@all&resourceVersion={{first:@a}}", "Accept", protobufType+", */*")
	policy := metav1.DeletePropagationBackground
	options := &metav1.DeleteOptions{PropagationPolicy: &policy, DryRun: []string{"All"}}
	s.protobuf("DELETE", flowSchemasPath+"/@a", protobufOf(options), "Accept", protobufType)
	options.DryRun = nil
	s.protobuf("DELETE", flowSchemasPath+"/@a", protobufOf(options))
	s.protobuf("DELETE", levelsPath+"?labelSelector=s=@all", protobufOf(options))
}

func yamlBodies(s *script) {
	text := "apiVersion: flowcontrol.apiserver.k8s.io/v1\nkind: FlowSchema\nmetadata:\n  name: @a\n  labels: {s: @all}\nspec:\n  matchingPrecedence: 50\n  priorityLevelConfiguration:\n    name: x\n"
	s.post(flowSchemasPath, text, contentHeader, yamlType)
	s.put(flowSchemasPath+"/@a", text+"  distinguisherMethod: {type: ByUser}\n", contentHeader, yamlType)
	s.put(flowSchemasPath+"/@a", "---\n"+text, contentHeader, yamlType)
	s.put(flowSchemasPath+"/@a", text+"---\n"+text, contentHeader, yamlType)
	s.put(flowSchemasPath+"/@a", text+"# comment\n", contentHeader, yamlType, "Accept", yamlType)
	s.put(flowSchemasPath+"/@a", strings.Replace(text, "{s: @all}", "{s: @all, y: yes}", 1), contentHeader, yamlType)
	s.put(flowSchemasPath+"/@a", strings.Replace(text, "{s: @all}", "{s: @all, y: 'yes', 5: five}", 1), contentHeader, yamlType)
	s.put(flowSchemasPath+"/@a", strings.Replace(text, "50", "0x10", 1), contentHeader, yamlType)
	s.put(flowSchemasPath+"/@a", strings.Replace(text, "50", "1e2", 1), contentHeader, yamlType)
	s.put(flowSchemasPath+"/@a", strings.Replace(text, "50", "'50'", 1), contentHeader, yamlType)
	s.put(flowSchemasPath+"/@a", "&a [*a]", contentHeader, yamlType)
	s.put(flowSchemasPath+"/@a", "\tx: y", contentHeader, yamlType)
	s.put(flowSchemasPath+"/@a", "a: b: c", contentHeader, yamlType)
	s.put(flowSchemasPath+"/@a", "", contentHeader, yamlType)
	s.put(flowSchemasPath+"/@a", "just text", contentHeader, yamlType)
	s.put(flowSchemasPath+"/@a", flowSchema("@a"), contentHeader, yamlType)
	s.put(flowSchemasPath+"/@a", text, contentHeader, jsonType)
	s.put(flowSchemasPath+"/@a", text, contentHeader, "application/x-yaml")
	s.delete(flowSchemasPath + "/@a")
}

func defaulting(s *script) {
	for i, spec := range []string{`{"type":"Limited","limited":{"limitResponse":{"type":"Reject"}}}`, `{"type":"Limited","limited":{"nominalConcurrencyShares":0,"limitResponse":{"type":"Reject"}}}`,
		`{"type":"Limited","limited":{"limitResponse":{"type":"Queue","queuing":{}}}}`, `{"type":"Limited","limited":{"limitResponse":{"type":"Queue","queuing":{"queues":0,"handSize":0,"queueLengthLimit":0}}}}`,
		`{"type":"Limited","limited":{"lendablePercent":null,"borrowingLimitPercent":null,"limitResponse":{"type":"Queue","queuing":{"queues":9}}}}`, `{"type":"Exempt"}`, `{"type":"Exempt","exempt":{}}`, `{"type":"Limited","limited":{}}`} {
		s.post(levelsPath+"?dryRun=All", level(fmt.Sprintf("@p%d", i), "spec="+spec))
	}
	for _, spec := range []string{`{"priorityLevelConfiguration":{"name":"x"}}`, `{"matchingPrecedence":0,"priorityLevelConfiguration":{"name":"x"}}`, `{"matchingPrecedence":null,"priorityLevelConfiguration":{"name":"x"},"rules":[]}`,
		`{"priorityLevelConfiguration":{"name":"x"},"rules":null,"distinguisherMethod":null}`, `{"priorityLevelConfiguration":{"name":"x"},"rules":[{"subjects":[{"kind":"User","user":{"name":"*"}}],"resourceRules":[{"verbs":["get"],"apiGroups":[""],"resources":["x"],"clusterScope":true}]}]}`,
		`{"priorityLevelConfiguration":{"name":"x"},"rules":[{"subjects":[{"kind":"User","user":{"name":"*"}}],"resourceRules":[{"verbs":["get"],"apiGroups":[""],"resources":["x"],"clusterScope":true,"namespaces":[]}],"nonResourceRules":[]}]}`} {
		s.post(flowSchemasPath+"?dryRun=All", flowSchema("@f", "spec="+spec))
	}
	s.post(levelsPath+"?dryRun=All", level("@a", `metadata.annotations={"flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares":""}`))
	s.post(flowSchemasPath+"?dryRun=All", flowSchema("@a", `metadata.annotations={"flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares":""}`))
}

func decodeErrors(s *script) {
	for _, body := range []string{"", " ", "x", "{", "}", "{}", "[]", "null", "5", `"x"`, "true", `{"a":1`, `{"apiVersion":"flowcontrol.apiserver.k8s.io/v1","kind":"FlowSchema",`, `{"metadata":{"name":"@a"`, "{'a':1}", `{"a":}`, "\x00\x01\x02\x03", "this is a long text that goes on and on and on",
		`{"this is a long text that goes on and on and on`, `{"kind":"FlowSchema","apiVersion":5}`, `{"kind":["x"]}`, `{"Kind":"FlowSchema"}`, `{"metadata":{"name":"@a"},"spec":{"matchingPrecedence":1e3}}`, `{"metadata":{"name":"\ud800"}}`, `{"a":1}{"b":2}`, `{"a":01}`, `{"a":NaN}`, `{"a":"	"}`, `{"a":1,}`} {
		s.post(flowSchemasPath+"?dryRun=All", body)
	}
	for _, edit := range []string{`spec="x"`, `spec=[]`, `spec=5`, `spec.matchingPrecedence="x"`, `spec.matchingPrecedence=1.0`, `spec.matchingPrecedence=1.5`, `spec.matchingPrecedence=1e2`, `spec.matchingPrecedence=3000000000`, `spec.matchingPrecedence=99999999999999999999`, `spec.matchingPrecedence=true`,
		`spec.matchingPrecedence=[]`, `spec.rules={}`, `spec.rules="x"`, `spec.rules=[5]`, `spec.rules=[null]`, `spec.rules=[[]]`, `spec.rules.0.subjects={}`, `spec.rules.0.subjects=["x"]`, `spec.rules.0.subjects.0.kind=5`, `spec.rules.0.resourceRules.0.verbs="x"`, `spec.rules.0.resourceRules.0.verbs=[1]`,
		`spec.rules.0.resourceRules.0.clusterScope="x"`, `spec.rules.0.resourceRules.0.verbs=[null]`, `spec.priorityLevelConfiguration="x"`, `spec.priorityLevelConfiguration=null`, `spec.distinguisherMethod=[]`, `spec.distinguisherMethod.type=1`, `status=5`, `metadata.labels={"a":{}}`, `metadata.finalizers=[1]`} {
		s.post(flowSchemasPath+"?dryRun=All", fullFlowSchema("@a", edit))
	}
	for _, edit := range []string{`spec.limited.nominalConcurrencyShares="1"`, `spec.limited.limitResponse.queuing=[]`, `spec.limited=5`, `spec.limited.limitResponse.queuing.queues=1.5`, `spec.type=null`, `spec.limited.limitResponse=null`} {
		s.post(levelsPath+"?dryRun=All", level("@a", edit))
	}
	s.post(flowSchemasPath+"?dryRun=All&fieldValidation=Strict", flowSchema("@a", `spec.matchingPrecedence="x"`, "spec.foo=1"))
	s.post(flowSchemasPath+"?dryRun=All", strings.Repeat("[", 10001))
	s.post(flowSchemasPath+"?dryRun=All", `{"metadata":{"name":"@a"},"spec":{"priorityLevelConfiguration":{"name":"x"},"deep":`+strings.Repeat("[", 200)+strings.Repeat("]", 200)+`}}`)
}

func flowSchemaRules(s *script) {
	subject, rule, plainRule := "spec.rules.0.subjects.0", "spec.rules.0.resourceRules.0", "spec.rules.0.nonResourceRules.0"
	for _, edit := range []string{
		"spec.matchingPrecedence=-1", "spec.matchingPrecedence=10001", "spec.matchingPrecedence=1", "spec.matchingPrecedence=10000", `spec.distinguisherMethod={"type":"x"}`, `spec.distinguisherMethod={}`, `spec.distinguisherMethod={"type":"ByNamespace"}`,
		`spec.priorityLevelConfiguration={}`, `spec.priorityLevelConfiguration={"name":"A_"}`, `spec.priorityLevelConfiguration={"name":"` + strings.Repeat("a", 254) + `"}`, "spec.rules=[{}]", "spec.rules=[{},{}]", "spec.rules.0.subjects=[]", "-spec.rules.0.subjects",
		subject + `.kind="x"`, subject + `.kind=""`, subject + `.kind="Group"`, subject + `.kind="ServiceAccount"`, "-" + subject + ".user", subject + `.user={"name":""}`, subject + `.user={"name":"*"}`, subject + `={"kind":"Group","group":{"name":""}}`, subject + `={"kind":"Group"}`,
		subject + `={"kind":"ServiceAccount"}`, subject + `={"kind":"ServiceAccount","serviceAccount":{}}`, subject + `={"kind":"ServiceAccount","serviceAccount":{"namespace":"A_","name":"B_"}}`, subject + `={"kind":"ServiceAccount","serviceAccount":{"namespace":"*","name":"*"}}`,
		subject + `={"kind":"ServiceAccount","serviceAccount":{"namespace":"` + strings.Repeat("a", 64) + `","name":"` + strings.Repeat("b", 254) + `"}}`, subject + `={"kind":"User","user":{"name":"u"},"group":{"name":"g"},"serviceAccount":{"namespace":"n","name":"s"}}`,
		subject + `={"kind":"Group","user":{"name":"u"},"group":{"name":"g"}}`, subject + `={"kind":"x","user":{"name":""},"group":{"name":""}}`, rule + ".verbs=[]", rule + `.verbs=["*","get"]`, rule + `.verbs=["nope"]`, rule + `.verbs=["get","nope","bad"]`, rule + `.verbs=["GET"]`, rule + `.verbs=["proxy","deletecollection"]`,
		rule + `.verbs=["*"]`, rule + `.verbs=["get","get"]`, rule + `.verbs=[""]`, rule + ".apiGroups=[]", rule + `.apiGroups=["*","a"]`, rule + `.apiGroups=["*"]`, rule + `.apiGroups=["any thing"]`, rule + ".resources=[]", rule + `.resources=["*","a"]`, rule + `.resources=["a/b"]`, rule + ".namespaces=[]", rule + `.namespaces=["*","a"]`,
		rule + `.namespaces=["A_"]`, rule + `.namespaces=["a","` + strings.Repeat("n", 64) + `"]`, rule + `.namespaces=[""]`, rule + `={"verbs":["get"],"apiGroups":[""],"resources":["x"],"clusterScope":true}`, rule + `={"verbs":["get"],"apiGroups":[""],"resources":["x"],"clusterScope":true,"namespaces":["*"]}`, rule + "={}", rule + "=null",
		plainRule + ".verbs=[]", plainRule + `.verbs=["*","get"]`, plainRule + `.verbs=["post"]`, plainRule + `.verbs=["head"]`, plainRule + `.verbs=["get","put"]`, plainRule + ".nonResourceURLs=[]", plainRule + `.nonResourceURLs=["*","/a"]`, plainRule + `.nonResourceURLs=["a"]`, plainRule + `.nonResourceURLs=[""]`,
		plainRule + `.nonResourceURLs=["/a b"]`, plainRule + `.nonResourceURLs=["/a//b"]`, plainRule + `.nonResourceURLs=["/a*"]`, plainRule + `.nonResourceURLs=["/*/a"]`, plainRule + `.nonResourceURLs=["/a/*"]`, plainRule + `.nonResourceURLs=["/"]`, plainRule + `.nonResourceURLs=["//"]`, plainRule + `.nonResourceURLs=["/*"]`, plainRule + `.nonResourceURLs=["/a\tb"]`,
		plainRule + `.nonResourceURLs=["/a/*/*"]`, plainRule + `.nonResourceURLs=["/**"]`, plainRule + `.nonResourceURLs=["a b//c*"]`, plainRule + "={}", "spec={}",
	} {
		s.post(flowSchemasPath+"?dryRun=All", fullFlowSchema("@a", edit))
	}
	s.post(flowSchemasPath+"?dryRun=All", flowSchema("@A", "spec.matchingPrecedence=-1", `metadata.labels={"a b":"c"}`, `spec.rules=[{"subjects":[{"kind":"x"}]},{"subjects":[]}]`))
}

func levelRules(s *script) {
	limited, response, queuing := "spec.limited", "spec.limited.limitResponse", "spec.limited.limitResponse.queuing"
	for _, edit := range []string{
		`spec={}`, `spec={"type":""}`, `spec={"type":"x"}`, `spec={"type":"Exempt"}`, `spec.type="Exempt"`, `spec.type="x"`, `spec={"type":"Limited"}`, `spec.exempt={}`, `spec={"type":"Exempt","exempt":{"nominalConcurrencyShares":-1,"lendablePercent":101}}`,
		limited + ".nominalConcurrencyShares=-1", limited + ".nominalConcurrencyShares=0", limited + ".lendablePercent=-1", limited + ".lendablePercent=101", limited + ".lendablePercent=100", limited + ".borrowingLimitPercent=-1", limited + ".borrowingLimitPercent=1000",
		response + `={"type":"x"}`, response + `={}`, response + `={"type":"Reject","queuing":{}}`, response + `={"type":"Queue"}`, response + `={"type":"Reject"}`, queuing + ".queueLengthLimit=-1", queuing + ".queues=-1", queuing + ".queues=10000001", queuing + ".queues=10000000", queuing + ".handSize=-1",
		queuing + ".handSize=17", queuing + ".handSize=16", queuing + `={"queues":512,"handSize":7}`, queuing + `={"queues":512,"handSize":6}`, queuing + `={"queues":1,"handSize":1}`, queuing + `={"queues":1}`, queuing + `={"queues":1024,"handSize":6}`, queuing + `={"queues":1025,"handSize":6}`, queuing + `={"queues":-1,"handSize":-1,"queueLengthLimit":-1}`,
	} {
		s.post(levelsPath+"?dryRun=All", level("@a", edit))
	}
	s.post(levelsPath+"?dryRun=All", level("@A", "spec.limited.nominalConcurrencyShares=-1", "spec.limited.lendablePercent=101", "spec.limited.borrowingLimitPercent=-1", "spec.exempt={}"))
}
