package cluster

import "strings"

// budgetSessions begin so.
const budgetSessions = "pdb-"

// BudgetSessions are about disruption budgets as objects. Nobody computes their status on either server.
func BudgetSessions() []Session {
	var all []Session
	for _, entry := range []struct {
		name          string
		managedFields bool
		write         func(*script)
	}{
		{"objects", false, budgetObjects},
		{"documents", false, budgetDocuments},
		{"status", false, budgetStatus},
		{"managers", true, budgetManagers},
		{"merging", false, budgetMerging},
		{"rules", false, budgetRules},
		{"ratchet", false, budgetRatchet},
		{"selectors", false, budgetSelectors},
		{"tables", false, budgetTables},
		{"watch", false, budgetWatch},
	} {
		s := &script{Session{Name: budgetSessions + entry.name, ManagedFields: entry.managedFields}}
		entry.write(s)
		all = append(all, s.Session)
	}
	return all
}

func budgetObjects(s *script) {
	item := budgetsPath + "/@a"
	s.get(item)
	s.put(item, budget("@a"))
	s.post(budgetsPath+"?dryRun=All", budget("@a"))
	s.post(budgetsPath, budget("@a", `status={"disruptionsAllowed":3,"currentHealthy":4,"desiredHealthy":1,"expectedPods":4,"observedGeneration":3}`))
	s.post(budgetsPath, budget("@a"))
	s.get(item)
	s.get(item, "Accept", yamlType)
	s.get(item, "Accept", protobufType)
	s.get(budgetsPath + "?labelSelector=s=@all")
	s.get(budgetsPath + "?fieldSelector=metadata.name=@a")
	s.get(budgetsPath + "?fieldSelector=metadata.namespace=default,metadata.name=@a")
	s.get(budgetsPath + "?fieldSelector=spec.maxUnavailable=1")
	s.get("/apis/policy/v1/poddisruptionbudgets?labelSelector=s=@all")
	s.put(item, budget("@a"))
	s.put(item, budget("@a", `metadata.resourceVersion="{{rv:@a}}"`, `spec.maxUnavailable="50%"`))
	s.put(item, budget("@a", `metadata.resourceVersion="{{first:@a}}"`, `spec.maxUnavailable=2`))
	s.put(item, budget("@a", `spec.maxUnavailable=0`))
	s.put(item, budget("@a", `metadata.namespace="elsewhere"`))
	s.patch(item, mergePatch, `{"metadata":{"annotations":{"a":"b"}}}`)
	s.patch(item, mergePatch, `{"spec":{"maxUnavailable":null,"minAvailable":"100%"}}`)
	s.patch(item, mergePatch, `{"spec":{"maxUnavailable":1}}`)
	s.patch(item, jsonPatch, `[{"op":"replace","path":"/spec/minAvailable","value":2}]`)
	s.patch(item, jsonPatch, `[{"op":"remove","path":"/spec/none"}]`)
	s.patch(item, mergePatch, `{"spec":{"nope":1}}`)
	s.patch(item+"?fieldValidation=Strict", mergePatch, `{"spec":{"nope":1}}`)
	s.apply(item, "me", budget("@a", `metadata.labels.x="z"`))
	s.apply(item+"?force=true", "me", budget("@a", `metadata.labels.x="z"`, "-spec.maxUnavailable", `spec.minAvailable=1`))
	s.apply(budgetsPath+"/@b", "me", budget("@b"))
	s.post(budgetsPath, budget("@a", "-metadata.name", `metadata.generateName="@g-"`))
	s.patch(item, mergePatch, `{"metadata":{"finalizers":["example.com/x"]}}`)
	s.delete(item + "?dryRun=All")
	s.delete(item)
	s.patch(item, mergePatch, `{"metadata":{"finalizers":null}}`)
	s.get(item)
	s.delete(budgetsPath + "?labelSelector=s=@all")
	s.get(budgetsPath + "?labelSelector=s=@all")
}

