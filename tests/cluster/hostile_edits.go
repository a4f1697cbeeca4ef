package cluster

import (
	"fmt"
	"strings"
)

// nameOf is how an object is called in its path.
func (e hostileEdit) nameOf(name string) string {
	for _, end := range []string{".edits.example.com", ".example.com"} {
		if strings.Contains(e.base, `"name":"@n`+end) {
			return name + end
		}
	}
	return name
}

// A hostileEdit is a write of an object of its own, which is there before unless it is posted. "@n" is its name.
type hostileEdit struct {
	collection, base            string
	method, suffix, media, body string
}

func (e hostileEdit) String() string {
	return fmt.Sprintf("%s %s%s %s %s", e.method, e.collection, e.suffix, e.media, e.body)
}

const strategicType = "application/strategic-merge-patch+json"

// editedKinds are collections and objects in them.
var editedKinds = map[string][2]string{
	"configmap": {"@ns/configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"@n","labels":{"a":"1","b":"2"},"annotations":{"x":"y"},"finalizers":["a.io/a","a.io/b"]},"data":{"a":"1","b":"2"},"binaryData":{"c":"MQ=="}}`},
	"deployment": {"/apis/apps/v1/namespaces/hostile/deployments", `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"@n","labels":{"a":"1","b":"2"},"finalizers":["a.io/a","a.io/b"]},"spec":{"replicas":2,"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":1}},"selector":{"matchLabels":{"a":"d"}},` +
		`"template":{"metadata":{"labels":{"a":"d","t":"u"}},"spec":{"nodeSelector":{"n":"m"},"hostAliases":[{"ip":"1.2.3.4","hostnames":["h"]}],"imagePullSecrets":[{"name":"s"}],"tolerations":[{"key":"k","operator":"Exists"}],"topologySpreadConstraints":[{"maxSkew":1,"topologyKey":"z","whenUnsatisfiable":"DoNotSchedule"}],` +
		`"volumes":[{"name":"v","emptyDir":{}},{"name":"w","configMap":{"name":"m"}}],"initContainers":[{"name":"i","image":"i"}],"containers":[{"name":"c","image":"i","ports":[{"containerPort":80},{"containerPort":81,"protocol":"UDP"}],"env":[{"name":"A","value":"1"},{"name":"B","value":"2"}],"volumeMounts":[{"name":"v","mountPath":"/v"}],"args":["x","y"]},{"name":"d","image":"j"}]}}}}`},
	"service":         {"@ns/services", `{"apiVersion":"v1","kind":"Service","metadata":{"name":"@n"},"spec":{"selector":{"a":"b"},"externalIPs":["1.2.3.4"],"ports":[{"name":"a","port":80},{"name":"b","port":81,"protocol":"UDP"}]}}`},
	"pod":             {"@ns/pods", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"@n","labels":{"a":"1"}},"spec":{"containers":[{"name":"c","image":"i","env":[{"name":"A","value":"1"}]},{"name":"d","image":"j"}],"tolerations":[{"key":"k","operator":"Exists"}]}}`},
	"thing":           {"/apis/judged.example.com/v1/namespaces/hostile/things", `{"apiVersion":"judged.example.com/v1","kind":"Thing","metadata":{"name":"@n","labels":{"a":"1"},"finalizers":["a.io/a"]},"spec":{"size":2,"colour":"red","parts":[{"name":"p"},{"name":"q","count":2}]}}`},
	"thing2":          {"/apis/judged.example.com/v2/namespaces/hostile/things", `{"apiVersion":"judged.example.com/v2","kind":"Thing","metadata":{"name":"@n","labels":{"a":"1"}},"spec":{"size":2,"colour":"red","parts":[{"name":"p"}]}}`},
	"limit":           {"/apis/judged.example.com/v1/namespaces/hostile/limits", `{"apiVersion":"judged.example.com/v1","kind":"Limit","metadata":{"name":"@n"},"spec":{"most":2,"list":["a","b"],"tags":["t"],"rules":[{"name":"r","port":1}],"box":{"a":"b"},"free":{"x":{"y":1}},"map":{"k":"v"},"pod":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"e"}},"either":1,"any":{"z":1}}}`},
	"secret":          {"@ns/secrets", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"@n"},"data":{"a":"MQ==","b":"Mg=="},"type":"Opaque"}`},
	"scaler":          {"/apis/autoscaling/v1/namespaces/hostile/horizontalpodautoscalers", `{"apiVersion":"autoscaling/v1","kind":"HorizontalPodAutoscaler","metadata":{"name":"@n"},"spec":{"maxReplicas":3,"targetCPUUtilizationPercentage":50,"scaleTargetRef":{"kind":"Deployment","name":"a","apiVersion":"apps/v1"}}}`},
	"account":         {"@ns/serviceaccounts", `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"@n"},"secrets":[{"name":"a"}],"imagePullSecrets":[{"name":"p"}]}`},
	"role":            {"/apis/rbac.authorization.k8s.io/v1/namespaces/hostile/roles", `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":"@n"},"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get"]}]}`},
	"ingress":         {"/apis/networking.k8s.io/v1/namespaces/hostile/ingresses", `{"apiVersion":"networking.k8s.io/v1","kind":"Ingress","metadata":{"name":"@n"},"spec":{"rules":[{"host":"h","http":{"paths":[{"path":"/","pathType":"Prefix","backend":{"service":{"name":"s","port":{"number":80}}}}]}}]}}`},
	"budget":          {"/apis/policy/v1/namespaces/hostile/poddisruptionbudgets", `{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","metadata":{"name":"@n"},"spec":{"minAvailable":1,"selector":{"matchLabels":{"a":"d"}}}}`},
	"event":           {"@ns/events", `{"apiVersion":"v1","kind":"Event","metadata":{"name":"@n"},"involvedObject":{"kind":"Pod","name":"p","namespace":"hostile"},"reason":"r","message":"m","count":2}`},
	"lease":           {"/apis/coordination.k8s.io/v1/namespaces/hostile/leases", `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"@n"},"spec":{"holderIdentity":"me","leaseDurationSeconds":3}}`},
	"claim":           {"@ns/persistentvolumeclaims", `{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"@n"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}`},
	"definition":      {"/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"@n.edits.example.com"},"spec":{"group":"edits.example.com","scope":"Namespaced","names":{"plural":"@n","singular":"@n","kind":"K@n","listKind":"L@n"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`},
	"service-of-apis": {"/apis/apiregistration.k8s.io/v1/apiservices", `{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"@n.example.com"},"spec":{"group":"example.com","version":"@n","groupPriorityMinimum":1,"versionPriority":1}}`},
	"clone":           {"@ns/persistentvolumeclaims", `{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"@n"},"spec":{"accessModes":["ReadWriteOnce"],"dataSource":{"kind":"PersistentVolumeClaim","name":"c"},"resources":{"requests":{"storage":"1Gi"}}}}`},
	"probed":          {"/apis/apps/v1/namespaces/hostile/deployments", `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"@n"},"spec":{"selector":{"matchLabels":{"a":"d"}},"template":{"metadata":{"labels":{"a":"d"}},"spec":{"containers":[{"name":"c","image":"i","livenessProbe":{"grpc":{"port":1}}}],"volumes":[{"name":"v","ephemeral":{"volumeClaimTemplate":{"spec":{"accessModes":["ReadWriteOnce"],"dataSource":{"kind":"PersistentVolumeClaim","name":"c"},"resources":{"requests":{"storage":"1Gi"}}}}}}]}}}}`},
	"cronjob":         {"/apis/batch/v1/namespaces/hostile/cronjobs", `{"apiVersion":"batch/v1","kind":"CronJob","metadata":{"name":"@n"},"spec":{"schedule":"0 0 * * *","jobTemplate":{"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}}}`},
	"slice":           {"/apis/discovery.k8s.io/v1/namespaces/hostile/endpointslices", `{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":"@n"},"addressType":"IPv4","endpoints":[{"addresses":["1.2.3.4"]}],"ports":[{"name":"","port":80}]}`},
	"binding":         {"/apis/rbac.authorization.k8s.io/v1/namespaces/hostile/rolebindings", `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"name":"@n"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"r"},"subjects":[{"kind":"User","name":"u","apiGroup":"rbac.authorization.k8s.io"}]}`},
	"quota":           {"@ns/resourcequotas", `{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"@n"},"spec":{"hard":{"count/nothings":"1"}}}`},
	"rc":              {"@ns/replicationcontrollers", `{"apiVersion":"v1","kind":"ReplicationController","metadata":{"name":"@n"},"spec":{"replicas":1,"selector":{"a":"d"},"template":{"metadata":{"labels":{"a":"d"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`},
}

