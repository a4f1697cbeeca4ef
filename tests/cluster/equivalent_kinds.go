package cluster

import (
	"fmt"
	"strings"
)

// A equivalentKind is a resource that a server serves in several versions.
type equivalentKind struct {
	resource string
	kind     string
	// versions are those of its group, as in apiVersion.
	versions []string
	cluster  bool // it has no namespace
	// named is what an object is called, with the numbers of a policy and of a version; it has a default.
	named string
	// document is what an object has besides its type and its name, in a version.
	document func(version string) string
	// change is an edit of a merge patch that changes its spec; its labels if empty.
	change func(version string) string
	// status is an edit of its status, if it has the subresource.
	status string
	// seen are expressions for text: what a policy sees of an object o.
	seen []string
}

// fieldNames are the fields of an object or a map; none if there is no such.
func fieldNames(expression string) string {
	return `dyn(` + expression + `).orValue({}).map(k, string(k)).sort().join(',')`
}

// eachItem is a text for each item of a list, as an expression about the item.
func eachItem(list, item string) string {
	return list + `.orValue([]).map(i, ` + item + `).join(';')`
}

// value is that of a field that need not be there, as text.
func value(expression string) string { return `string(` + expression + `.orValue('-'))` }

// always gives the same in all versions.
func always(text string) func(string) string { return func(string) string { return text } }

// isEarly says whether claims and slices have the fields of their first version.
func isEarly(version string) bool { return strings.HasSuffix(version, "/v1beta1") }

// claimRequests are requests for devices without what has a default.
func claimRequests(version string) string {
	plain := `"exactly":{"deviceClassName":"gpu"}`
	chosen := `"exactly":{"deviceClassName":"gpu","count":2,"selectors":[{"cel":{"expression":"true"}}],"tolerations":[{"key":"k","effect":"NoSchedule"}]}`
	if isEarly(version) {
		plain, chosen = strings.TrimSuffix(strings.TrimPrefix(plain, `"exactly":{`), "}"), strings.TrimSuffix(strings.TrimPrefix(chosen, `"exactly":{`), "}")
	}
	return `{"devices":{"requests":[{"name":"plain",` + plain + `},{"name":"chosen",` + chosen + `},{"name":"first","firstAvailable":[{"name":"a","deviceClassName":"gpu"},{"name":"b","deviceClassName":"gpu","allocationMode":"All"}]}]}}`
}

// sliceDevices are devices.
func sliceDevices(version string) string {
	fields := `"attributes":{"model":{"string":"m"}},"capacity":{"memory":{"value":"1Gi"}}`
	if isEarly(version) {
		return `[{"name":"d","basic":{` + fields + `}},{"name":"e","basic":{}}]`
	}
	return `[{"name":"d",` + fields + `},{"name":"e"}]`
}

func seenRequests(requests string) string {
	inner := `'mode=' + ` + value(`i.?allocationMode`) + ` + 'count=' + ` + value(`i.?count`) + ` + 'class=' + ` + value(`i.?deviceClassName`)
	exactly := strings.ReplaceAll(inner, "i.?", "i.?exactly.?")
	return eachItem(requests, fieldNames(`optional.of(i)`)+` + ' exactly ' + `+fieldNames(`i.?exactly`)+` + `+inner+` + `+exactly+
		` + `+strings.ReplaceAll(eachItem(`j.?firstAvailable`, `i.name + `+value(`i.?count`)+` + `+value(`i.?allocationMode`)), "j.?", "i.?"))
}

// readyStatus is an edit of a status.
const readyStatus = `status.conditions=[{"type":"Ready","status":"True","reason":"R","message":"m","lastTransitionTime":"2026-01-02T03:04:05Z"}]`

var seenConditions = eachItem(`o.?status.?conditions`, `i.type + i.status`)