func budgetDocuments(s *script) {
	s.get(budgetsPath + "/@a/none")
	s.get(budgetsPath + "/@a/status")
	s.post(budgetsPath+"/@a", budget("@a"))
	s.delete(budgetsPath + "/@a/status")
	s.post(budgetsPath, policy("@a"))
	s.post(budgetsPath, `{}`)
	s.post(budgetsPath, `{"apiVersion":"policy/v1","kind":"PodDisruptionBudget"}`)
	s.post(budgetsPath, `{"apiVersion":"policy/v1beta1","kind":"PodDisruptionBudget","metadata":{"name":"@a"}}`)
	s.post("/apis/policy/v1beta1/namespaces/default/poddisruptionbudgets", budget("@a"))
	s.post("/apis/policy/v1/poddisruptionbudgets", budget("@a"))
	s.post(budgetsPath, budget("@a", `metadata.namespace="elsewhere"`))
	for _, value := range []string{`1.5`, `true`, `[]`, `{}`, `""`, `"x"`, `"5"`, `"-5%"`, `"5.5%"`, `"101%"`, `"0%"`, `-1`, `0`, `2147483648`, `"%"`, `"005%"`, `null`} {
		s.post(budgetsPath+"?dryRun=All", budget("@a", "-spec.maxUnavailable", `spec.minAvailable=`+value))
		s.post(budgetsPath+"?dryRun=All", budget("@a", `spec.maxUnavailable=`+value))
	}
	s.post(budgetsPath+"?dryRun=All&fieldValidation=Strict", budget("@a", `spec.x=1`, `status.y=2`))
	s.post(budgetsPath+"?dryRun=All", `apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: "@y"}
spec: {minAvailable: 50%, selector: {matchLabels: {a: b}}, unhealthyPodEvictionPolicy: AlwaysAllow}
`, contentHeader, yamlType)
}

func budgetStatus(s *script) {
	item := budgetsPath + "/@a"
	s.put(item+"/status", budget("@a"))
	s.post(budgetsPath, budget("@a"))
	status := `status={"disruptionsAllowed":1,"currentHealthy":4,"desiredHealthy":3,"expectedPods":4,"observedGeneration":1,"disruptedPods":{"p":"2024-01-01T00:00:00Z"},` +
		`"conditions":[{"type":"DisruptionAllowed","status":"True","reason":"SufficientPods","message":"","lastTransitionTime":"2024-01-01T00:00:00Z","observedGeneration":1}]}`
	s.put(item+"/status", budget("@a", status))
	s.put(item+"/status", budget("@a", `metadata.resourceVersion="{{rv:@a}}"`, status, `metadata.labels.x="y"`, `metadata.annotations={"a":"b"}`, `spec.maxUnavailable=7`))
	for _, patch := range []string{
		`{"status":{"disruptionsAllowed":-1}}`,
		`{"status":{"currentHealthy":-1,"desiredHealthy":-2,"expectedPods":-3}}`,
		`{"status":{"observedGeneration":-4}}`,
		`{"status":{"disruptionsAllowed":null}}`,
		`{"status":{"disruptedPods":{"q":"2024-01-01T00:00:00.5Z"}}}`,
		`{"status":{"disruptedPods":{"q":"yesterday"}}}`,
		`{"status":{"disruptedPods":{"":"2024-01-01T00:00:00Z"}}}`,
		`{"status":{"disruptedPods":{"q":null}}}`,
		`{"status":{"disruptedPods":null,"conditions":[{"type":"","status":"x"},{"type":"Y","status":"True"},{"type":"Y","status":"True"}]}}`,
		`{"status":{"conditions":[{"type":"Y","status":"True","reason":"R","message":"m","lastTransitionTime":"2024-01-01T00:00:00Z"}]}}`,
		`{"status":{"conditions":[{"type":"Y","status":"Maybe","reason":"no reason","message":"m","lastTransitionTime":"2024-01-01T00:00:00Z"}]}}`,
		`{"status":{"x":1}}`,
		`{"spec":{"minAvailable":5}}`,
	} {
		s.patch(item+"/status", mergePatch, patch)
	}
	s.patch(item+"/status", strategic, `{"status":{"conditions":[{"type":"Z","status":"True","reason":"R","message":"m","lastTransitionTime":"2024-01-01T00:00:00Z"}]}}`)
	s.patch(item+"/status", jsonPatch, `[{"op":"replace","path":"/status/expectedPods","value":7}]`)
	s.patch(item, mergePatch, `{"status":{"expectedPods":9}}`)
	s.apply(item+"/status", "m", budget("@a", "-spec", "-metadata.labels", `status={"expectedPods":8}`))
	s.apply(item+"/status?force=true", "m", budget("@a", "-spec", "-metadata.labels", `status={"expectedPods":8,"conditions":[{"type":"Z","status":"False","reason":"R","message":"m","lastTransitionTime":"2024-01-01T00:00:00Z"}]}`))
	s.get(item + "/status")
	s.get(item+"/status", "Accept", tableType)
	s.delete(item)
}

