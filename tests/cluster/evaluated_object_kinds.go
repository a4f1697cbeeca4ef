package cluster

import "strings"

// scaleDocument is a Scale with a status and a selector that no client may set.
const scaleDocument = `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"%[1]s","namespace":"@ns"},"spec":{"replicas":2},"status":{"replicas":77,"selector":"forged"}}`

// evaluatedRequest is the request of a certificate, in PEM.
const evaluatedRequest = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlITE1ITUNBUUF3RVRFUE1BMEdBMVVFQXd3R2FuVmtaMlZrTUZrd0V3WUhLb1pJemowQ0FRWUlLb1pJemowRApBUWNEUWdBRUJkQlRra3RaaXNoVkFwbFBqQi9lbUJFL2lqRWFiYzgxNXlqMjhwSVlOeDlyTFRHM1ZKTXNwTit1CkxGd1ZKRW1WTXBveXRlakhRMFRjMXppRnp6UEVwS0FBTUFvR0NDcUdTTTQ5QkFNQ0EwZ0FNRVVDSVFEWnprUTcKQlNxaWdiMnh2Y2Y3SlFnU29VelBZejhIWko2RU0yRUxUaXkyUVFJZ0dTcjhLQWtiKzdFRHRFZUI0OW5XamJwcQpyV0YvODFnUllHeUdERVRXWDdVPQotLS0tLUVORCBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0K"

// echoedStatus is the subresource of that name, with an edit and what is seen of it.
func echoedStatus(edit string, seen ...string) echoedSubresource {
	return echoedSubresource{name: "status", edits: []string{edit}, seen: seen}
}

func echoedScale() echoedSubresource {
	return echoedSubresource{name: "scale", document: scaleDocument, edits: []string{`spec.replicas=2`}, seen: []string{printed("spec.replicas"), printed("status.selector")}}
}

// evaluatedObjectKinds are all kinds that a server stores, but for those that policies are not about.
func evaluatedObjectKinds() []echoedKind {
	var all []echoedKind
	for _, group := range [][]echoedKind{coreKinds(), workloadKinds(), clusterKinds(), otherKinds(), customKinds(), reviewKinds()} {
		all = append(all, group...)
	}
	return all
}

// exemptStatus and exemptPhase are an edit of a status that only a controller sets, and an expression that shows it.
func exemptStatus(field string) (edit, seen string) {
	return `status.` + field + `=77`, `(string(object.?status.?` + field + `.orValue('-')) == '77' ? 'exempt' : string(object.?status.?` + field + `.orValue('-')))`
}

func exemptPhase(field, value string) (edit, seen string) {
	return `status.` + field + `="` + value + `"`, `(object.?status.?` + field + `.orValue('-') == '` + value + `' ? 'exempt' : object.?status.?` + field + `.orValue('-'))`
}

// withStatus is a kind with an exemption by its status, and with the subresource of that name.
func withStatus(kind echoedKind, edit, seen string, more ...echoedSubresource) echoedKind {
	kind.exempt, kind.seen = edit, seen
	kind.subresources = append([]echoedSubresource{echoedStatus(edit)}, more...)
	return kind
}