func edit(kind, method, suffix, media, body string) hostileEdit {
	of := editedKinds[kind]
	return hostileEdit{of[0], of[1], method, suffix, media, body}
}

// hostileEdits are writes whose outcome is not what one reads first. Among them are none of fields that only the server sets, such as addresses and ports of
// services, tolerations and priorities of pods, which a gateway does not know.
func hostileEdits() (all []hostileEdit) {
	all = append(all, strategicEdits()...)
	all = append(all, jsonPatchEdits()...)
	all = append(all, mergeEdits()...)
	return append(all, wholeEdits()...)
}

func strategicEdits() (all []hostileEdit) {
	template := func(text string) string { return `{"spec":{"template":{"spec":{` + text + `}}}}` }
	container := func(text string) string { return template(`"containers":[` + text + `]`) }
	for _, body := range []string{
		container(`{"name":"c","image":"x"}`), container(`{"name":"z","image":"x"}`), container(`{"$patch":"replace"},{"name":"z","image":"x"}`), container(`{"name":"z","image":"x"},{"$patch":"replace"}`), container(`{"name":"c","$patch":"delete"}`), container(`{"name":"z","$patch":"delete"}`),
		container(`{"name":"c","$patch":"replace","image":"x"}`), container(`{"name":"c","$patch":"merge","image":"x"}`), container(`{"name":"c","$patch":"nothing","image":"x"}`), container(`{"name":"c","$patch":null,"image":"x"}`), container(`{"name":"c","$patch":5,"image":"x"}`),
		container(`{"$patch":"delete","name":"c"},{"name":"c","image":"y"}`), container(`{"name":"c","image":"y"},{"$patch":"delete","name":"c"}`), container(`{"name":"c","image":"y"},{"name":"c","image":"z"}`), container(`{"name":"z","image":"y"},{"name":"z","image":"w"}`), container(`{"image":"y"}`), container(`{"name":null,"image":"y"}`), container(`null`), container(``),
		container(`{"$patch":"replace"}`), container(`{"$patch":"replace"},{"$patch":"replace"},{"name":"z","image":"w"}`), container(`{"$patch":"merge"},{"name":"z","image":"w"}`), container(`{"$patch":"delete"}`), container(`{"name":"c","image":null}`), container(`{"name":"c","env":null}`), container(`{"name":"c","env":[]}`),
		container(`{"name":"c","env":[{"name":"A","value":null}]}`), container(`{"name":"c","env":[{"name":"A","$patch":"delete"}]}`), container(`{"name":"c","env":[{"name":"A","$patch":"delete"},{"name":"A","value":"3"}]}`), container(`{"name":"c","env":[{"$patch":"replace"},{"name":"Z","value":"3"}]}`), container(`{"name":"c","env":[{"name":"A","value":null,"valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}]}`),
		container(`{"name":"c","env":[{"name":"A","$retainKeys":["name","valueFrom"],"valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}]}`), container(`{"name":"c","$setElementOrder/env":[{"name":"B"},{"name":"A"}]}`), container(`{"name":"c","$setElementOrder/env":[{"name":"B"}]}`), container(`{"name":"c","$setElementOrder/env":[{"name":"B"},{"name":"C"}],"env":[{"name":"C","value":"4"}]}`),
		container(`{"name":"c","$setElementOrder/env":[{"name":"C"}],"env":[{"name":"D","value":"4"}]}`), container(`{"name":"c","ports":[{"containerPort":80,"protocol":"UDP"}]}`), container(`{"name":"c","ports":[{"containerPort":80,"hostPort":80}]}`), container(`{"name":"c","ports":[{"containerPort":81,"$patch":"delete"}]}`), container(`{"name":"c","ports":[{"containerPort":80.0,"hostPort":81}]}`), container(`{"name":"c","ports":[{"containerPort":"80","hostPort":81}]}`),
		container(`{"name":"c","ports":[{"protocol":"UDP","hostPort":81}]}`), container(`{"name":"c","args":["z"]}`), container(`{"name":"c","args":[{"$patch":"replace"}]}`), container(`{"name":"c","$deleteFromPrimitiveList/args":["x"]}`), container(`{"name":"c","volumeMounts":[{"mountPath":"/v","readOnly":true}]}`), container(`{"name":"c","volumeMounts":[{"mountPath":"/w","name":"w"},{"mountPath":"/v","$patch":"delete"}]}`),
		container(`{"name":"c","securityContext":{"privileged":true}}`), container(`{"name":"c","SecurityContext":{"privileged":true}}`), container(`{"name":"c","securityContext":{"$patch":"replace","privileged":true}}`), container(`{"name":"c","resources":{"limits":{"cpu":"1"},"$patch":"delete"}}`), container(`{"name":"c","resources":{"limits":{"cpu":1000,"memory":1e3}}}`),
		template(`"$setElementOrder/containers":[{"name":"d"},{"name":"c"}]`), template(`"$setElementOrder/containers":[{"name":"d"},{"name":"c"}],"containers":[{"name":"c","image":"k"}]`), template(`"$setElementOrder/containers":[{"name":"d"}],"containers":[{"name":"c","image":"k"}]`), template(`"$setElementOrder/containers":["d","c"]`), template(`"$setElementOrder/containers":null`), template(`"$setElementOrder/nothing":[{"name":"d"}]`),
		template(`"$setElementOrder/containers":[{"name":"d"},{"name":"z"},{"name":"c"}],"containers":[{"name":"z","image":"k"}]`), template(`"containers":{"name":"c"}`), template(`"containers":"c"`), template(`"volumes":[{"name":"v","$retainKeys":["name","hostPath"],"hostPath":{"path":"/"}}]`), template(`"volumes":[{"name":"v","hostPath":{"path":"/"}}]`), template(`"volumes":[{"name":"v","emptyDir":null,"hostPath":{"path":"/"}}]`),
		template(`"volumes":[{"name":"v","$retainKeys":["name"]}]`), template(`"volumes":[{"name":"v","$retainKeys":["hostPath"],"hostPath":{"path":"/"}}]`), template(`"volumes":[{"name":"v","$retainKeys":[],"hostPath":{"path":"/"}}]`), template(`"volumes":[{"name":"v","$retainKeys":null,"emptyDir":null,"hostPath":{"path":"/"}}]`), template(`"tolerations":[{"key":"z"}]`), template(`"tolerations":[{"$patch":"replace"},{"key":"z","operator":"Exists"}]`),
		template(`"nodeSelector":{"$patch":"replace","z":"y"}`), template(`"nodeSelector":{"$patch":"delete"}`), template(`"nodeSelector":{"n":null,"z":"y"}`), template(`"nodeSelector":null`), template(`"hostAliases":[{"ip":"1.2.3.4","hostnames":["g"]}]`), template(`"hostAliases":[{"ip":"1.2.3.4","$patch":"delete"}]`), template(`"imagePullSecrets":[{"name":"s"},{"name":"t"}]`), template(`"imagePullSecrets":[{"name":"s","$patch":"delete"}]`),
		template(`"topologySpreadConstraints":[{"topologyKey":"z","maxSkew":2}]`), template(`"topologySpreadConstraints":[{"topologyKey":"z","whenUnsatisfiable":"ScheduleAnyway","maxSkew":2}]`), template(`"hostNetwork":true`), template(`"hostNetwork":null`), template(`"HostNetwork":true`), template(`"hostNetwork":"true"`), template(`"hostNetwork":1`), template(`"serviceAccount":"x"`), template(`"serviceAccountName":"x"`), template(`"securityContext":{"$retainKeys":["runAsUser"],"runAsUser":0}`),
		template(`"$patch":"replace","containers":[{"name":"z","image":"w"}]`), template(`"$patch":"delete"`), template(`"$patch":"merge","hostPID":true`), template(`"$retainKeys":["containers"]`), template(`"$retainKeys":["containers"],"containers":[{"name":"c","image":"n"}]`), template(`"$retainKeys":"containers"`), template(`"$deleteFromPrimitiveList/containers":["c"]`), template(`"$foo":1`), template(`"$foo/containers":[1]`), template(`"$patch/containers":"x"`),
		`{"spec":{"strategy":{"$retainKeys":["type"],"type":"Recreate"}}}`, `{"spec":{"strategy":{"type":"Recreate"}}}`, `{"spec":{"strategy":{"type":"Recreate","rollingUpdate":null}}}`, `{"spec":{"$patch":"replace","replicas":1}}`, `{"spec":{"$patch":"delete"}}`, `{"spec":null}`, `{"$patch":"delete"}`, `{"$patch":"replace"}`, `{"$patch":"replace","metadata":{"name":"@n"}}`, `{"$patch":"merge","spec":{"replicas":5}}`, `{"$patch":"x"}`, `{"$retainKeys":["metadata"]}`,
		`{"metadata":{"labels":{"$patch":"replace","z":"y"}}}`, `{"metadata":{"labels":{"$patch":"delete"}}}`, `{"metadata":{"labels":{"$retainKeys":["a"]}}}`, `{"metadata":{"labels":{"a":null}}}`, `{"metadata":{"labels":null}}`, `{"metadata":{"labels":{"$patch":"merge","z":"y"}}}`, `{"metadata":{"labels":{"$foo":"y"}}}`, `{"metadata":{"finalizers":["a.io/c"]}}`, `{"metadata":{"$deleteFromPrimitiveList/finalizers":["a.io/a"]}}`,
		`{"metadata":{"$deleteFromPrimitiveList/finalizers":["a.io/a"],"finalizers":["a.io/c"]}}`, `{"metadata":{"$deleteFromPrimitiveList/finalizers":["a.io/c"],"finalizers":["a.io/c"]}}`, `{"metadata":{"$setElementOrder/finalizers":["a.io/b","a.io/a"]}}`, `{"metadata":{"$setElementOrder/finalizers":["a.io/b","a.io/c","a.io/a"],"finalizers":["a.io/c"]}}`, `{"metadata":{"$deleteFromPrimitiveList/finalizers":"a.io/a"}}`, `{"metadata":{"$deleteFromPrimitiveList/finalizers":[1]}}`,
		`{"metadata":{"finalizers":null}}`, `{"metadata":{"finalizers":["a.io/a","a.io/a"]}}`, `{"metadata":{"finalizers":[{"$patch":"replace"}]}}`, `{"metadata":{"ownerReferences":[{"uid":"u","name":"n","kind":"K","apiVersion":"v1"}]}}`, `{"metadata":{"ownerReferences":[{"uid":"u","$patch":"delete"}]}}`, `{"metadata":{"$patch":"delete"}}`, `{"metadata":{"$patch":"replace","name":"@n","labels":{"r":"s"}}}`, `{"metadata":null}`, `{"metadata":{"managedFields":[]}}`, `{"metadata":{"managedFields":[{}]}}`,
		`{"metadata":{"managedFields":null}}`, `{"metadata":{"name":"other"}}`, `{"metadata":{"name":null}}`, `{"metadata":{"namespace":"other"}}`, `{"metadata":{"uid":"x"}}`, `{"metadata":{"uid":null}}`, `{"metadata":{"generation":7}}`, `{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"}}`, `{"metadata":{"creationTimestamp":null}}`, `{"metadata":{"generateName":"x"}}`, `{"apiVersion":"apps/v1beta1"}`, `{"kind":"Pod"}`, `{"kind":null}`, `{"apiVersion":null}`, `{"apiVersion":"","kind":""}`,
		`{"status":{"replicas":7}}`, `{"status":null}`, `[]`, `null`, `5`, `"x"`, ``, `{`, `{}x`, `{"spec":{"replicas":5}}{"spec":{"replicas":6}}`, `{"spec":{"replicas":5,"replicas":6}}`, `{"spec":{"replicas":5.0}}`, `{"spec":{"replicas":5.5}}`, `{"spec":{"replicas":5e0}}`, `{"spec":{"replicas":"5"}}`, `{"spec":{"replicas":null}}`, `{"spec":{"Replicas":5}}`, `{"Spec":{"replicas":5}}`, `{"spec":{"replicas":99999999999}}`, `{"spec":{"selector":{"matchLabels":{"z":"y"}}}}`, `{"spec":{"template":{"metadata":{"annotations":{"a":"b"}}}}}`, `{"spec":{"template":{"metadata":{"name":"x","uid":"y","creationTimestamp":"2026-01-01T00:00:00Z"}}}}`,
	} {
		all = append(all, edit("deployment", "PATCH", "", strategicType, body))
	}
	for _, body := range []string{`{"spec":{"ports":[{"port":80,"nodePort":null,"targetPort":"x"}]}}`, `{"spec":{"ports":[{"port":80,"$patch":"delete"}]}}`, `{"spec":{"ports":[{"port":82,"name":"c"}]}}`, `{"spec":{"$setElementOrder/ports":[{"port":81},{"port":80}]}}`, `{"spec":{"ports":[{"port":81,"protocol":"TCP","name":"t"}]}}`, `{"spec":{"externalIPs":["5.6.7.8"]}}`,
		`{"spec":{"externalIPs":null}}`, `{"spec":{"selector":{"$patch":"replace","z":"y"}}}`, `{"spec":{"selector":null}}`, `{"spec":{"type":"ExternalName","externalName":"x.y","clusterIP":null,"clusterIPs":null}}`, `{"spec":{"clusterIP":"None"}}`, `{"spec":{"clusterIP":null}}`, `{"spec":{"$patch":"replace","ports":[{"port":80}]}}`, `{"spec":{"ports":[{"$patch":"replace"},{"port":9}]}}`} {
		all = append(all, edit("service", "PATCH", "", strategicType, body), edit("service", "PATCH", "", mergePatch, body))
	}
	for _, body := range []string{`{"spec":{"containers":[{"name":"c","image":"x"}]}}`, `{"spec":{"containers":[{"name":"c","image":null}]}}`, `{"spec":{"containers":[{"name":"z","image":"x"}]}}`, `{"spec":{"activeDeadlineSeconds":5}}`, `{"spec":{"tolerations":[{"key":"z","operator":"Exists"}]}}`, `{"spec":{"nodeName":"n"}}`, `{"spec":{"hostNetwork":true}}`,
		`{"spec":{"ephemeralContainers":[{"name":"e","image":"x"}]}}`, `{"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":"1"}}}]}}`, `{"status":{"phase":"Failed","conditions":[{"type":"Ready","status":"True"}]}}`, `{"status":{"podIPs":[{"ip":"1.2.3.4"}]}}`, `{"metadata":{"labels":{"z":"y"},"annotations":{"a":"b"}}}`, `{"status":{"containerStatuses":[{"name":"c","image":"i","imageID":"x","ready":true,"restartCount":1}]}}`, `{"metadata":{"ownerReferences":[{"uid":"u","name":"n","kind":"K","apiVersion":"v1","controller":true}]}}`} {
		for _, suffix := range []string{"", "/status", "/ephemeralcontainers", "/resize"} {
			all = append(all, edit("pod", "PATCH", suffix, strategicType, body), edit("pod", "PATCH", suffix, mergePatch, body))
		}
	}
	for _, body := range []string{`{"metadata":{"labels":{"z":"y"}}}`, `{"spec":{"names":{"shortNames":["z"]}}}`, `{"spec":{"names":{"categories":["all"]}}}`, `{"spec":{"versions":[{"name":"v1","additionalPrinterColumns":[{"name":"z","type":"string","jsonPath":".spec.z"}]}]}}`, `{"spec":{"conversion":{"strategy":"None"}}}`, `{"metadata":{"finalizers":["a.io/z"]}}`, `{"status":{"conditions":[]}}`} {
		for _, media := range []string{strategicType, mergePatch} {
			all = append(all, edit("definition", "PATCH", "", media, body), edit("definition", "PATCH", "/status", media, body), edit("service-of-apis", "PATCH", "", media, body))
		}
	}
	for _, kind := range []string{"clone", "probed", "configmap", "secret", "account", "role", "ingress", "budget", "event", "lease", "claim", "cronjob", "slice", "binding", "quota", "rc", "scaler", "thing", "limit"} {
		for _, body := range []string{`{"metadata":{"labels":{"z":"y"}}}`, `{"metadata":{"labels":{"$patch":"replace","z":"y"}}}`, `{"data":{"a":null,"z":"Mw=="}}`, `{"data":{"$patch":"replace","z":"Mw=="}}`, `{"data":null}`, `{"stringData":{"a":"b"}}`, `{"secrets":[{"name":"b"}]}`, `{"secrets":[{"name":"a","$patch":"delete"}]}`, `{"imagePullSecrets":[{"name":"q"}]}`, `{"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}`,
			`{"spec":{"rules":[{"host":"g"}]}}`, `{"spec":{"hard":{"pods":"1"}}}`, `{"spec":{"hard":{"count/nothings":null}}}`, `{"subjects":[{"kind":"Group","name":"g","apiGroup":"rbac.authorization.k8s.io"}]}`, `{"roleRef":{"name":"q"}}`, `{"immutable":true}`, `{"type":"x"}`, `{"count":3,"series":{"count":2,"lastObservedTime":"2026-01-01T00:00:00.000000Z"}}`, `{"spec":{"holderIdentity":null}}`, `{"spec":{"minAvailable":"50%"}}`, `{"spec":{"minAvailable":null,"maxUnavailable":1}}`, `{"spec":{"suspend":true}}`, `{"endpoints":[{"addresses":["5.6.7.8"]}]}`, `{"spec":{"minReplicas":2}}`, `{"spec":{"unknown":1}}`, `{"automountServiceAccountToken":false}`} {
			all = append(all, edit(kind, "PATCH", "", strategicType, body), edit(kind, "PATCH", "", mergePatch, body))
		}
	}
	return all
}

