package main

import "k8s.io/apimachinery/pkg/runtime/schema"

// A family is a kind with all versions in which a server can serve it.
type family struct {
	kind     string
	versions []schema.GroupVersion
}

func of(group, kind string, versions ...string) family {
	one := family{kind: kind}
	for _, version := range versions {
		one.versions = append(one.versions, schema.GroupVersion{Group: group, Version: version})
	}
	return one
}

// families are all kinds that a server serves in several versions if all versions are on. That they are all is checked in
// front of a server: see ../equivalent_versions_test.go. Policies and webhooks of admission are not here, since no policy is about them.
var families = []family{
	of("authentication.k8s.io", "SelfSubjectReview", "v1", "v1beta1"),
	of("autoscaling", "HorizontalPodAutoscaler", "v1", "v2"),
	of("certificates.k8s.io", "ClusterTrustBundle", "v1alpha1", "v1beta1"),
	of("coordination.k8s.io", "LeaseCandidate", "v1alpha2", "v1beta1"),
	{kind: "Event", versions: []schema.GroupVersion{{Version: "v1"}, {Group: "events.k8s.io", Version: "v1"}}},
	of("networking.k8s.io", "IPAddress", "v1", "v1beta1"),
	of("networking.k8s.io", "ServiceCIDR", "v1", "v1beta1"),
	of("resource.k8s.io", "DeviceClass", "v1", "v1beta1", "v1beta2"),
	of("resource.k8s.io", "DeviceTaintRule", "v1alpha3", "v1beta2"),
	of("resource.k8s.io", "ResourceClaim", "v1", "v1beta1", "v1beta2"),
	of("resource.k8s.io", "ResourceClaimTemplate", "v1", "v1beta1", "v1beta2"),
	of("resource.k8s.io", "ResourceSlice", "v1", "v1beta1", "v1beta2"),
	of("storage.k8s.io", "VolumeAttributesClass", "v1", "v1beta1"),
}

// randomCases is the number of random objects of each version of a kind. Those whose versions have the same fields need few.
func randomCases(kind string) int {
	switch kind {
	case "HorizontalPodAutoscaler", "Event":
		return 60
	case "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice":
		return 120
	}
	return 20
}