func coreKinds() []echoedKind {
	phase := func(kind echoedKind, field, value string, more ...echoedSubresource) echoedKind {
		edit, seen := exemptPhase(field, value)
		return withStatus(kind, edit, seen, more...)
	}
	pods := phase(echoedKind{session: "pods", path: "pods", document: standard("v1", "Pod", ","+evaluatedPodSpec), change: `spec.containers.0.image="evil/app"`}, "phase", "Running",
		echoedSubresource{name: "ephemeralcontainers", strategic: true, edits: []string{`spec.ephemeralContainers=[{"name":"e","image":"evil/debug"}]`}, seen: []string{`object.?spec.?ephemeralContainers.orValue([]).map(c, c.image).join('+')`, `object.?spec.?containers.orValue([]).map(c, c.image).join('+')`}},
		echoedSubresource{name: "resize", strategic: true, edits: []string{`spec.containers=[{"name":"c","image":"evil/app","resources":{"requests":{"cpu":"2"}}}]`}, seen: []string{`object.?spec.?containers.orValue([]).map(c, string(c.?resources.?requests.?cpu.orValue('-'))).join('+')`}},
		echoedSubresource{name: "binding", posts: true, document: `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"%[1]s"},"target":{"kind":"Node","name":"n"}}`, seen: []string{printed("target.name")}},
		echoedSubresource{name: "eviction", posts: true, document: `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"%[1]s"}}`})
	claim := standard("v1", "PersistentVolumeClaim", `,"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}`)
	node := phase(echoedKind{session: "nodes", path: "nodes", cluster: true, document: standard("v1", "Node", `,"spec":{"unschedulable":false}`), change: `spec.unschedulable=true`}, "phase", "Running")
	namespaces := phase(echoedKind{session: "namespaces", path: "namespaces", cluster: true, document: standard("v1", "Namespace", ``), change: `spec.finalizers=["kubernetes","example.com/x"]`}, "phase", "Terminating",
		echoedSubresource{name: "finalize", putsOnly: true, edits: []string{`spec.finalizers=["kubernetes","example.com/y"]`}, seen: []string{`object.?spec.?finalizers.orValue([]).join('+')`}})
	claims := phase(echoedKind{session: "claims", path: "persistentvolumeclaims", document: claim}, "phase", "Lost")
	volume := phase(echoedKind{session: "volumes", path: "persistentvolumes", cluster: true, change: `spec.persistentVolumeReclaimPolicy="Delete"`,
		document: standard("v1", "PersistentVolume", `,"spec":{"capacity":{"storage":"1Gi"},"accessModes":["ReadWriteOnce"],"hostPath":{"path":"/tmp/x"}}`)}, "phase", "Released")
	account := echoedKind{session: "accounts", path: "serviceaccounts", document: standard("v1", "ServiceAccount", ``), subresources: []echoedSubresource{
		{name: "token", posts: true, document: `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","metadata":{"name":"%[1]s"},"spec":{"expirationSeconds":900,"audiences":["a"]},"status":{"token":"forged","expirationTimestamp":"2020-01-01T00:00:00Z"}}`, seen: []string{`(has(object.status) ? object.?status.?token.orValue('-') : 'none')`}}}}
	service := echoedKind{session: "services", path: "services", puts: true, document: standard("v1", "Service", `,"spec":{"clusterIP":"None","selector":{"app":"x"},"ports":[{"name":"web","port":80}]}`), change: `spec.selector={"app":"y"}`}
	service = withStatus(service, `status.loadBalancer={"ingress":[{"ip":"10.0.0.77"}]}`, `(object.?status.?loadBalancer.?ingress.orValue([]).size() > 0 ? 'exempt' : 'none')`)
	service.document = strings.Replace(service.document, `"spec":{`, `"spec":{"type":"ClusterIP",`, 1)
	quota := withStatus(echoedKind{session: "quotas", path: "resourcequotas", document: standard("v1", "ResourceQuota", `,"spec":{"hard":{"services":"77"}}`), change: `spec.hard.services="78"`},
		`status.hard={"services":"77"}`, `(object.?status.?hard.orValue({}).size() > 0 ? 'exempt' : 'none')`)
	replicas, seen := exemptStatus("replicas")
	controllers := withStatus(echoedKind{session: "controllers", path: "replicationcontrollers", change: `spec.minReadySeconds=5`,
		document: standard("v1", "ReplicationController", `,"spec":{"selector":{"app":"x"},"template":{"metadata":{"labels":{"app":"x"}},`+evaluatedPodSpec+`}}`)}, replicas, seen, echoedScale())
	return []echoedKind{pods, node, namespaces, claims, volume, account, service, quota, controllers,
		{session: "maps", path: "configmaps", document: standard("v1", "ConfigMap", `,"data":{"a":"b"}`), change: `data.a="c"`},
		{session: "secrets", path: "secrets", document: standard("v1", "Secret", `,"data":{"a":"Yg=="}`), change: `data.a="Yw=="`},
		{session: "endpoints", path: "endpoints", puts: true, document: standard("v1", "Endpoints", `,"subsets":[]`)},
		{session: "ranges", path: "limitranges", puts: true, document: standard("v1", "LimitRange", `,"spec":{"limits":[{"type":"Pod","max":{"cpu":"7"}}]}`), change: `spec.limits.0.max.cpu="8"`},
		{session: "templates", path: "podtemplates", document: standard("v1", "PodTemplate", `,"template":{"metadata":{"labels":{"app":"x"}},`+evaluatedPodSpec+`}`), change: `template.metadata.labels.app="y"`},
		{session: "events", path: "events", puts: true, document: standard("v1", "Event", `,"involvedObject":{"kind":"Pod","namespace":"@ns","name":"x"},"reason":"r","message":"m"`), change: `reason="s"`},
	}
}

