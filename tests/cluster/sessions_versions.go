package cluster

import (
	"fmt"
	"strings"
)

// preserveZero is the annotation by which v1beta3 distinguishes explicit zero shares from absent ones.
const preserveZero = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares"

// AcrossVersions are sessions about one object in two versions of the group, v1 and the given one: none if
// that is v1. They are in the version already.
func AcrossVersions(version string) []Session {
	if version == "v1" {
		return nil
	}
	var all []Session
	for _, entry := range []struct {
		name          string
		managedFields bool
		write         func(*script, func(string) string)
	}{
		{"versions", true, bothVersions},
		{"zeros", true, zeroShares},
		{"seen", false, seenInBothVersions},
		{"crossed", true, crossedVersions},
		{"dropped", true, droppedFields},
	} {
		s := &script{Session{Name: entry.name, ManagedFields: entry.managedFields}}
		entry.write(s, func(text string) string { return plainVersion.ReplaceAllString(text, "${1}"+version) })
		all = append(all, s.Session)
	}
	return all
}

// bothVersions writes and reads objects in turns: same uid, versions, generation; owners of fields in each version.
func bothVersions(s *script, older func(string) string) {
	for _, kind := range []struct{ path, body, field string }{
		{flowSchemasPath, flowSchema("@a"), `{"spec":{"matchingPrecedence":%d}}`},
		{levelsPath, level("@a"), `{"spec":{"limited":{"nominalConcurrencyShares":%d}}}`},
	} {
		item, old := kind.path+"/@a", older(kind.path)+"/@a"
		s.post(older(kind.path), older(kind.body))
		s.get(item)
		s.put(item, kind.body)
		s.put(old, older(kind.body))
		s.patch(item, mergePatch, fmt.Sprintf(kind.field, 5))
		s.get(old)
		s.patch(old, mergePatch, fmt.Sprintf(kind.field, 6), "User-Agent", "other/1")
		s.get(item)
		s.apply(old, "m", older(edited(kind.body, `metadata.labels.x="1"`)))
		s.apply(old, "m", older(edited(kind.body, `metadata.labels.x="1"`)), "Accept", yamlType)
		s.apply(old+"?force=true", "m", older(edited(kind.body, `metadata.labels.x="1"`)))
		s.apply(item, "m", edited(kind.body, `metadata.labels.y="1"`))
		s.get(old)
		s.apply(item, "n", edited(fmt.Sprintf(kind.field, 7), `apiVersion="`+groupPath[6:]+`/v1"`, `kind="`+kindOf(kind.body)+`"`))
		s.apply(item+"?force=true", "n", edited(fmt.Sprintf(kind.field, 7), `apiVersion="`+groupPath[6:]+`/v1"`, `kind="`+kindOf(kind.body)+`"`))
		s.apply(old, "n", older(edited(fmt.Sprintf(kind.field, 8), `apiVersion="`+groupPath[6:]+`/v1"`, `kind="`+kindOf(kind.body)+`"`)))
		s.put(item+"/status", edited(kind.body, `status.conditions=[{"type":"X","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z"}]`))
		s.get(old + "/status")
		s.apply(old+"/status", "s", older(edited(`{"status":{"conditions":[{"type":"Y","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`,
			`apiVersion="`+groupPath[6:]+`/v1"`, `kind="`+kindOf(kind.body)+`"`)))
		s.get(item)
		s.put(old, older(edited(kind.body, `metadata.resourceVersion="{{first:@a}}"`)))
		s.put(item, edited(kind.body, `metadata.resourceVersion="{{rv:@a}}"`))
		s.delete(old)
		s.get(item)
		s.get(old)
	}
}

func kindOf(body string) string {
	if strings.Contains(body, `"kind":"FlowSchema"`) {
		return "FlowSchema"
	}
	return "PriorityLevelConfiguration"
}