// equivalentKinds are all resources that a server serves in several versions if all versions are on. `bundle` is the certificates of an
// authority, in PEM and as JSON.
func equivalentKinds(bundle string) []equivalentKind {
	const resource = "resource.k8s.io/"
	early := []string{resource + "v1", resource + "v1beta1", resource + "v1beta2"}
	networking := []string{"networking.k8s.io/v1", "networking.k8s.io/v1beta1"}
	return []equivalentKind{
		{
			resource: "horizontalpodautoscalers", kind: "HorizontalPodAutoscaler", versions: []string{"autoscaling/v1", "autoscaling/v2"},
			document: func(version string) string {
				const target = `"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"web"},"maxReplicas":3`
				if version == "autoscaling/v1" {
					return `"spec":{` + target + `,"targetCPUUtilizationPercentage":55}`
				}
				return `"spec":{` + target + `,"metrics":[{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":66}}},{"type":"Resource","resource":{"name":"memory","target":{"type":"AverageValue","averageValue":"1Gi"}}}]}`
			},
			change: always(`spec.maxReplicas=4`), status: `status.currentReplicas=2`,
			seen: []string{value(`o.?spec.?minReplicas`), value(`o.?spec.?maxReplicas`), value(`o.?spec.?targetCPUUtilizationPercentage`), eachItem(`o.?spec.?metrics`, `i.type + i.?resource.?name.orValue('')`), fieldNames(`o.?metadata.?annotations`), value(`o.?status.?currentReplicas`)},
		},
		{
			resource: "events", kind: "Event", versions: []string{"v1", "events.k8s.io/v1"},
			document: func(version string) string {
				if version == "v1" {
					return `"involvedObject":{"kind":"Pod","namespace":"versions","name":"p"},"reason":"r","message":"m","type":"Normal","eventTime":"2026-01-02T03:04:05.000000Z","action":"a","reportingComponent":"x.io/c","reportingInstance":"i"`
				}
				return `"regarding":{"kind":"Pod","namespace":"versions","name":"p"},"reason":"r","note":"m","type":"Normal","eventTime":"2026-01-02T03:04:05.000000Z","action":"a","reportingController":"x.io/c","reportingInstance":"i"`
			},
			seen: []string{value(`o.?message`), value(`o.?note`), value(`o.?involvedObject.?name`), value(`o.?regarding.?name`), value(`o.?reportingComponent`), value(`o.?reportingController`)},
		},
		{
			resource: "clustertrustbundles", kind: "ClusterTrustBundle", versions: []string{"certificates.k8s.io/v1alpha1", "certificates.k8s.io/v1beta1"}, cluster: true,
			document: always(`"spec":{"trustBundle":` + bundle + `}`),
			seen:     []string{`string(o.spec.trustBundle.size())`},
		},
		{
			resource: "leasecandidates", kind: "LeaseCandidate", versions: []string{"coordination.k8s.io/v1alpha2", "coordination.k8s.io/v1beta1"},
			document: always(`"spec":{"leaseName":"l","binaryVersion":"0.1.0","emulationVersion":"0.1.0","strategy":"OldestEmulationVersion"}`),
			change:   always(`spec.binaryVersion="0.2.0"`),
			seen:     []string{value(`o.?spec.?leaseName`), value(`o.?spec.?binaryVersion`), value(`o.?spec.?strategy`)},
		},
		{
			resource: "ipaddresses", kind: "IPAddress", versions: networking, cluster: true, named: "10.96.%d.%d",
			document: always(`"spec":{"parentRef":{"resource":"services","namespace":"versions","name":"s"}}`),
			seen:     []string{value(`o.?spec.?parentRef.?name`)},
		},
		{
			resource: "servicecidrs", kind: "ServiceCIDR", versions: networking, cluster: true,
			document: always(`"spec":{"cidrs":["10.200.0.0/24"]}`), status: readyStatus,
			seen: []string{`o.spec.cidrs.join(',')`, seenConditions},
		},
		{
			resource: "deviceclasses", kind: "DeviceClass", versions: early, cluster: true,
			document: always(`"spec":{"selectors":[{"cel":{"expression":"true"}}]}`), change: always(`spec.selectors=[]`),
			seen: []string{eachItem(`o.?spec.?selectors`, `i.cel.expression`), value(`o.?metadata.?generation`)},
		},
		{
			resource: "devicetaintrules", kind: "DeviceTaintRule", versions: []string{resource + "v1alpha3", resource + "v1beta2"}, cluster: true,
			document: always(`"spec":{"deviceSelector":{"driver":"x.io"},"taint":{"key":"k","effect":"NoSchedule","timeAdded":"2026-01-02T03:04:05Z"}}`),
			change:   always(`spec.taint.value="v"`), status: readyStatus,
			seen: []string{value(`o.?spec.?deviceSelector.?driver`), fieldNames(`o.?spec.?taint`), value(`o.?spec.?taint.?value`), seenConditions},
		},
		{
			resource: "resourceclaims", kind: "ResourceClaim", versions: early,
			document: func(version string) string { return `"spec":` + claimRequests(version) },
			status:   `status={"allocation":{"devices":{"results":[{"request":"plain","driver":"x.io","pool":"p","device":"d","tolerations":[{"key":"k"}]}]}}}`,
			seen:     []string{seenRequests(`o.?spec.?devices.?requests`), eachItem(`o.?status.?allocation.?devices.?results`, fieldNames(`optional.of(i)`)+` + `+eachItem(`i.?tolerations`, `'x'`))},
		},
		{
			resource: "resourceclaimtemplates", kind: "ResourceClaimTemplate", versions: early,
			document: func(version string) string { return `"spec":{"spec":` + claimRequests(version) + `}` },
			seen:     []string{seenRequests(`o.?spec.?spec.?devices.?requests`)},
		},
		{
			resource: "resourceslices", kind: "ResourceSlice", versions: early, cluster: true,
			document: func(version string) string {
				return `"spec":{"driver":"x.io","nodeName":"node-1","pool":{"name":"p","generation":1,"resourceSliceCount":1},"devices":` + sliceDevices(version) + `}`
			},
			change: func(version string) string {
				return `spec.devices=` + strings.Replace(sliceDevices(version), `"m"`, `"changed"`, 1)
			},
			seen: []string{value(`o.?spec.?nodeName`), value(`o.?spec.?allNodes`), eachItem(`o.?spec.?devices`, fieldNames(`optional.of(i)`)+` + ' basic ' + `+fieldNames(`i.?basic`)+` + `+value(`i.?attributes.?model.?string`)+` + `+value(`i.?basic.?attributes.?model.?string`))},
		},
		{
			resource: "volumeattributesclasses", kind: "VolumeAttributesClass", versions: []string{"storage.k8s.io/v1", "storage.k8s.io/v1beta1"}, cluster: true,
			document: always(`"driverName":"x.io","parameters":{"iops":"7"}`),
			seen:     []string{value(`o.?driverName`), value(`o.?parameters.?iops`)},
		},
	}
}