func workloadKinds() []echoedKind {
	replicas, seen := exemptStatus("replicas")
	ready, readySeen := exemptStatus("numberReady")
	active, activeSeen := exemptStatus("active")
	jobs := standard("batch/v1", "Job", `,"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}`)
	crons := standard("batch/v1", "CronJob", `,"spec":{"schedule":"* * * * *","jobTemplate":{"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}}`)
	last, lastSeen := exemptPhase("lastScheduleTime", "2020-01-01T00:00:00Z")
	current, currentSeen := exemptStatus("currentReplicas")
	scaler := `,"spec":{"maxReplicas":3,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"x"}}`
	return []echoedKind{
		withStatus(echoedKind{session: "deployments", path: "apps/v1:deployments", document: withTemplate("Deployment", ``), change: `spec.paused=true`}, replicas, seen, echoedScale()),
		withStatus(echoedKind{session: "replicasets", path: "apps/v1:replicasets", document: withTemplate("ReplicaSet", ``), change: `spec.minReadySeconds=5`}, replicas, seen, echoedScale()),
		withStatus(echoedKind{session: "statefulsets", path: "apps/v1:statefulsets", document: withTemplate("StatefulSet", `,"serviceName":"x"`), change: `spec.minReadySeconds=5`}, replicas, seen, echoedScale()),
		withStatus(echoedKind{session: "daemonsets", path: "apps/v1:daemonsets", document: withTemplate("DaemonSet", ``), change: `spec.minReadySeconds=5`}, ready, readySeen),
		{session: "revisions", path: "apps/v1:controllerrevisions", document: standard("apps/v1", "ControllerRevision", `,"revision":1,"data":{"a":"b"}`), change: `revision=2`},
		withStatus(echoedKind{session: "jobs", path: "batch/v1:jobs", document: jobs, change: `spec.parallelism=2`}, active, activeSeen),
		withStatus(echoedKind{session: "cronjobs", path: "batch/v1:cronjobs", document: crons, change: `spec.suspend=true`}, last, lastSeen),
		withStatus(echoedKind{session: "scalers", path: "autoscaling/v2:horizontalpodautoscalers", document: standard("autoscaling/v2", "HorizontalPodAutoscaler", scaler), change: `spec.maxReplicas=4`}, current, currentSeen),
		withStatus(echoedKind{session: "scalers-v1", path: "autoscaling/v1:horizontalpodautoscalers", document: standard("autoscaling/v1", "HorizontalPodAutoscaler", scaler), change: `spec.maxReplicas=4`}, current, currentSeen),
	}
}

