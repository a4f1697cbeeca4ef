package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

const derivedNamespace = "derived"

// derivedKinds are resources with fields that the server fills from others, and what a policy prints of them.
var derivedKinds = map[string]string{
	"pods": `'%s %s %s %s'.format([object.spec.?terminationGracePeriodSeconds.orValue('-'), object.spec.containers.map(c, c.?securityContext.?appArmorProfile.orValue({})), object.spec.?affinity.orValue({}), ` +
		`object.spec.?topologySpreadConstraints.orValue([])])`,
	"pods/status": `'%s %s %s %s %s'.format([object.status.?podIP.orValue('-'), object.status.?podIPs.orValue([]), object.status.?qosClass.orValue('-'), object.status.?observedGeneration.orValue(0), ` +
		`object.status.?conditions.orValue([]).map(c, [c.type, c.?observedGeneration.orValue(0)])])`,
	// Not the group: a server shows null where there is none.
	"persistentvolumeclaims": `'%s/%s %s/%s'.format([object.spec.?dataSource.?kind.orValue('-'), object.spec.?dataSource.?name.orValue('-'), ` +
		`object.spec.?dataSourceRef.?kind.orValue('-'), object.spec.?dataSourceRef.?name.orValue('-')])`,
	"services": `'%s %s %s %s %s %s %s %s %s %s'.format([object.spec.?clusterIP.orValue('-'), object.spec.?clusterIPs.orValue([]), ` +
		`object.spec.?ports.orValue([]).map(p, p.?nodePort.orValue(0)), object.spec.?ipFamilies.orValue([]), object.spec.?ipFamilyPolicy.orValue('-'), ` +
		`object.spec.?healthCheckNodePort.orValue(0), object.spec.?allocateLoadBalancerNodePorts.orValue('-'), object.spec.?loadBalancerClass.orValue('-'), ` +
		`object.spec.?externalTrafficPolicy.orValue('-'), has(object.status.loadBalancer.ingress)])`,
	"nodes":             `'%s %s %s'.format([object.spec.?podCIDR.orValue('-'), object.spec.?podCIDRs.orValue([]), object.metadata.?namespace.orValue('-')])`,
	"persistentvolumes": `object.metadata.?namespace.orValue('-')`,
	"configmaps":        `object.metadata.?namespace.orValue('-')`,
	"namespaces":        `object.metadata.name`,
	"limitranges":       `string(object.metadata.name.size())`,
	"statefulsets":      `'%s'.format([object.spec.volumeClaimTemplates.map(t, [t.apiVersion, t.kind])])`,
	"endpointslices":    `'%s'.format([object.endpoints.map(e, [e.?nodeName.orValue('-'), has(e.deprecatedTopology)])])`,
}

// owners prints who owns which fields of the object, as policies see them.
const owners = ` + ' owned ' + '%s'.format([object.metadata.?managedFields.orValue([]).map(m, [m.manager, m.operation, m.?subresource.orValue('-'), m.fieldsV1])])`

// A derivedWrite is denied by a policy, which prints what it sees.
type derivedWrite struct{ method, path, media, body string }