func jsonPatchEdits() (all []hostileEdit) {
	for _, body := range []string{
		`[{"op":"add","path":"/metadata/labels/z","value":"y"}]`, `[{"op":"add","path":"/metadata/labels/z~1y","value":"y"}]`, `[{"op":"add","path":"/metadata/annotations/z","value":"y"}]`, `[{"op":"add","path":"/metadata/annotations","value":{"a~0b":"y"}}]`, `[{"op":"add","path":"","value":{}}]`, `[{"op":"replace","path":"","value":{}}]`, `[{"op":"remove","path":""}]`, `[{"op":"test","path":"","value":{}}]`, `[{"op":"copy","from":"","path":"/metadata/labels"}]`, `[{"op":"move","from":"/metadata/labels","path":"/metadata/annotations"}]`,
		`[{"op":"copy","from":"/metadata/labels","path":"/metadata/annotations"}]`, `[{"op":"copy","from":"/metadata/labels/a","path":"/metadata/labels/c"}]`, `[{"op":"move","from":"/metadata/labels/a","path":"/metadata/labels/a"}]`, `[{"op":"move","from":"/metadata","path":"/metadata/x"}]`, `[{"op":"move","from":"/nothing","path":"/metadata/x"}]`, `[{"op":"add","path":"metadata/labels/z","value":"y"}]`, `[{"op":"add","path":"/","value":"y"}]`, `[{"op":"add","path":"/metadata/labels/","value":"y"}]`, `[{"op":"add","path":"/metadata/labels/z"}]`, `[{"op":"add","path":"/metadata/labels/z","value":null}]`,
		`[{"op":"replace","path":"/metadata/labels/z","value":"y"}]`, `[{"op":"remove","path":"/metadata/labels/z"}]`, `[{"op":"remove","path":"/metadata/labels"}]`, `[{"op":"replace","path":"/metadata/labels","value":null}]`, `[{"op":"test","path":"/metadata/labels/a","value":"1"}]`, `[{"op":"test","path":"/metadata/labels/a","value":"2"}]`, `[{"op":"test","path":"/metadata/labels/z","value":null}]`, `[{"op":"test","path":"/metadata/labels/a"}]`, `[{"op":"nothing","path":"/metadata/labels/a"}]`, `[{"op":"Add","path":"/metadata/labels/z","value":"y"}]`, `[{"path":"/metadata/labels/z","value":"y"}]`, `[{"op":"add","value":"y"}]`,
		`[{"op":"add","path":"/metadata/finalizers/-","value":"a.io/c"}]`, `[{"op":"add","path":"/metadata/finalizers/0","value":"a.io/c"}]`, `[{"op":"add","path":"/metadata/finalizers/2","value":"a.io/c"}]`, `[{"op":"add","path":"/metadata/finalizers/3","value":"a.io/c"}]`, `[{"op":"add","path":"/metadata/finalizers/-1","value":"a.io/c"}]`, `[{"op":"remove","path":"/metadata/finalizers/-1"}]`, `[{"op":"remove","path":"/metadata/finalizers/-2"}]`, `[{"op":"remove","path":"/metadata/finalizers/-3"}]`, `[{"op":"replace","path":"/metadata/finalizers/-1","value":"a.io/c"}]`, `[{"op":"add","path":"/metadata/finalizers/00","value":"a.io/c"}]`, `[{"op":"add","path":"/metadata/finalizers/+1","value":"a.io/c"}]`, `[{"op":"add","path":"/metadata/finalizers/1e0","value":"a.io/c"}]`, `[{"op":"add","path":"/metadata/finalizers/ 1","value":"a.io/c"}]`, `[{"op":"add","path":"/metadata/finalizers/99999999999999999999","value":"a.io/c"}]`,
		`[{"op":"copy","from":"/metadata/finalizers/0","path":"/metadata/labels/z"}]`, `[{"op":"copy","from":"/metadata/finalizers/-","path":"/metadata/labels/z"}]`, `[{"op":"copy","from":"/metadata/finalizers/-1","path":"/metadata/labels/z"}]`, `[{"op":"move","from":"/metadata/finalizers/0","path":"/metadata/finalizers/1"}]`, `[{"op":"move","from":"/metadata/finalizers/0","path":"/metadata/finalizers/-"}]`, `[{"op":"move","from":"/metadata/finalizers/1","path":"/metadata/finalizers/0"}]`, `[{"op":"replace","path":"/metadata/finalizers/-","value":"a.io/c"}]`, `[{"op":"remove","path":"/metadata/finalizers/-"}]`, `[{"op":"test","path":"/metadata/finalizers/-1","value":"a.io/b"}]`, `[{"op":"test","path":"/metadata/finalizers","value":["a.io/a","a.io/b"]}]`,
		`[{"op":"add","path":"/metadata/labels/z","value":"y","from":"/x"}]`, `[{"op":"add","path":"/metadata/labels/z","Value":"y"}]`, `[{"OP":"add","path":"/metadata/labels/z","value":"y"}]`, `[{"op":"add","op":"remove","path":"/metadata/labels/a","value":"y"}]`, `[{"op":"add","path":"/metadata/labels/z","path":"/metadata/labels/a","value":"y"}]`, `[{"op":"add","path":"/metadata/labels/z","value":"y"},null]`, `[null]`, `[]`, `{}`, `null`, `[5]`, ``, `[{"op":"add","path":"/metadata/labels/z","value":"y"}]x`, `[{"op":"add","path":"/metadata/a/b/c","value":"y"}]`, `[{"op":"add","path":"/metadata/labels/a/b","value":"y"}]`, `[{"op":"add","path":"/kind","value":"Pod"}]`, `[{"op":"replace","path":"/metadata/name","value":"other"}]`,
		`[{"op":"remove","path":"/metadata/name"}]`, `[{"op":"remove","path":"/metadata"}]`, `[{"op":"remove","path":"/apiVersion"}]`, `[{"op":"remove","path":"/metadata/resourceVersion"}]`, `[{"op":"replace","path":"/metadata/resourceVersion","value":"1"}]`, `[{"op":"remove","path":"/metadata/uid"}]`, `[{"op":"remove","path":"/metadata/managedFields"}]`, `[{"op":"add","path":"/metadata/managedFields","value":[]}]`, `[{"op":"replace","path":"/metadata/managedFields","value":[{}]}]`, `[{"op":"add","path":"/metadata/deletionTimestamp","value":"2026-01-01T00:00:00Z"}]`, `[{"op":"add","path":"/Metadata","value":{"name":"x"}}]`, `[{"op":"add","path":"/metadata/Labels","value":{"z":"y"}}]`, `[{"op":"add","path":"/metadata/labels/z%2fy","value":"y"}]`, `[{"op":"add","path":"/metadata/labels/~","value":"y"}]`, `[{"op":"add","path":"/metadata/labels/~2","value":"y"}]`, `[{"op":"add","path":"/metadata/labels/a~01","value":"y"}]`, `[{"op":"add","path":"/metadata/labels/é","value":"y"}]`, `[{"op":"add","path":"/metadata/labels/\u007a","value":"y"}]`,
		`[{"op":"test","path":"/nothing","value":null},{"op":"add","path":"/metadata/labels/z","value":"y"}]`, `[{"op":"test","path":"/metadata/nothing","value":null},{"op":"add","path":"/metadata/labels/z","value":"y"}]`, `[{"op":"test","path":"/data/a","value":1}]`, `[{"op":"copy","from":"/metadata","path":"/data/z"}]`, `[{"op":"copy","from":"/data","path":"/metadata/labels"},{"op":"add","path":"/data/q","value":"r"}]`, `[{"op":"copy","from":"/data","path":"/metadata/labels"},{"op":"add","path":"/metadata/labels/q","value":"r"}]`,
	} {
		for _, kind := range []string{"configmap", "deployment", "thing"} {
			all = append(all, edit(kind, "PATCH", "", jsonPatchType, body))
		}
	}
	for _, body := range []string{`[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"x"}]`, `[{"op":"add","path":"/spec/template/spec/containers/-","value":{"name":"z","image":"w"}}]`, `[{"op":"copy","from":"/spec/template/spec/containers/0","path":"/spec/template/spec/containers/-"},{"op":"replace","path":"/spec/template/spec/containers/2/name","value":"z"}]`, `[{"op":"move","from":"/spec/template/spec/containers/1","path":"/spec/template/spec/containers/0"}]`, `[{"op":"move","from":"/spec/template/spec/containers","path":"/spec/template/spec/initContainers"},{"op":"add","path":"/spec/template/spec/containers","value":[{"name":"q","image":"q"}]}]`,
		`[{"op":"add","path":"/spec/template/spec/hostNetwork","value":true}]`, `[{"op":"add","path":"/spec/template/spec/securityContext/runAsUser","value":0}]`, `[{"op":"copy","from":"/spec/replicas","path":"/spec/minReadySeconds"}]`, `[{"op":"test","path":"/spec/replicas","value":2.0},{"op":"replace","path":"/spec/replicas","value":3}]`, `[{"op":"replace","path":"/spec/replicas","value":3.0}]`, `[{"op":"replace","path":"/spec/replicas","value":"3"}]`, `[{"op":"remove","path":"/spec/template/spec/containers/1"},{"op":"remove","path":"/spec/template/spec/containers/0/env/0"}]`, `[{"op":"remove","path":"/spec/strategy"}]`, `[{"op":"add","path":"/spec/template/metadata/annotations","value":{"a":"b"}}]`} {
		all = append(all, edit("deployment", "PATCH", "", jsonPatchType, body))
	}
	return all
}

