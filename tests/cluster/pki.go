package cluster

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
)

// A KeyPair names a PEM certificate and its PEM private key on disk.
type KeyPair struct {
	Cert string
	Key  string
}

// PKI has the files of an operator. The front-proxy CA is apart from the cluster's, as it has to be:
// a holder of a certificate of the former may impersonate any user.
type PKI struct {
	dir string

	CA           KeyPair // signs servers and users
	FrontProxyCA KeyPair // signs those who may assert other people's identity

	ServiceAccount KeyPair // Cert is the public key that verifies tokens, Key signs them
	Apiserver      KeyPair // serving
	Fairgate       KeyPair // serving

	FrontProxyClient KeyPair // CN front-proxy-client: fairgate to the upstream, or a proxy before fairgate
	FairgateClient   KeyPair // CN fairgate: for impersonation, bounded by RBAC

	ca, frontProxyCA *authority

	// How many users' certificates were made.
	users atomic.Uint32
}

type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// NewPKI makes all keys and certificates under dir. addresses are those that the servers are reached
// by, besides loopback and the names of the kubernetes Service.
func NewPKI(dir string, addresses []string) (*PKI, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	p := &PKI{dir: dir}
	var err error
	if p.ca, p.CA, err = p.newAuthority("ca", "kubernetes"); err != nil {
		return nil, err
	}
	if p.frontProxyCA, p.FrontProxyCA, err = p.newAuthority("front-proxy-ca", "front-proxy-ca"); err != nil {
		return nil, err
	}
	if p.ServiceAccount, err = p.newServiceAccountKey(); err != nil {
		return nil, err
	}
	if p.Apiserver, err = p.newServer("apiserver", addresses); err != nil {
		return nil, err
	}
	if p.Fairgate, err = p.newServer("fairgate", addresses); err != nil {
		return nil, err
	}
	if p.FrontProxyClient, err = p.newClient(p.frontProxyCA, "front-proxy-client", "front-proxy-client", nil); err != nil {
		return nil, err
	}
	if p.FairgateClient, err = p.newClient(p.ca, "fairgate-client", "fairgate", nil); err != nil {
		return nil, err
	}
	return p, nil
}

// User makes a client certificate of the cluster's CA: name becomes the CN, groups the O values. Each has
// files of its own: tests run at the same time, and a gateway may be reading those of the last one.
func (p *PKI) User(file, name string, groups ...string) (KeyPair, error) {
	return p.newClient(p.ca, fmt.Sprintf("user-%s-%d", file, p.users.Add(1)), name, groups)
}

// UserWithUID is the same for a user with a UID, if that is not empty: it is an attribute of the subject of its own.
func (p *PKI) UserWithUID(file, name, uid string, groups ...string) (KeyPair, error) {
	var attributes []pkix.AttributeTypeAndValue
	if uid != "" {
		attributes = append(attributes, pkix.AttributeTypeAndValue{Type: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2}, Value: uid})
	}
	return p.newClient(p.ca, fmt.Sprintf("user-%s-%d", file, p.users.Add(1)), name, groups, attributes...)
}

func (p *PKI) newAuthority(file, name string) (*authority, KeyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, KeyPair{}, err
	}
	request := unsigned(name, nil)
	request.IsCA = true
	request.BasicConstraintsValid = true
	request.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature | x509.KeyUsageCRLSign
	pair, cert, err := p.write(file, request, key, &authority{cert: request, key: key})
	return &authority{cert: cert, key: key}, pair, err
}

func (p *PKI) newServer(name string, addresses []string) (KeyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return KeyPair{}, err
	}
	request := unsigned(name, nil)
	request.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	request.DNSNames = []string{
		"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
	}
	request.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	for _, address := range addresses {
		request.IPAddresses = append(request.IPAddresses, net.ParseIP(address))
	}
	pair, _, err := p.write(name, request, key, p.ca)
	return pair, err
}

func (p *PKI) newClient(by *authority, file, name string, groups []string, more ...pkix.AttributeTypeAndValue) (KeyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return KeyPair{}, err
	}
	request := unsigned(name, groups)
	request.Subject.ExtraNames = more
	request.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	pair, _, err := p.write(file, request, key, by)
	return pair, err
}

func (p *PKI) newServiceAccountKey() (KeyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return KeyPair{}, err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return KeyPair{}, err
	}
	pair := KeyPair{Cert: filepath.Join(p.dir, "sa.pub"), Key: filepath.Join(p.dir, "sa.key")}
	if err := writePEM(pair.Cert, "PUBLIC KEY", public); err != nil {
		return KeyPair{}, err
	}
	return pair, writeKey(pair.Key, key)
}

// write signs template and puts certificate and key on disk.
func (p *PKI) write(file string, template *x509.Certificate, key *ecdsa.PrivateKey, by *authority) (KeyPair, *x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, by.cert, key.Public(), by.key)
	if err != nil {
		return KeyPair{}, nil, fmt.Errorf("certificate %s: %w", file, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return KeyPair{}, nil, fmt.Errorf("certificate %s: %w", file, err)
	}
	pair := KeyPair{Cert: filepath.Join(p.dir, file+".crt"), Key: filepath.Join(p.dir, file+".key")}
	if err := writePEM(pair.Cert, "CERTIFICATE", der); err != nil {
		return KeyPair{}, nil, err
	}
	return pair, cert, writeKey(pair.Key, key)
}

func unsigned(name string, groups []string) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		panic(err) // the system's randomness does not fail
	}
	return &x509.Certificate{
		SerialNumber: serial.Add(serial, big.NewInt(1)),
		Subject:      pkix.Name{CommonName: name, Organization: groups},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(path, "PRIVATE KEY", der)
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