func budgetManagers(s *script) {
	item := budgetsPath + "/@a"
	s.apply(item, "one", budget("@a", `spec.selector={"matchLabels":{"a":"b"},"matchExpressions":[{"key":"k","operator":"In","values":["x","y"]}]}`))
	s.apply(item, "two", budget("@a", "-metadata.labels", "-spec.maxUnavailable", `spec.unhealthyPodEvictionPolicy="AlwaysAllow"`))
	s.apply(item, "two", budget("@a", "-metadata.labels", `spec.maxUnavailable=2`))
	s.apply(item, "two", budget("@a", "-metadata.labels", "-spec.maxUnavailable", `spec.selector={"matchLabels":{"c":"d"}}`))
	s.apply(item+"?force=true", "two", budget("@a", "-metadata.labels", `spec.maxUnavailable="10%"`))
	s.apply(item, "one", budget("@a", "-spec.maxUnavailable"))
	s.put(item+"/status", budget("@a", `metadata.resourceVersion="{{rv:@a}}"`, `status={"disruptionsAllowed":1,"currentHealthy":1,"desiredHealthy":0,"expectedPods":1,"disruptedPods":{"p":"2024-01-01T00:00:00Z"}}`))
	s.apply(item+"/status", "controller", budget("@a", "-spec", "-metadata.labels", `status={"disruptedPods":{"q":"2024-01-01T00:00:00Z"}}`))
	s.apply(item+"/status", "controller", budget("@a", "-spec", "-metadata.labels", `status={"disruptedPods":{}}`))
	s.get(item)
	s.delete(item)
}

func budgetMerging(s *script) {
	item := budgetsPath + "/@a"
	s.post(budgetsPath, budget("@a", `spec.selector={"matchLabels":{"a":"b"}}`))
	for _, patch := range []string{
		`{"spec":{"selector":{"matchLabels":{"c":"d"}}}}`,
		`{"spec":{"selector":{"matchExpressions":[{"key":"k","operator":"Exists"}]}}}`,
		`{"spec":{"selector":{"$patch":"replace","matchLabels":{"e":"f"}}}}`,
		`{"spec":{"selector":null}}`,
		`{"spec":{"selector":{}}}`,
		`{"spec":{"maxUnavailable":"5%"}}`,
		`{"spec":{"unhealthyPodEvictionPolicy":"IfHealthyBudget"}}`,
	} {
		s.patch(item, strategic, patch)
	}
	s.delete(item)
}

func budgetRules(s *script) {
	post := func(edits ...string) { s.post(budgetsPath+"?dryRun=All", budget("@a", edits...)) }
	post("-spec")
	post("-spec.maxUnavailable")
	post(`spec.minAvailable=1`)
	post(`spec.minAvailable="x"`, `spec.maxUnavailable="y"`)
	post(`spec.unhealthyPodEvictionPolicy=""`)
	post(`spec.unhealthyPodEvictionPolicy="Sometimes"`)
	post(`spec.selector={"matchLabels":{"a b":"c"}}`)
	post(`spec.selector={"matchLabels":{"a":"c d"}}`)
	post(`spec.selector={"matchLabels":{"":""}}`)
	post(`spec.selector={"matchExpressions":[{"key":"a","operator":"In"}]}`)
	post(`spec.selector={"matchExpressions":[{"key":"a","operator":"Exists","values":["b"]}]}`)
	post(`spec.selector={"matchExpressions":[{"key":"a","operator":"Near","values":["b"]},{"key":"","operator":"DoesNotExist"}]}`)
	post(`spec.selector={"matchExpressions":[{"key":"a","operator":"NotIn","values":["b c"]}]}`)
	post(`spec.selector=1`)
	post(`spec.selector={"matchLabels":[]}`)
	post(`metadata.name="UPPER"`)
	post(`metadata.name="a.b.c"`)
	post(`metadata.name="a_b"`)
	post(`metadata.labels={"a b":"c"}`)
	post(`metadata.annotations={"a b":"c"}`, `spec.minAvailable=-3`, `spec.unhealthyPodEvictionPolicy="x"`)
}