func clusterKinds() []echoedKind {
	crd := strings.Replace(standard("apiextensions.k8s.io/v1", "CustomResourceDefinition",
		`,"spec":{"group":"%[1]s.example.com","scope":"Namespaced","names":{"plural":"widgets","singular":"widget","kind":"Widget","listKind":"WidgetList"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}`),
		`"name":"%[1]s"`, `"name":"widgets.%[1]s.example.com"`, 1)
	service := strings.Replace(standard("apiregistration.k8s.io/v1", "APIService",
		`,"spec":{"group":"%[1]s.example.com","version":"v1","groupPriorityMinimum":100,"versionPriority":10}`), `"name":"%[1]s"`, `"name":"v1.%[1]s.example.com"`, 1)
	csr := standard("certificates.k8s.io/v1", "CertificateSigningRequest", `,"spec":{"request":"`+evaluatedRequest+`","signerName":"example.com/x","usages":["client auth"],"username":"forged","groups":["forged"],"uid":"forged","extra":{"forged":["yes"]}}`)
	csrs := echoedKind{session: "csrs", path: "certificates.k8s.io/v1:certificatesigningrequests", cluster: true, document: csr, change: `spec.signerName="example.com/y"`, exempt: `status.certificate="Zm9yZ2Vk"`}
	csrs.seen = `(object.?status.?certificate.hasValue() ? 'exempt' : object.spec.username + string('forged' in object.spec.groups) + object.spec.signerName + object.?status.?conditions.orValue([]).map(c, c.type).join('+'))`
	csrs.subresources = []echoedSubresource{
		{name: "status", edits: []string{`status.conditions=[{"type":"Example","status":"True"}]`}},
		{name: "approval", edits: []string{`status.conditions=[{"type":"Approved","status":"True"}]`}},
	}
	level, levelSeen := `status.conditions=[{"type":"forged","status":"True"}]`, `(object.?status.?conditions.orValue([]).exists(c, c.type == 'forged') ? 'exempt' : 'none')`
	attached := standard("storage.k8s.io/v1", "VolumeAttachment", `,"spec":{"attacher":"x.example.com","nodeName":"n","source":{"persistentVolumeName":"p"}}`)
	return []echoedKind{
		withStatus(echoedKind{session: "definitions", path: "apiextensions.k8s.io/v1:customresourcedefinitions", cluster: true, named: "widgets.%s.example.com", document: crd, change: `spec.names.shortNames=["wd"]`}, level, levelSeen),
		withStatus(echoedKind{session: "apiservices", path: "apiregistration.k8s.io/v1:apiservices", cluster: true, named: "v1.%s.example.com", document: service, change: `spec.versionPriority=11`}, level, levelSeen),
		csrs,
		withStatus(echoedKind{session: "schemas", path: "flowcontrol.apiserver.k8s.io/v1:flowschemas", cluster: true, document: flowSchemaDocument, change: `spec.matchingPrecedence=9001`}, level, levelSeen),
		withStatus(echoedKind{session: "levels", path: "flowcontrol.apiserver.k8s.io/v1:prioritylevelconfigurations", cluster: true, document: levelDocument, change: `spec.limited.nominalConcurrencyShares=3`}, level, levelSeen),
		withStatus(echoedKind{session: "attachments", path: "storage.k8s.io/v1:volumeattachments", cluster: true, document: attached}, `status.attached=true`, `(object.?status.?attached.orValue(false) ? 'exempt' : 'none')`),
		{session: "classes", path: "storage.k8s.io/v1:storageclasses", cluster: true, document: standard("storage.k8s.io/v1", "StorageClass", `,"provisioner":"x.example.com"`), change: `allowVolumeExpansion=true`},
		{session: "drivers", path: "storage.k8s.io/v1:csidrivers", cluster: true, document: standard("storage.k8s.io/v1", "CSIDriver", `,"spec":{"attachRequired":true}`), change: `spec.requiresRepublish=true`},
		{session: "csinodes", path: "storage.k8s.io/v1:csinodes", cluster: true, document: standard("storage.k8s.io/v1", "CSINode", `,"spec":{"drivers":[]}`), change: `spec.drivers=[{"name":"x.example.com","nodeID":"n"}]`},
		{session: "attributes", path: "storage.k8s.io/v1:volumeattributesclasses", cluster: true, document: standard("storage.k8s.io/v1", "VolumeAttributesClass", `,"driverName":"x.example.com","parameters":{"a":"b"}`)},
		{session: "priorities", path: "scheduling.k8s.io/v1:priorityclasses", cluster: true, document: standard("scheduling.k8s.io/v1", "PriorityClass", `,"value":5`), change: `description="d"`},
		{session: "runtimes", path: "node.k8s.io/v1:runtimeclasses", cluster: true, puts: true, document: standard("node.k8s.io/v1", "RuntimeClass", `,"handler":"x"`)},
		{session: "ingressclasses", path: "networking.k8s.io/v1:ingressclasses", cluster: true, document: standard("networking.k8s.io/v1", "IngressClass", `,"spec":{"controller":"example.com/x"}`), change: `spec.parameters={"apiGroup":"x.example.com","kind":"K","name":"n","scope":"Cluster"}`},
		withStatus(echoedKind{session: "cidrs", path: "networking.k8s.io/v1:servicecidrs", cluster: true, document: standard("networking.k8s.io/v1", "ServiceCIDR", `,"spec":{"cidrs":["10.97.0.0/24"]}`)}, level, levelSeen),
		{session: "clusterroles", path: "rbac.authorization.k8s.io/v1:clusterroles", cluster: true, puts: true, document: standard("rbac.authorization.k8s.io/v1", "ClusterRole", `,"rules":[]`), change: `rules=[{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}]`},
		{session: "clusterbindings", path: "rbac.authorization.k8s.io/v1:clusterrolebindings", cluster: true, puts: true, document: standard("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", `,"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"view"},"subjects":[]`), change: `subjects=[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"u"}]`},
		{session: "deviceclasses", path: "resource.k8s.io/v1:deviceclasses", cluster: true, document: standard("resource.k8s.io/v1", "DeviceClass", `,"spec":{"selectors":[]}`), change: `spec.selectors=[{"cel":{"expression":"true"}}]`},
		{session: "slices", path: "resource.k8s.io/v1:resourceslices", cluster: true, document: standard("resource.k8s.io/v1", "ResourceSlice", `,"spec":{"driver":"d.example.com","nodeName":"n","pool":{"name":"p","generation":1,"resourceSliceCount":1},"devices":[]}`), change: `spec.pool.generation=2`},
	}
}

