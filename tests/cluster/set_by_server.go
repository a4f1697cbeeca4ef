package cluster

import (
	"fmt"
	"regexp"
	"strings"
)

// What a server sets by other objects, its configuration, or what it allocates is recorded with all plugins that it has by default, and with
// objects by which each of them acts.

// setByServerFlags make a server have the kinds in alpha that plugins act on, too.
var setByServerFlags = []string{uidFlag, "--enable-priority-and-fairness=false", "--feature-gates=GenericWorkload=true,GangScheduling=true,WorkloadAwarePreemption=true", "--runtime-config=scheduling.k8s.io/v1alpha2=true"}

// A settledWrite is a dry run whose answer has a text once the plugins know the objects that they act by.
type settledWrite struct{ path, body, has string }

const (
	plainPod   = `"apiVersion":"v1","kind":"Pod"`
	plainClaim = `"apiVersion":"v1","kind":"PersistentVolumeClaim","spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}`
	podGroup   = `"apiVersion":"scheduling.k8s.io/v1alpha2","kind":"PodGroup","spec":{"schedulingPolicy":{"basic":{}}}`
	twoDrivers = `"containers":[{"name":"c","image":"i"}],"initContainers":[{"name":"d","image":"i"}]`
)

// object is a document with a name.
func object(name, members string) string {
	return `{` + members + `,"metadata":{"name":"` + name + `"}}`
}

// annotated is one with an annotation that makes it the default.
func annotated(name, annotation, members string) string {
	return `{` + members + `,"metadata":{"name":"` + name + `","annotations":{"` + annotation + `":"true"}}}`
}

// setByServerSettings are the objects by which the plugins act: paths and documents.
func setByServerSettings() [][2]string {
	return [][2]string{
		{in("serviceaccounts"), `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default"},"imagePullSecrets":[{"name":"p"}]}`},
		{in("limitranges"), object("limits", `"apiVersion":"v1","kind":"LimitRange","spec":{"limits":[{"type":"Container","default":{"cpu":"1"},"defaultRequest":{"cpu":"1"}}]}`)},
		{"/apis/scheduling.k8s.io/v1/priorityclasses", object("@default", `"apiVersion":"scheduling.k8s.io/v1","kind":"PriorityClass","value":5,"globalDefault":true,"preemptionPolicy":"Never"`)},
		{"/apis/node.k8s.io/v1/runtimeclasses", object("@runtime", `"apiVersion":"node.k8s.io/v1","kind":"RuntimeClass","handler":"x","overhead":{"podFixed":{"cpu":"1m"}},"scheduling":{"nodeSelector":{"a":"b"}}`)},
		{"/api/v1/nodes", `{"apiVersion":"v1","kind":"Node","metadata":{"name":"@node","labels":{"topology.kubernetes.io/zone":"z","topology.kubernetes.io/region":"r"}}}`},
		{"/apis/storage.k8s.io/v1/storageclasses", annotated("@default", "storageclass.kubernetes.io/is-default-class", `"apiVersion":"storage.k8s.io/v1","kind":"StorageClass","provisioner":"x.example.com"`)},
		{"/apis/networking.k8s.io/v1/ingressclasses", annotated("@default", "ingressclass.kubernetes.io/is-default-class", `"apiVersion":"networking.k8s.io/v1","kind":"IngressClass","spec":{"controller":"example.com/x"}`)},
	}
}

// setByServerPod is a pod on a node, with a runtime.
func setByServerPod(name string) string {
	return object(name, plainPod+`,"spec":{"nodeName":"@node","runtimeClassName":"@runtime",`+twoDrivers+`}`)
}

// setByServerIngress has no class.
func setByServerIngress(name string) string {
	return object(name, `"apiVersion":"networking.k8s.io/v1","kind":"Ingress","spec":{"defaultBackend":{"service":{"name":"x","port":{"number":80}}}}`)
}

// setByServerKnown are dry runs that show whether the plugins know all settings.
func setByServerKnown() []settledWrite {
	pod := setByServerPod("probe")
	settled := []settledWrite{
		{in("persistentvolumeclaims"), object("probe", plainClaim), `"storageClassName"`}, {in("ingresses"), setByServerIngress("probe"), `"ingressClassName"`},
	}
	settled[1].path = in("networking.k8s.io/v1:ingresses")
	for _, has := range []string{`"imagePullSecrets"`, `"limits"`, `"priority":5`, `"overhead"`, `"topology.kubernetes.io/zone"`} {
		settled = append(settled, settledWrite{in("pods"), pod, has})
	}
	return settled
}

