package main

import (
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// versions are those that kube-apiserver can serve; of alpha ones, those whose kinds have defaults.
var versions = []string{
	"v1", "admissionregistration.k8s.io/v1", "admissionregistration.k8s.io/v1beta1", "apiextensions.k8s.io/v1",
	"apiregistration.k8s.io/v1", "apps/v1", "authentication.k8s.io/v1", "authentication.k8s.io/v1beta1", "authorization.k8s.io/v1",
	"autoscaling/v1", "autoscaling/v2", "batch/v1", "certificates.k8s.io/v1", "certificates.k8s.io/v1beta1",
	"coordination.k8s.io/v1", "coordination.k8s.io/v1beta1", "discovery.k8s.io/v1", "events.k8s.io/v1",
	"flowcontrol.apiserver.k8s.io/v1", "flowcontrol.apiserver.k8s.io/v1beta3", "networking.k8s.io/v1", "networking.k8s.io/v1beta1",
	"node.k8s.io/v1", "policy/v1", "rbac.authorization.k8s.io/v1", "resource.k8s.io/v1", "resource.k8s.io/v1beta1",
	"resource.k8s.io/v1beta2", "resource.k8s.io/v1alpha3", "scheduling.k8s.io/v1", "scheduling.k8s.io/v1alpha2", "storage.k8s.io/v1", "storage.k8s.io/v1beta1", "storagemigration.k8s.io/v1beta1",
}

// unserved are kinds of these versions that no server takes any more, or never did.
var unserved = []string{
	"v1 RangeAllocation", "v1 PodStatusResult", "v1 SerializedReference",
	"admissionregistration.k8s.io/v1beta1 ValidatingWebhookConfiguration",
	"admissionregistration.k8s.io/v1beta1 MutatingWebhookConfiguration",
	"authentication.k8s.io/v1beta1 TokenReview", "certificates.k8s.io/v1beta1 CertificateSigningRequest",
	"coordination.k8s.io/v1beta1 Lease", "networking.k8s.io/v1beta1 Ingress", "networking.k8s.io/v1beta1 IngressClass",
	"storage.k8s.io/v1beta1 StorageClass", "storage.k8s.io/v1beta1 CSIDriver", "storage.k8s.io/v1beta1 CSINode",
	"storage.k8s.io/v1beta1 VolumeAttachment", "storage.k8s.io/v1beta1 CSIStorageCapacity",
}

// many are the kinds with many defaults; they get more random objects.
var many = []string{
	"Pod", "Service", "Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob", "PersistentVolume", "HorizontalPodAutoscaler", "LimitRange",
	"ResourceClaim", "VolumeAttachment",
}

// served is all kinds that a server takes, without lists, in order.
func served(scheme *runtime.Scheme) []schema.GroupVersionKind {
	meta := reflect.TypeFor[metav1.ObjectMeta]().PkgPath()
	var kinds []schema.GroupVersionKind
	for kind, goType := range scheme.AllKnownTypes() {
		version := kind.GroupVersion().String()
		if slices.Contains(versions, version) && goType.PkgPath() != meta && !strings.HasSuffix(kind.Kind, "List") &&
			!slices.Contains(unserved, version+" "+kind.Kind) {
			kinds = append(kinds, kind)
		}
	}
	slices.SortFunc(kinds, func(a, b schema.GroupVersionKind) int {
		return strings.Compare(a.GroupVersion().String()+" "+a.Kind, b.GroupVersion().String()+" "+b.Kind)
	})
	return kinds
}

// randomCases is the number of random objects of a kind.
func randomCases(kind string) int {
	switch {
	case kind == "Pod":
		return 120
	case slices.Contains(many, kind):
		return 40
	}
	return 20
}