// group is the one of a version.
func groupOf(apiVersion string) (group, version string) {
	if group, version, found := strings.Cut(apiVersion, "/"); found {
		return group, version
	}
	return "", apiVersion
}

func (k equivalentKind) path(apiVersion, more string) string {
	root := "/apis/" + apiVersion
	if apiVersion == "v1" {
		root = "/api/v1"
	}
	if !k.cluster {
		root += "/namespaces/" + versionsNamespace
	}
	return root + "/" + k.resource + more
}

// name is that of the object that is written in a version, about which one policy is.
func (k equivalentKind) name(policy, version int) string {
	named := k.named
	if named == "" {
		named = "versions-%d-%d"
	}
	return fmt.Sprintf(named, policy+1, version+1)
}

func (k equivalentKind) of(apiVersion, name string, edits ...string) string {
	return edited(fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q,"labels":{"n":%[3]q}},%s}`, apiVersion, k.kind, name, k.document(apiVersion)), edits...)
}

// subsets are some of the versions each: those that a policy names.
func (k equivalentKind) subsets() [][]string {
	var all [][]string
	for mask := 1; mask < 1<<len(k.versions)-1; mask++ {
		var some []string
		for i, version := range k.versions {
			if mask&(1<<i) != 0 {
				some = append(some, version)
			}
		}
		all = append(all, some)
	}
	return all
}

// policies print what they see of objects, one for each subset of versions, each with its binding.
func (k equivalentKind) policies() []string {
	seen := append([]string{`o.apiVersion + ' ' + o.kind + ' ' + o.metadata.name`, fieldNames(`optional.of(o)`), fieldNames(`o.?spec`), fieldNames(`o.?status`), value(`o.?metadata.?labels.?changed`)}, k.seen...)
	shown := strings.Join(seen, ` + ' | ' + `)
	side := func(object string) string {
		return `(` + object + ` == null ? 'none' : [` + object + `].map(o, ` + shown + `)[0])`
	}
	head := `'echo ' + request.operation + ' ' + request.requestKind.version + ' as ' + request.kind.group + '/' + request.kind.version + ' ' + request.resource.version + ' of ' + request.requestResource.version + ' ' + request.?subResource.orValue('')`
	message := head + ` + ' NEW ' + ` + side("object") + ` + ' OLD ' + ` + side("oldObject")
	var all []string
	for number, versions := range k.subsets() {
		var rules, mine []string
		for _, apiVersion := range versions {
			group, version := groupOf(apiVersion)
			rules = append(rules, fmt.Sprintf(`{"apiGroups":[%q],"apiVersions":[%q],"resources":[%q,%q],"operations":["*"]}`, group, version, k.resource, k.resource+"/status"))
		}
		for index := range k.versions {
			mine = append(mine, k.name(number, index))
		}
		name := fmt.Sprintf("versions-%s-%d", k.resource, number)
		condition := `(object == null ? oldObject : object).metadata.name in ` + string(asJSON(mine))
		all = append(all, policy(name, `-metadata.labels`, `spec.matchConstraints={"matchPolicy":"Equivalent","resourceRules":[`+strings.Join(rules, ",")+`]}`, fmt.Sprintf(`spec.matchConditions=[{"name":"mine","expression":%q}]`, condition),
			mustHold(validation(`false`, fmt.Sprintf(`"messageExpression":%q`, message)))))
		all = append(all, binding(name, `-metadata.labels`, `spec.validationActions=["Warn"]`))
	}
	return all
}