func budgetRatchet(s *script) {
	item := budgetsPath + "/@a"
	s.post(budgetsPath, budget("@a", `spec.selector={"matchExpressions":[{"key":"a","operator":"In","values":["b"]}]}`))
	s.patch(item, mergePatch, `{"spec":{"selector":{"matchExpressions":[{"key":"a","operator":"In","values":["b c"]}]}}}`)
	s.patch(item, mergePatch, `{"spec":{"maxUnavailable":"101%"}}`)
	s.patch(item, mergePatch, `{"spec":{"maxUnavailable":"100%"}}`)
	s.put(item, budget("@a", `metadata.resourceVersion="{{rv:@a}}"`, `spec.selector={"matchLabels":{"z":"y"}}`))
	s.put(item, budget("@a", `metadata.resourceVersion="{{rv:@a}}"`, `metadata.uid="00000000-0000-0000-0000-000000000001"`))
	s.put(item, budget("@a", `metadata.resourceVersion="{{rv:@a}}"`, `metadata.generation=9`, `metadata.creationTimestamp="2024-01-01T00:00:00Z"`))
	s.get(item)
	s.delete(item)
}

func budgetSelectors(s *script) {
	for _, name := range []string{"@a", "@b", "@c"} {
		s.post(budgetsPath, budget(name, `metadata.labels.n="`+name+`"`))
	}
	for _, query := range []string{
		"labelSelector=s=@all", "labelSelector=s=@all,n!=@a", "labelSelector=n in (@a,@b)", "labelSelector=s=@all,!n", "labelSelector=,",
		"labelSelector=s=@all&limit=2", "labelSelector=s=@all&limit=0", "labelSelector=s=@all&resourceVersion=0", "labelSelector=s=@all&resourceVersion=x",
		"labelSelector=s=@all&resourceVersionMatch=Exact", "labelSelector=s=@all&fieldSelector=metadata.name!=@b", "fieldSelector=status.expectedPods=0",
	} {
		s.get(budgetsPath + "?" + strings.NewReplacer(" ", "%20", "(", "%28", ")", "%29").Replace(query))
	}
	s.delete(budgetsPath + "?labelSelector=n=@b")
	s.delete(budgetsPath + "?labelSelector=s=@all&dryRun=All")
	s.delete(budgetsPath + "?labelSelector=s=@all")
	s.get(budgetsPath + "?labelSelector=s=@all")
}

func budgetTables(s *script) {
	s.post(budgetsPath, budget("@a"))
	s.post(budgetsPath, budget("@b", "-spec.maxUnavailable", `spec.minAvailable="50%"`))
	s.put(budgetsPath+"/@b/status", budget("@b", `metadata.resourceVersion="{{rv:@b}}"`, `status={"disruptionsAllowed":2,"currentHealthy":4,"desiredHealthy":2,"expectedPods":4}`))
	s.get(budgetsPath+"?labelSelector=s=@all", "Accept", tableType)
	s.get(budgetsPath+"/@b", "Accept", tableType)
	s.get(budgetsPath+"?labelSelector=s=@all&includeObject=None", "Accept", tableType)
	s.get(budgetsPath+"?labelSelector=s=@all&includeObject=Object", "Accept", tableType)
	s.get("/apis/policy/v1/poddisruptionbudgets?labelSelector=s=@all", "Accept", tableType)
	s.delete(budgetsPath + "?labelSelector=s=@all")
}

func budgetWatch(s *script) {
	s.post(budgetsPath, budget("@a"))
	s.patch(budgetsPath+"/@a", mergePatch, `{"metadata":{"labels":{"x":"y"}}}`)
	s.put(budgetsPath+"/@a/status", budget("@a", `metadata.resourceVersion="{{rv:@a}}"`, `status={"disruptionsAllowed":1,"currentHealthy":1,"desiredHealthy":0,"expectedPods":1}`))
	s.delete(budgetsPath + "/@a")
	s.watch(budgetsPath, "labelSelector=s=@all&resourceVersion={{first:@a}}")
	s.watch("/apis/policy/v1/poddisruptionbudgets", "labelSelector=s=@all&resourceVersion={{first:@a}}")
}