// zeroShares is about shares of zero, which v1 takes as they are and v1beta3 needs an annotation for.
func zeroShares(s *script, older func(string) string) {
	shares, annotated := "spec.limited.nominalConcurrencyShares", `metadata.annotations={"`+preserveZero+`":""}`
	old := older(levelsPath)
	for i, edits := range [][]string{
		{shares + "=0"}, {"-" + shares}, {shares + "=null"}, {shares + "=5"}, {shares + "=-1"},
		{shares + "=0", annotated}, {"-" + shares, annotated}, {shares + "=null", annotated}, {shares + "=5", annotated}, {shares + "=-1", annotated},
		{shares + "=0", `metadata.annotations={"` + preserveZero + `":"text","other":"x"}`},
		{shares + "=5", `metadata.annotations={"` + preserveZero + `":"text","other":"x"}`},
		{`spec={"type":"Limited","limited":{"limitResponse":{"type":"Reject"}}}`, annotated}, {`spec={"type":"Limited"}`, annotated}, {`spec={"type":"Exempt"}`, annotated},
		{`spec={"type":"Exempt","exempt":{"nominalConcurrencyShares":0}}`, annotated}, {`spec={"type":"Exempt","exempt":{}}`},
	} {
		name := fmt.Sprintf("@z%d", i)
		s.post(old, older(level(name, edits...)))
		s.post(old+"?fieldValidation=Strict&dryRun=All", older(level(name+"d", edits...)), "Accept", yamlType)
		s.get(old + "/" + name)
		s.get(levelsPath + "/" + name)
		s.post(levelsPath+"?dryRun=All", level(name, edits...))
		s.put(levelsPath+"/"+name, level(name, edits...))
		s.put(old+"/"+name, older(level(name, edits...)))
	}

	// A level of zero, made in v1, read and written in the older version.
	s.post(levelsPath, level("@n", shares+"=0"))
	item, v1 := old+"/@n", levelsPath+"/@n"
	s.get(item)
	s.get(item, "Accept", tableType)
	s.get(item+"?includeObject=Object", "Accept", tableType)
	s.get(item, "Accept", partialType)
	s.get(item, "Accept", protobufType)
	s.get(v1, "Accept", partialType)
	s.put(item, older(level("@n", shares+"=0", annotated)))
	s.patch(item, mergePatch, `{"metadata":{"labels":{"x":"y"}}}`)
	s.patch(item, mergePatch, `{"metadata":{"annotations":{"other":"x"}}}`)
	s.patch(item, jsonPatch, `[{"op":"test","path":"/metadata/annotations/`+strings.ReplaceAll(preserveZero, "/", "~1")+`","value":""}]`)
	s.patch(item, strategic, `{"metadata":{"annotations":{"other":null}}}`)
	s.put(item+"/status", older(level("@n", shares+"=0", `status.conditions=[{"type":"X","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z"}]`)))
	s.patch(item+"/status", mergePatch, `{"status":{"conditions":null}}`)
	s.apply(item, "m", older(level("@n", shares+"=0", annotated)))
	s.apply(item, "m", older(level("@n", shares+"=0")))
	s.apply(item+"?force=true", "m", older(level("@n", shares+"=0")))
	s.apply(item+"?force=true", "m", older(level("@n", shares+"=0", annotated)))
	s.apply(item+"?force=true", "m", older(level("@n", "-"+shares, annotated)))
	s.apply(item+"?force=true", "m", older(level("@n", "-"+shares)))
	s.apply(v1+"?force=true", "v1", level("@n", shares+"=0"))
	s.apply(v1+"?force=true", "v1", level("@n", shares+"=0", annotated))
	s.get(v1)
	s.get(item)
	s.apply(item, "new", older(level("@apply", shares+"=0")))
	s.apply(old+"/@apply", "new", older(level("@apply", shares+"=0")))
	s.apply(old+"/@applied", "new", older(level("@applied", shares+"=0", annotated)))
	s.get(levelsPath + "/@applied")

	// The annotation is removed again.
	s.patch(item, mergePatch, `{"metadata":{"annotations":null}}`)
	s.get(v1)
	s.put(v1, level("@n", shares+"=0"))
	s.patch(item, mergePatch, `{"metadata":{"annotations":{"`+preserveZero+`":null}}}`)
	s.get(v1)
	s.patch(v1, mergePatch, `{"spec":{"limited":{"nominalConcurrencyShares":0}}}`)
	s.patch(item, jsonPatch, `[{"op":"remove","path":"/spec/limited/nominalConcurrencyShares"}]`)
	s.patch(item, mergePatch, `{"spec":{"limited":{"nominalConcurrencyShares":null}}}`)
	s.patch(item, mergePatch, `{"spec":{"limited":{"nominalConcurrencyShares":3}}}`)
	s.patch(item, mergePatch, `{"spec":{"limited":{"nominalConcurrencyShares":0}}}`)
	s.patch(item, mergePatch, `{"metadata":{"annotations":{"`+preserveZero+`":"1"}},"spec":{"limited":{"nominalConcurrencyShares":0}}}`)
	s.patch(v1, mergePatch, `{"metadata":{"annotations":{"`+preserveZero+`":"1"}}}`)
	s.get(v1)
	s.delete(item, "Accept", jsonType)
	// FlowSchemas have nothing to do with it.
	s.post(older(flowSchemasPath), older(flowSchema("@f", annotated)))
	s.get(flowSchemasPath + "/@f")
	s.delete(old + "?labelSelector=s=@all")
	s.delete(older(flowSchemasPath) + "?labelSelector=s=@all")
}