// setByServerSession writes objects of all kinds in which a server sets something.
func setByServerSession() Session {
	j := newEvaluation("set-by-server")
	create := func(path, document string) { j.post(path, document) }
	service := func(name, more string) {
		create(in("services"), object(name, `"apiVersion":"v1","kind":"Service","spec":{"ports":[{"port":80}]`+more+`}`))
	}
	create(in("pods"), object("plain", plainPod+`,"spec":{`+twoDrivers+`}`))
	create(in("pods"), setByServerPod("full"))
	create(in("pods"), object("own", plainPod+`,"spec":{"serviceAccountName":"default","priority":5,"tolerations":[{"key":"k","operator":"Exists"}],`+
		`"volumes":[{"name":"v","emptyDir":{}}],"containers":[{"name":"c","image":"i","volumeMounts":[{"name":"v","mountPath":"/v"}],"resources":{"limits":{"cpu":"1"},"requests":{"cpu":"1"}}}]}`))
	create(in("pods/plain/binding"), object("plain", `"apiVersion":"v1","kind":"Binding","target":{"kind":"Node","name":"@node"}`))
	j.patch(in("pods/plain"), mergePatch, `{"metadata":{"labels":{"a":"b"}}}`)
	create("/api/v1/nodes", object("@other", `"apiVersion":"v1","kind":"Node"`))
	create(in("persistentvolumeclaims"), object("plain", plainClaim))
	create("/api/v1/persistentvolumes", object("@volume", `"apiVersion":"v1","kind":"PersistentVolume","spec":{"capacity":{"storage":"1Gi"},"accessModes":["ReadWriteOnce"],"hostPath":{"path":"/x"}}`))
	create("/apis/storage.k8s.io/v1/volumeattributesclasses", object("@attributes", `"apiVersion":"storage.k8s.io/v1","kind":"VolumeAttributesClass","driverName":"x.example.com","parameters":{"a":"b"}`))
	create(in("networking.k8s.io/v1:ingresses"), setByServerIngress("plain"))
	service("plain", "")
	service("ports", `,"type":"NodePort"`)
	service("local", `,"type":"LoadBalancer","externalTrafficPolicy":"Local"`)
	create(in("batch/v1:jobs"), object("plain", `"apiVersion":"batch/v1","kind":"Job","spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}`))
	create(in("autoscaling/v1:horizontalpodautoscalers"), object("plain", `"apiVersion":"autoscaling/v1","kind":"HorizontalPodAutoscaler","spec":{"maxReplicas":3,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"x"}}`))
	create(in("scheduling.k8s.io/v1alpha2:podgroups"), object("plain", podGroup))
	create(in("serviceaccounts/default/token"), object("default", `"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}`))
	create(in("serviceaccounts/default/token"), object("default", `"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"audiences":[]}`))
	return j.Session
}

// drawnBySetting are what a server draws at random or allocates.
var drawnBySetting = []struct {
	found *regexp.Regexp
	with  string
}{
	{regexp.MustCompile(`kube-api-access-[a-z0-9]{5}`), "kube-api-access-drawn"},
	{regexp.MustCompile(`"10\.96\.\d+\.\d+"`), `"10.96.0.77"`},
	{regexp.MustCompile(`odePort":\d+`), `odePort":30077`},
}

// withoutDraws is a recorded line without what is another at each play.
func withoutDraws(line string) string {
	for _, drawn := range drawnBySetting {
		line = drawn.found.ReplaceAllString(line, drawn.with)
	}
	return line
}

// inPlay is a text of the settings in a play of the session.
func inPlay(text string, play int) string {
	name := strings.ReplaceAll(newEvaluation("set-by-server").Name, playMark, playNumber(play))
	return strings.NewReplacer("@ns", name+"-ns", "@", name+"-").Replace(text)
}

func settingName(setting [2]string, play int) string {
	_, after, _ := strings.Cut(setting[1], `"metadata":{"name":"`)
	name, _, _ := strings.Cut(after, `"`)
	return fmt.Sprintf("%s/%s", inPlay(setting[0], play), inPlay(name, play))
}