func derivedWrites() (all []derivedWrite) {
	in := "/api/v1/namespaces/" + derivedNamespace + "/"
	add := func(method, path, body string) { all = append(all, derivedWrite{method, path, jsonType, body}) }
	patch := func(path, body string) {
		all = append(all, derivedWrite{"PATCH", path, "application/merge-patch+json", body})
	}
	pod := func(metadata, spec, container string) {
		add("POST", in+"pods", fmt.Sprintf(`{"metadata":{"name":"derived-new"%s},"spec":{%s"containers":[{"name":"c","image":"x"%s},{"name":"d","image":"x"}]}}`, metadata, spec, container))
	}
	for _, profile := range []string{"unconfined", "runtime/default", "localhost/p", "localhost/", "localhost/ p", "other"} {
		annotation := `,"annotations":{"container.apparmor.security.beta.kubernetes.io/c":"` + profile + `"}`
		pod(annotation, ``, ``)
		pod(annotation, `"securityContext":{"appArmorProfile":{"type":"Unconfined"}},`, ``)
		pod(annotation, ``, `,"securityContext":{"appArmorProfile":{"type":"RuntimeDefault"}}`)
		pod(annotation, `"os":{"name":"windows"},`, ``)
	}
	const term = `"topologyKey":"t","matchLabelKeys":["a","missing"],"mismatchLabelKeys":["b"]`
	const selector = `,"labelSelector":{"matchExpressions":[{"key":"k","operator":"Exists"}]}`
	const labels = `,"labels":{"a":"1","b":"2"}`
	for _, selects := range []string{selector, `,"labelSelector":{}`} {
		pod(labels, `"affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{`+term+selects+`}]}},`, ``)
		pod(labels, `"affinity":{"podAntiAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":1,"podAffinityTerm":{`+term+selects+`}}]}},`, ``)
		pod(labels, `"topologySpreadConstraints":[{"maxSkew":1,"topologyKey":"t","whenUnsatisfiable":"DoNotSchedule","matchLabelKeys":["a"]`+selects+`}],`, ``)
	}
	for _, status := range []string{`"podIP":"10.0.0.1"`, `"podIPs":[{"ip":"10.0.0.1"},{"ip":"fd00::1"}]`, `"podIP":"10.0.0.2","podIPs":[{"ip":"10.0.0.1"}]`} {
		add("PUT", in+"pods/derived-there/status", `{"metadata":{"name":"derived-there"},"spec":{"containers":[{"name":"c","image":"x"}]},"status":{`+status+`}}`)
	}
	const sources = `"dataSource":{"kind":"PersistentVolumeClaim","name":"a"};"dataSource":{"apiGroup":"snapshot.storage.k8s.io","kind":"VolumeSnapshot","name":"a"};"dataSource":{"apiGroup":"x.io","kind":"X","name":"a"};` +
		`"dataSourceRef":{"kind":"PersistentVolumeClaim","name":"a"};"dataSourceRef":{"apiGroup":"x.io","kind":"X","name":"a"};"dataSource":{"kind":"PersistentVolumeClaim","name":"a"},"dataSourceRef":{"kind":"PersistentVolumeClaim","name":"a"}`
	for _, source := range strings.Split(sources, ";") {
		add("POST", in+"persistentvolumeclaims", `{"metadata":{"name":"derived-new"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}},`+source+`}}`)
	}
	// Of which families its addresses are is allocated.
	const families = `"ipFamilies":["IPv6","IPv4"],"ipFamilyPolicy":"RequireDualStack"`
	for _, addresses := range []string{`"clusterIP":"None"`, `"clusterIP":"None","clusterIPs":["None"]`} {
		add("POST", in+"services", `{"metadata":{"name":"derived-new"},"spec":{"ports":[{"port":80}],`+families+`,`+addresses+`}}`)
	}
	for _, spec := range []string{`"ports":[{"port":81}]`, `"clusterIP":"None","ports":[{"port":81}]`, `"type":"ExternalName","externalName":"x.example.com","clusterIPs":["None"]`, `"type":"ExternalName","externalName":"x.example.com"`} {
		add("PUT", in+"services/derived-there", `{"metadata":{"name":"derived-there"},"spec":{`+spec+`}}`)
	}
	// An update keeps the allocated ports that it leaves out, and loses what its type cannot have.
	for _, name := range []string{"derived-node-port", "derived-balanced"} {
		path, of := in+"services/"+name, map[string]string{"derived-node-port": "NodePort", "derived-balanced": "LoadBalancer"}[name]
		for _, spec := range []string{`"ports":[{"name":"a","port":80},{"name":"b","port":81}]`, `"ports":[{"name":"b","port":80},{"name":"c","port":82,"nodePort":31501}]`,
			`"ports":[{"name":"a","port":80}],"externalTrafficPolicy":"Local"`, `"allocateLoadBalancerNodePorts":false,"ports":[{"name":"a","port":80}]`} {
			for _, to := range []string{of, "ClusterIP", "NodePort"} {
				add("PUT", path, `{"metadata":{"name":"`+name+`"},"spec":{"type":"`+to+`",`+spec+`}}`)
			}
		}
		for _, spec := range []string{`"type":"ClusterIP"`, `"type":"NodePort"`, `"type":"ExternalName","externalName":"x.example.com"`, `"type":"ExternalName","externalName":"x.example.com","ports":null`,
			`"type":"ClusterIP","externalTrafficPolicy":null`, `"type":"ClusterIP","ports":[{"name":"a","port":80,"nodePort":31599}]`, `"externalTrafficPolicy":"Cluster"`} {
			patch(path, `{"spec":{`+spec+`}}`)
		}
	}
	for _, seconds := range []string{"-3", "0", "5"} {
		add("POST", in+"pods", `{"metadata":{"name":"derived-new"},"spec":{"terminationGracePeriodSeconds":`+seconds+`,"containers":[{"name":"c","image":"x"}]}}`)
	}
	for _, status := range []string{`"conditions":[{"type":"Ready","status":"True"}]`, `"qosClass":"","observedGeneration":0`, `"observedGeneration":7,"conditions":[{"type":"Ready","status":"True","observedGeneration":3}]`} {
		patch(in+"pods/derived-there/status", `{"status":{`+status+`}}`)
	}
	for _, claim := range []string{`{"metadata":{"name":"v"}`, `{"apiVersion":"x","kind":"Y","metadata":{"name":"v"}`} {
		add("POST", strings.Replace(in, "/api/v1", "/apis/apps/v1", 1)+"statefulsets", `{"metadata":{"name":"derived-new"},"spec":{"serviceName":"s","selector":{"matchLabels":{"a":"b"}},`+
			`"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"x"}]}},"volumeClaimTemplates":[`+claim+`,"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}]}}`)
	}
	for _, topology := range []string{`{"kubernetes.io/hostname":"n"}`, `{"a":"b"}`, `{}`} {
		add("POST", strings.Replace(in, "/api/v1", "/apis/discovery.k8s.io/v1", 1)+"endpointslices", `{"metadata":{"name":"derived-new"},"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"],"deprecatedTopology":`+topology+`}]}`)
	}
	for _, metadata := range []string{`{}`, `{"name":""}`, `{"name":"derived-new"}`, `{"generateName":"derived-"}`} {
		add("POST", in+"limitranges", `{"metadata":`+metadata+`,"spec":{"limits":[]}}`)
	}
	// What the server adds to a new object belongs to nobody.
	for _, more := range []string{``, `,"labels":{"a":"b"}`, `,"labels":{"kubernetes.io/metadata.name":"derived-new"}`} {
		add("POST", "/api/v1/namespaces", `{"metadata":{"name":"derived-new"`+more+`}}`)
		add("POST", in+"configmaps", `{"metadata":{"name":"derived-new"`+more+`},"data":{"a":"b"}}`)
	}
	add("PUT", in+"configmaps/derived-there", `{"metadata":{"name":"derived-there","labels":{"a":"b"}},"data":{"a":"b"}}`)
	patch(in+"configmaps/derived-there", `{"data":{"a":"b","c":"d"}}`)
	// An object has the namespace of the URL, or none.
	for _, metadata := range []string{`"namespace":null`, `"namespace":""`, `"labels":{"a":"b"}`} {
		patch(in+"configmaps/derived-there", `{"metadata":{`+metadata+`}}`)
	}
	all = append(all, derivedWrite{"PATCH", in + "configmaps/derived-there", "application/json-patch+json", `[{"op":"remove","path":"/metadata/namespace"}]`})
	const volume = `"spec":{"capacity":{"storage":"1Gi"},"accessModes":["ReadWriteOnce"],"persistentVolumeReclaimPolicy":"Retain","hostPath":{"path":"/x"}}`
	add("POST", "/api/v1/persistentvolumes", `{"metadata":{"name":"derived-new","namespace":"kube-system"},`+volume+`}`)
	add("PUT", "/api/v1/persistentvolumes/derived-there", `{"metadata":{"name":"derived-there","namespace":"kube-system"},`+volume+`}`)
	patch("/api/v1/persistentvolumes/derived-there", `{"metadata":{"namespace":"kube-system"}}`)
	add("POST", "/api/v1/nodes", `{"metadata":{"name":"derived-new","namespace":"kube-system"}}`)
	for _, spec := range []string{`"podCIDR":"10.0.0.0/24"`, `"podCIDRs":["10.0.0.0/24","fd00::/64"]`, `"podCIDR":"10.0.1.0/24","podCIDRs":["10.0.0.0/24"]`} {
		add("POST", "/api/v1/nodes", `{"metadata":{"name":"derived-new"},"spec":{`+spec+`}}`)
	}
	return all
}