func mergeEdits() (all []hostileEdit) {
	for _, kind := range []string{"configmap", "deployment", "thing", "thing2", "limit", "secret", "pod"} {
		for _, body := range []string{`{}`, `null`, `[]`, `5`, `{"metadata":null}`, `{"metadata":{"labels":null}}`, `{"metadata":{"labels":{"a":null,"z":"y"}}}`, `{"metadata":{"labels":{"a":{"b":null}}}}`, `{"metadata":{"annotations":{"n":null}}}`, `{"metadata":{"finalizers":["a.io/z"]}}`, `{"metadata":{"finalizers":[null]}}`, `{"metadata":{"finalizers":null}}`, `{"kind":"Other"}`, `{"apiVersion":"v9"}`, `{"apiVersion":"judged.example.com/v2"}`, `{"kind":null,"apiVersion":null}`,
			`{"metadata":{"name":"other"}}`, `{"metadata":{"name":null}}`, `{"metadata":{"namespace":null}}`, `{"metadata":{"resourceVersion":null}}`, `{"metadata":{"resourceVersion":"0"}}`, `{"metadata":{"resourceVersion":"1"}}`, `{"metadata":{"resourceVersion":5}}`, `{"metadata":{"uid":null}}`, `{"metadata":{"uid":"x"}}`, `{"metadata":{"generation":9,"creationTimestamp":"2020-01-01T00:00:00Z","selfLink":"/x"}}`, `{"metadata":{"deletionTimestamp":"2020-01-01T00:00:00Z","deletionGracePeriodSeconds":0}}`, `{"metadata":{"managedFields":[]}}`, `{"metadata":{"managedFields":[{"manager":"x"}]}}`, `{"metadata":{"ownerReferences":[{"uid":"u","name":"n","kind":"K","apiVersion":"v1"}]}}`, `{"metadata":{"unknown":1}}`, `{"unknown":{"a":1}}`,
			`{"spec":{"unknown":{"a":null}}}`, `{"spec":{"size":null}}`, `{"spec":{"size":"5"}}`, `{"spec":{"size":5.0}}`, `{"spec":{"size":5.5}}`, `{"spec":{"size":1e1}}`, `{"spec":{"size":12345678901234567890}}`, `{"spec":{"parts":[{"name":"z"}]}}`, `{"spec":{"parts":[{"name":"z","count":null}]}}`, `{"spec":{"parts":null}}`, `{"spec":{"free":{"x":null}}}`, `{"spec":{"free":{"z":{"w":null}}}}`, `{"spec":{"any":null}}`, `{"spec":{"any":[1,null,{"a":null}]}}`, `{"spec":{"either":"50%"}}`, `{"spec":{"either":1.0}}`, `{"spec":{"pod":{"metadata":{"labels":{"l":"m"},"unknown":1},"spec":{"q":1}}}}`, `{"spec":{"pod":{"kind":null}}}`, `{"spec":{"map":{"k":null,"l":"m"}}}`, `{"spec":{"map":{"k":5}}}`,
			`{"spec":{"box":{"c":"d"}}}`, `{"spec":{"rules":[{"name":"r","port":1,"verbs":["get"]}]}}`, `{"status":{"x":1}}`, `{"spec":{"replicas":7}}`, `{"data":{"a":null}}`, `{"data":{"a":5}}`, `{"data":{"a":"\ud800"}}`, `{"data":{"a":"\u0000"}}`, `{"data":{"ä":"é"}}`, `{"binaryData":{"c":"Mg"}}`, `{"data":{"a":"Mg==\n"}}`, `{"Data":{"a":"x"}}`, `{"data":{"a":"x"},"data":{"b":"y"}}`, `{"data":{"a":"x","a":"y"}}`, "\ufeff{}", `{"data":{"a":"x"}} {"data":{"a":"y"}}`, `{"data":{"a":"x"},}`, `{'data':{}}`, "{\"data\":{\"a\":\"x\ty\"}}", `{"immutable":true}`, `{"immutable":"true"}`, `{"type":"kubernetes.io/tls"}`, `{"stringData":{"a":"new"}}`, `{"stringData":{"a":null}}`} {
			all = append(all, edit(kind, "PATCH", "", mergePatch, body))
		}
	}
	for _, kind := range []string{"thing", "thing2", "deployment", "rc"} {
		for _, body := range []string{`{"spec":{"replicas":4}}`, `{"spec":{"replicas":null}}`, `{"spec":{"replicas":-1}}`, `{"spec":{"size":4}}`, `{"metadata":{"labels":{"z":"y"}}}`, `{"metadata":{"resourceVersion":"1"}}`, `{"metadata":{"finalizers":["a.io/q"]}}`, `{"status":{"replicas":3,"x":1}}`, `{"status":null}`, `{"kind":"Scale"}`, `{"apiVersion":"autoscaling/v1","kind":"Scale","spec":{"replicas":4}}`, `{"apiVersion":"extensions/v1beta1","kind":"Scale","spec":{"replicas":4}}`} {
			for _, suffix := range []string{"/scale", "/status"} {
				all = append(all, edit(kind, "PATCH", suffix, mergePatch, body), edit(kind, "PATCH", suffix, strategicType, body), edit(kind, "PATCH", suffix+"?fieldManager=m&force=true", applyPatch, body), edit(kind, "PUT", suffix, jsonType, body))
			}
		}
	}
	return all
}

