package cluster

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"fmt"
)

// Kinds, and versions of kinds, that kube-apiserver serves only if it is told to.

// allKindsFlags are flags of a server that has all kinds in all versions, with the features that they need and no others.
var allKindsFlags = []string{
	uidFlag, "--enable-priority-and-fairness=false", "--runtime-config=api/all=true",
	"--feature-gates=ClusterTrustBundle=true,PodCertificateRequest=true,GenericWorkload=true,GangScheduling=true,WorkloadAwarePreemption=true,StorageVersionMigrator=true,DRAResourcePoolStatus=true",
}

// possessedKey is a public key and a proof that its private key signed a text, both in base64. They are the same each time.
func possessedKey(text string) (key, proof string, err error) {
	private := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	encoded, err := x509.MarshalPKIXPublicKey(private.Public())
	encode := base64.StdEncoding.EncodeToString
	return encode(encoded), encode(ed25519.Sign(private, []byte(text))), err
}

// furtherKinds are those that a server does not serve by default.
func furtherKinds() ([]echoedKind, error) {
	const ready, readySeen = `status.conditions=[{"type":"forged","status":"True","reason":"r","message":"m","lastTransitionTime":"2018-01-01T00:00:00Z"}]`, `(object.?status.?conditions.orValue([]).exists(c, c.type == 'forged') ? 'exempt' : 'none')`
	bundle, err := authorityBundle()
	if err != nil {
		return nil, err
	}
	const uid = "00000000-0000-0000-0000-000000000042"
	key, proof, err := possessedKey(uid)
	if err != nil {
		return nil, err
	}
	certificate := fmt.Sprintf(`,"spec":{"signerName":"example.com/x","podName":"p","podUID":%[1]q,"serviceAccountName":"a","serviceAccountUID":%[1]q,"nodeName":"n","nodeUID":%[1]q,"pkixPublicKey":%[2]q,"proofOfPossession":%[3]q}`, uid, key, proof)
	version := `status.storageVersions=[{"apiServerID":"a","encodingVersion":"v1","decodableVersions":["v1"]}]`
	kinds := []echoedKind{
		withStatus(echoedKind{session: "podcertificates", path: "certificates.k8s.io/v1beta1:podcertificaterequests", document: standard("certificates.k8s.io/v1beta1", "PodCertificateRequest", certificate)}, ready, readySeen),
		withStatus(echoedKind{session: "poolstatus", path: "resource.k8s.io/v1alpha3:resourcepoolstatusrequests", cluster: true, document: standard("resource.k8s.io/v1alpha3", "ResourcePoolStatusRequest", `,"spec":{"driver":"d.example.com"}`)}, `status.poolCount=77`, `(string(object.?status.?poolCount.orValue('-')) == '77' ? 'exempt' : 'none')`),
		withStatus(echoedKind{session: "podgroups", path: "scheduling.k8s.io/v1alpha2:podgroups", document: standard("scheduling.k8s.io/v1alpha2", "PodGroup", `,"spec":{"schedulingPolicy":{"basic":{}}}`)}, ready, readySeen),
		{session: "workloads", path: "scheduling.k8s.io/v1alpha2:workloads", document: standard("scheduling.k8s.io/v1alpha2", "Workload", `,"spec":{"podGroupTemplates":[{"name":"g","schedulingPolicy":{"basic":{}}}]}`)},
		withStatus(echoedKind{session: "migrations", path: "storagemigration.k8s.io/v1beta1:storageversionmigrations", cluster: true, document: standard("storagemigration.k8s.io/v1beta1", "StorageVersionMigration", `,"spec":{"resource":{"group":"","resource":"secrets"}}`)}, ready, readySeen),
		withStatus(echoedKind{session: "storageversions", path: "internal.apiserver.k8s.io/v1alpha1:storageversions", cluster: true, named: "%s.things", document: standardNamed("internal.apiserver.k8s.io/v1alpha1", "StorageVersion", "%[1]s.things", `,"spec":{}`)}, version, `(object.?status.?storageVersions.orValue([]).size() > 0 ? 'exempt' : 'none')`),
	}
	// Those with several versions.
	for _, kind := range equivalentKinds(bundle) {
		for _, version := range kind.versions {
			group, number := groupOf(version)
			switch {
			case kind.named != "", group == "autoscaling", group == "", group == "events.k8s.io":
				continue // its name says what it is, or others are about it
			}
			// No name of a session is part of another one.
			one := echoedKind{session: number + "-" + kind.resource, path: version + ":" + kind.resource, cluster: kind.cluster, document: standard(version, kind.kind, ","+kind.document(version))}
			if kind.change != nil {
				one.change = kind.change(version)
			}
			if kind.status != "" {
				one.exempt, one.subresources = kind.status, []echoedSubresource{echoedStatus(kind.status)}
			}
			kinds = append(kinds, one)
		}
	}
	return kinds, nil
}

// standardNamed is [standard] with another name than that of the document.
func standardNamed(apiVersion, kind, name, spec string) string {
	return `{"apiVersion":"` + apiVersion + `","kind":"` + kind + `","metadata":{"name":"` + name + `",` + evaluatedLabels + `}` + spec + `}`
}