// prepareDerived makes the objects that are updated, and then the policies.
func prepareDerived(ctx context.Context, side documentSide) error {
	in := "/api/v1/namespaces/" + derivedNamespace
	for _, made := range [][2]string{
		{"/api/v1/namespaces", `{"metadata":{"name":"` + derivedNamespace + `"}}`},
		{in + "/serviceaccounts", `{"metadata":{"name":"default"}}`},
		{in + "/services", `{"metadata":{"name":"derived-there"},"spec":{"clusterIP":"None","ports":[{"port":80}]}}`},
		{in + "/services", `{"metadata":{"name":"derived-node-port"},"spec":{"type":"NodePort","clusterIP":"10.96.77.7","ports":[{"name":"a","port":80,"nodePort":31501},{"name":"b","port":81,"nodePort":31502}]}}`},
		{in + "/services", `{"metadata":{"name":"derived-balanced"},"spec":{"type":"LoadBalancer","clusterIP":"10.96.77.8","loadBalancerClass":"example.com/x","externalTrafficPolicy":"Local",` +
			`"healthCheckNodePort":31503,"ports":[{"name":"a","port":80,"nodePort":31504},{"name":"b","port":81,"nodePort":31505}]}}`},
		{in + "/configmaps", `{"metadata":{"name":"derived-there"}}`},
		{"/api/v1/persistentvolumes", `{"metadata":{"name":"derived-there"},"spec":{"capacity":{"storage":"1Gi"},"accessModes":["ReadWriteOnce"],"persistentVolumeReclaimPolicy":"Retain","hostPath":{"path":"/x"}}}`},
		{in + "/pods", `{"metadata":{"name":"derived-there"},"spec":{"containers":[{"name":"c","image":"x"}]}}`},
	} {
		if err := side.must(ctx, "POST", made[0], made[1], 201, 409); err != nil {
			return err
		}
	}
	for resource, prints := range derivedKinds {
		name := "derived-" + strings.ReplaceAll(resource, "/", "-")
		policy := fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":%q},"spec":{"failurePolicy":"Fail",`+
			`"matchConstraints":{"resourceRules":[{"apiGroups":["","apps","discovery.k8s.io"],"apiVersions":["v1"],"operations":["CREATE","UPDATE"],"resources":[%q]}]},`+
			`"matchConditions":[{"name":"derived","expression":"object.metadata.name.startsWith('derived-') || request.resource.resource == 'limitranges' && request.namespace == '`+derivedNamespace+`'"}],"validations":[{"expression":"false","messageExpression":%q}]}}`,
			name, resource, `'derived '+`+prints+owners)
		binding := fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":%[1]q},"spec":{"policyName":%[1]q,"validationActions":["Deny"]}}`, name)
		for path, object := range map[string]string{policiesPath: policy, bindingsPath: binding} {
			if err := side.must(ctx, "POST", path, object, 201, 409); err != nil {
				return err
			}
		}
	}
	return nil
}