func wholeEdits() (all []hostileEdit) {
	for kind, of := range editedKinds {
		if kind == "definition" || kind == "service-of-apis" {
			continue
		}
		for _, change := range [][2]string{{`"@n"`, `"@n","labels":{"z":"y"}`}, {`"@n"`, `"@n","finalizers":["a.io/z"],"ownerReferences":[{"uid":"u","name":"n","kind":"K","apiVersion":"v1"}]`}, {`"@n"`, `"@n","generation":9,"uid":"x","creationTimestamp":"2020-01-01T00:00:00Z"`}, {`"@n"`, `"@n","managedFields":[{"manager":"x","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{}}]`}, {`"@n"`, `"@n","deletionTimestamp":"2020-01-01T00:00:00Z","deletionGracePeriodSeconds":5`},
			{`"@n"`, `"@n","annotations":{"a":null,"b":"c"}`}, {`"@n"`, `"@n","resourceVersion":"0"`}, {`"@n"`, `"@n","namespace":"hostile"`}, {`"@n"`, `"@n","unknown":{"a":1}`}, {`"@n"`, `"@n","Labels":{"z":"y"}`}, {`"apiVersion":`, `"unknown":1,"apiVersion":`}, {`"apiVersion":`, `"status":{"phase":"x","replicas":3,"conditions":[]},"apiVersion":`}, {`"spec":{`, `"spec":{"unknown":null,`}, {`"kind":"`, `"kind":"X`}, {`"apiVersion":"`, `"apiVersion":"v9`}, {`"kind":`, `"Kind":`}, {`{"apiVersion":`, "\t\r\n {\"apiVersion\":"},
			{`"metadata":{`, `"metadata":{"generateName":"g","selfLink":"/x",`}} {
			if strings.Contains(of[1], change[0]) && kind != "service" && kind != "pod" {
				body := strings.Replace(of[1], change[0], change[1], 1)
				all = append(all, edit(kind, "POST", "", jsonType, body), edit(kind, "PUT", "", jsonType, body), edit(kind, "POST", "?fieldManager=q&fieldValidation=Strict", yamlType, body))
				// Of a custom resource, a server shows its policies a null that it stores as an empty text; the dry run of an apply shows that text.
				if !strings.Contains(change[1], "null") || !strings.Contains(of[0], "judged.example.com") {
					all = append(all, edit(kind, "PATCH", "?fieldManager=m&force=true", applyPatch, body))
				}
			}
		}
	}
	return all
}