func otherKinds() []echoedKind {
	ingress := `,"spec":{"defaultBackend":{"service":{"name":"x","port":{"number":80}}}}`
	budgets, seen := exemptStatus("expectedPods")
	claims := echoedKind{session: "resourceclaims", path: "resource.k8s.io/v1:resourceclaims", document: standard("resource.k8s.io/v1", "ResourceClaim", `,"spec":{}`)}
	return []echoedKind{
		withStatus(echoedKind{session: "ingresses", path: "networking.k8s.io/v1:ingresses", document: standard("networking.k8s.io/v1", "Ingress", ingress), change: `spec.ingressClassName="c"`}, `status.loadBalancer={"ingress":[{"ip":"10.0.0.77"}]}`, `(object.?status.?loadBalancer.?ingress.orValue([]).size() > 0 ? 'exempt' : 'none')`),
		{session: "networkpolicies", path: "networking.k8s.io/v1:networkpolicies", document: standard("networking.k8s.io/v1", "NetworkPolicy", `,"spec":{"podSelector":{}}`), change: `spec.podSelector={"matchLabels":{"a":"b"}}`},
		withStatus(echoedKind{session: "budgets", path: "policy/v1:poddisruptionbudgets", document: standard("policy/v1", "PodDisruptionBudget", `,"spec":{"maxUnavailable":1,"selector":{"matchLabels":{"none":"none"}}}`), change: `spec.maxUnavailable=2`}, budgets, seen),
		{session: "roles", path: "rbac.authorization.k8s.io/v1:roles", puts: true, document: standard("rbac.authorization.k8s.io/v1", "Role", `,"rules":[]`), change: `rules=[{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}]`},
		{session: "rolebindings", path: "rbac.authorization.k8s.io/v1:rolebindings", puts: true, document: standard("rbac.authorization.k8s.io/v1", "RoleBinding", `,"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"view"},"subjects":[]`), change: `subjects=[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"u"}]`},
		{session: "leases", path: "coordination.k8s.io/v1:leases", puts: true, document: standard("coordination.k8s.io/v1", "Lease", `,"spec":{"holderIdentity":"me"}`), change: `spec.holderIdentity="you"`},
		{session: "endpointslices", path: "discovery.k8s.io/v1:endpointslices", document: standard("discovery.k8s.io/v1", "EndpointSlice", `,"addressType":"IPv4","endpoints":[]`), change: `endpoints=[{"addresses":["10.0.0.1"]}]`},
		{session: "capacities", path: "storage.k8s.io/v1:csistoragecapacities", document: standard("storage.k8s.io/v1", "CSIStorageCapacity", `,"storageClassName":"x","nodeTopology":{}`), change: `capacity="1Gi"`},
		withStatus(claims, `status.devices=[{"driver":"d.example.com","pool":"p","device":"d"}]`, `(object.?status.?devices.orValue([]).size() > 0 ? 'exempt' : 'none')`),
		{session: "claimtemplates", path: "resource.k8s.io/v1:resourceclaimtemplates", document: standard("resource.k8s.io/v1", "ResourceClaimTemplate", `,"spec":{"spec":{}}`)},
		{session: "newevents", path: "events.k8s.io/v1:events", puts: true, document: standard("events.k8s.io/v1", "Event", `,"eventTime":"2018-01-01T00:00:00.000000Z","reportingController":"example.com/c","reportingInstance":"i","action":"a","reason":"r","type":"Normal","regarding":{"kind":"Pod","namespace":"@ns","name":"x"}`)},
	}
}

// ownedParts has each kind of value that is owned in another way, and changedParts changes some of each, and keeps some.
const (
	ownedParts = `{"tags":["x","<y>"],"list":["x"],"rules":[{"name":"a","port":1,"verbs":["get"]},{"name":"a","port":2},{"name":"b","port":1}],"box":{"a":"b"},"map":{"k":"v","l":"v"},"free":{"a":{"b":[{"c":1}]},"d":{},"e":"f"},` +
		`"pod":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","labels":{"l":"v","m":"v"},"finalizers":["example.com/a"],"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"n","uid":"u"}]},"spec":{"a":[{"b":1}]}},"either":5,"any":"text"}`
	changedParts = `{"tags":["<y>","z"],"list":["x","y"],"rules":[{"name":"a","port":1,"verbs":["put"]},{"name":"b","port":1},{"name":"c","port":3}],"box":{"a":"c"},"map":{"k":"w","l":"v"},"free":{"a":{"b":[]},"d":{"g":1},"e":"f"},` +
		`"pod":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","labels":{"l":"w","m":"v"},"finalizers":["example.com/b"],"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"o","uid":"u"},{"apiVersion":"v1","kind":"Pod","name":"n","uid":"w"}]},"spec":{"a":[{"b":1}]}},"either":"5%","any":{"b":"c"}}`
)