// Policies see the fields that the server fills from others, so a policy about one of them cannot be evaded by the other.
func TestFieldsThatAServerDerivesAreSeen(t *testing.T) {
	aboutEvaluatingFairgate(t)
	bed, ctx := must[*AdmissionBed](t)(admissionBed()), inTime(t, 5*time.Minute)
	gateway := evaluatingFairgate(t, FairgateOptions{Admission: "enforce", Fidelity: "completed"})
	server := newDocumentSide(t, "server", bed.Enforcing.Endpoint)
	plain := newDocumentSide(t, "plain", bed.Plain.Endpoint)
	for _, side := range []documentSide{server, plain} {
		succeeds(t, prepareDerived(ctx, side))
	}
	seen := func(side documentSide, write derivedWrite) (printed string, err error) {
		err = poll(changeLimit, 50*time.Millisecond, func() (bool, error) {
			answer, err := side.send(ctx, write.method, write.path+"?dryRun=All", write.media, []byte(write.body))
			if err != nil || answer.isAccepted() {
				return false, err // the policy is not yet in force
			}
			_, printed, _ = strings.Cut(answer.message, "denied request: ")
			return true, nil
		})
		return printed, err
	}
	through := plain.through(t, "gateway", gateway.Endpoint)
	const owned = `"f:apiGroup":{}, `
	writes, refused := derivedWrites(), 0
	for _, write := range writes {
		want, err := seen(server, write)
		succeeds(t, err)
		got, err := seen(through, write)
		succeeds(t, err)
		// To a server, a group that is missing in a reference is null, which has an owner.
		want, got = strings.Replace(want, owned, "", 1), strings.Replace(got, owned, "", 1)
		// A server refuses what is not valid before its policies see it.
		if want == "" {
			refused++
		} else if want != got {
			t.Errorf("%s %s %s\n  server  %s\n  gateway %s", write.method, write.path, write.body, want, got)
		}
	}
	fmt.Printf("DERIVED {\"writes\":%d,\"refused for another reason\":%d}\n", len(writes), refused)
	if refused > len(writes)/3 {
		t.Errorf("the server refuses %d of %d writes for another reason", refused, len(writes))
	}
}
