package cluster

import (
	"bytes"
	"text/template"
)

// replicaConfiguration is that of a fairgate that hosts the API itself, on an etcd.
var replicaConfiguration = template.Must(template.New("replica").Parse(`apiVersion: fairgate.dev/v1alpha1
kind: Configuration
mode: standalone
listen:
  address: {{ .Address }}
  tls:
    certFile: {{ .Serving.Cert }}
    keyFile: {{ .Serving.Key }}
authentication:
  clientCertificate:
    caFile: {{ .ClientCA }}
  tokenReview:
    enabled: false
hostedApi:
  readerGroups: [` + replicaReaders + `]
store:
  type: etcd
  etcd:
    endpoints: [{{ .Etcd }}]
    prefix: {{ .Prefix }}
admin:
  address: {{ .Admin }}
drain:
  delay: 0s
  grace: 2s
`))

// replicaReaders is the group that may read the objects.
const replicaReaders = "fairgate:readers"

// NewReplica writes the configuration of a fairgate on the etcd at a URL, or at several with commas between. Nothing runs yet.
func (c *Cluster) NewReplica(name, etcd, prefix string) (*Fairgate, error) {
	return c.newFairgate(name, "", 0, func(address, admin string) (string, error) {
		var text bytes.Buffer
		err := replicaConfiguration.Execute(&text, map[string]any{
			"Address": address, "Admin": admin, "Serving": c.PKI.Fairgate, "ClientCA": c.PKI.CA.Cert, "Etcd": etcd, "Prefix": prefix,
		})
		return text.String(), err
	})
}

// Hosted is the view of it for tests of the hosted objects alone.
func (c *Cluster) Hosted(r *Fairgate) (*Hosted, error) {
	reader, err := c.NewUser("reader", replicaReaders)
	if err != nil {
		return nil, err
	}
	hosted := &Hosted{Restart: r.Restart, Stop: r.Stop}
	if hosted.Admin, err = c.Kubeconfig(r.Endpoint, c.admin); err != nil {
		return nil, err
	}
	hosted.User, err = c.Kubeconfig(r.Endpoint, reader)
	return hosted, err
}