func customKinds() []echoedKind {
	phase, seen := exemptPhase("phase", "Exempt")
	return []echoedKind{
		withStatus(echoedKind{session: "things", path: "judged.example.com/v1:things", document: standard("judged.example.com/v1", "Thing", `,"spec":{"colour":"red"}`), change: `spec.colour="blue"`}, phase, seen, echoedScale()),
		withStatus(echoedKind{session: "things-v2", path: "judged.example.com/v2:things", document: standard("judged.example.com/v2", "Thing", `,"spec":{"colour":"red"}`), change: `spec.colour="blue"`}, phase, seen, echoedScale()),
		{session: "limits", path: "judged.example.com/v1:limits", document: standard("judged.example.com/v1", "Limit", `,"spec":{"most":5,"tags":["x","<y>"],"list":["x"],"rules":[{"name":"a","port":1,"verbs":["get"]},{"name":"a","port":2}],"box":{"a":"b"},"free":{"a":{"b":[{"c":1}]},"d":{}},"map":{"k":"v"}}`), change: `spec.most=6`, exempt: phase, seen: seen},
		{session: "parts", path: "judged.example.com/v1:limits", document: standard("judged.example.com/v1", "Limit", `,"spec":`+ownedParts), change: `spec=` + changedParts, exempt: phase, seen: seen},
		{session: "ceilings", path: "judged.example.com/v1:ceilings", cluster: true, document: standard("judged.example.com/v1", "Ceiling", `,"spec":{"most":5}`), change: `spec.most=6`},
	}
}

// reviewKinds are posted, answered, and not stored; so are bindings. The order of the rules in a SelfSubjectRulesReview is left to chance.
func reviewKinds() []echoedKind {
	return []echoedKind{
		{session: "bindings", path: "bindings", posts: true, document: standard("v1", "Binding", `,"target":{"kind":"Node","name":"n"}`), seen: printed("target.name")},
		{session: "accessreviews", path: "authorization.k8s.io/v1:subjectaccessreviews", cluster: true, posts: true, document: standard("authorization.k8s.io/v1", "SubjectAccessReview", `,"spec":{"user":"u","resourceAttributes":{"verb":"get","resource":"pods"}}`), exempt: `status.allowed=true`, seen: `(object.?status.?allowed.orValue(false) ? 'exempt' : 'none')`},
		{session: "localreviews", path: "authorization.k8s.io/v1:localsubjectaccessreviews", posts: true, document: standard("authorization.k8s.io/v1", "LocalSubjectAccessReview", `,"spec":{"user":"u","resourceAttributes":{"namespace":"@ns","verb":"get","resource":"pods"}}`), exempt: `status.allowed=true`, seen: `(object.?status.?allowed.orValue(false) ? 'exempt' : 'none')`},
		{session: "ownreviews", path: "authorization.k8s.io/v1:selfsubjectaccessreviews", cluster: true, posts: true, document: standard("authorization.k8s.io/v1", "SelfSubjectAccessReview", `,"spec":{"resourceAttributes":{"verb":"get","resource":"pods"}}`), exempt: `status.allowed=true`, seen: `(object.?status.?allowed.orValue(false) ? 'exempt' : 'none')`},
		{session: "tokenreviews", path: "authentication.k8s.io/v1:tokenreviews", cluster: true, posts: true, document: standard("authentication.k8s.io/v1", "TokenReview", `,"spec":{"token":"t"}`), exempt: `status.authenticated=true`, seen: `(object.?status.?authenticated.orValue(false) ? 'exempt' : 'none')`},
		{session: "whoami", path: "authentication.k8s.io/v1:selfsubjectreviews", cluster: true, posts: true, document: standard("authentication.k8s.io/v1", "SelfSubjectReview", ``), exempt: `status.userInfo={"username":"forged"}`, seen: `(object.?status.?userInfo.?username.orValue('-') == 'forged' ? 'exempt' : 'none')`},
	}
}