// seenInBothVersions lists and watches in one version what is written in the other.
func seenInBothVersions(s *script, older func(string) string) {
	shares := "spec.limited.nominalConcurrencyShares"
	old, selector := older(levelsPath), "labelSelector=s=@all"
	s.post(levelsPath, level("@a", shares+"=0"))
	s.post(old, older(level("@b", shares+"=0")))
	s.patch(old+"/@a", mergePatch, `{"metadata":{"labels":{"x":"y"}}}`)
	s.patch(levelsPath+"/@b", mergePatch, `{"spec":{"limited":{"nominalConcurrencyShares":0}}}`)
	for _, path := range []string{old, levelsPath} {
		for _, accept := range []string{jsonType, yamlType, protobufType, tableType, partialsType} {
			s.get(path+"?"+selector, "Accept", accept)
		}
		s.get(path + "?limit=1&" + selector)
		s.get(path + "?limit=1&continue={{continue}}&" + selector)
		s.watch(path, selector)
		s.watch(path, selector+"&resourceVersion={{first:@a}}")
		s.watch(path, selector+"&resourceVersion={{first:@a}}", "Accept", protobufType)
		s.watch(path, selector+"&resourceVersion={{first:@a}}", "Accept", tableType)
		s.watch(path, selector+"&resourceVersion={{first:@a}}", "Accept", partialType)
		s.watch(path, selector+"&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true")
		s.get(older(versionPath) + "/watch/prioritylevelconfigurations/@a?timeoutSeconds=1")
	}
	s.delete(old + "/@a")
	s.delete(levelsPath + "/@b")
	for _, path := range []string{old, levelsPath} {
		s.watch(path, selector+"&resourceVersion={{first:@a}}")
	}
}

// crossedVersions sends documents of one version to the paths of the other.
func crossedVersions(s *script, older func(string) string) {
	for _, kind := range []struct{ path, body string }{{flowSchemasPath, flowSchema("@a")}, {levelsPath, level("@a")}} {
		old := older(kind.path)
		s.post(kind.path, older(kind.body))
		s.post(old, kind.body)
		s.post(old, edited(kind.body, "-apiVersion"))
		s.put(old+"/@a", kind.body)
		s.put(kind.path+"/@a", older(kind.body))
		s.apply(old+"/@a", "m", kind.body)
		s.apply(kind.path+"/@a", "m", older(kind.body))
		s.patch(old+"/@a", mergePatch, `{"apiVersion":"flowcontrol.apiserver.k8s.io/v1"}`)
		s.patch(old+"/@a", strategic, `{"apiVersion":"flowcontrol.apiserver.k8s.io/v1"}`)
		s.patch(kind.path+"/@a", mergePatch, older(`{"apiVersion":"flowcontrol.apiserver.k8s.io/v1"}`))
		s.patch(old+"/@a", jsonPatch, `[{"op":"replace","path":"/apiVersion","value":"flowcontrol.apiserver.k8s.io/v1"}]`)
		s.do("DELETE", old+"/@a", older(`{"apiVersion":"flowcontrol.apiserver.k8s.io/v1","kind":"DeleteOptions","dryRun":["All"]}`), contentHeader, jsonType)
		s.do("DELETE", old+"/@a", `{"apiVersion":"flowcontrol.apiserver.k8s.io/v1","kind":"DeleteOptions","dryRun":["All"]}`, contentHeader, jsonType)
		s.post(older(kind.path), strings.Replace(older(kind.body), `"spec":{`, `"spec":{"more":1,`, 1))
		s.post(older(kind.path)+"?fieldValidation=Strict", strings.Replace(older(kind.body), `"spec":{`, `"spec":{"more":1,`, 1))
		s.delete(old + "/@a")
	}
	s.get(older(versionPath))
	s.get(older(versionPath) + "/nope")
}

// droppedFields applies fields in one version and gives them up, while another manager applies in the other.
func droppedFields(s *script, older func(string) string) {
	for _, path := range []func(string) string{older, func(text string) string { return text }} {
		other := func(text string) string { return text }
		if path(versionPath) == versionPath {
			other = older
		}
		s.apply(path(flowSchemasPath)+"/@a", "m", path(flowSchema("@a", "spec.matchingPrecedence=8000")))
		s.apply(other(flowSchemasPath)+"/@a", "n", other(`{"apiVersion":"flowcontrol.apiserver.k8s.io/v1","kind":"FlowSchema","metadata":{"name":"@a","labels":{"x":"y"}}}`))
		s.apply(path(flowSchemasPath)+"/@a", "m", path(flowSchema("@a", "-spec.matchingPrecedence", "-spec.distinguisherMethod")))
		s.delete(path(flowSchemasPath) + "/@a")
		s.apply(path(levelsPath)+"/@a", "m", path(level("@a", "spec.limited.lendablePercent=10", "spec.limited.borrowingLimitPercent=50")))
		s.apply(other(levelsPath)+"/@a", "n", other(`{"apiVersion":"flowcontrol.apiserver.k8s.io/v1","kind":"PriorityLevelConfiguration","metadata":{"name":"@a","labels":{"x":"y"}}}`))
		s.apply(path(levelsPath)+"/@a", "m", path(level("@a")))
		s.apply(path(levelsPath)+"/@a", "m", path(level("@a", "-spec.limited.nominalConcurrencyShares")))
		s.apply(path(levelsPath)+"/@a", "m", path(level("@a", "-spec.limited.limitResponse.queuing", `spec.limited.limitResponse.type="Reject"`)))
		s.delete(path(levelsPath) + "/@a")
	}
}
