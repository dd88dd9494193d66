package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// credentials are what the API server is started with, as files in dir.
type credentials struct {
	dir    string
	ca     []byte // PEM, for kubeconfigs
	tokens map[string]string
}

// user is one who may call the API server, by a token.
type user struct {
	name, group string
}

// users of every cluster. Admin may do everything; Reader has no right but
// those that a test gives it.
var users = []user{
	{Admin, "system:masters"},
	{Reader, ""},
	{proxyUser, ""}, // bound to ClusterRole system:node-proxier by the API server itself
}

// The users that a test acts as.
const (
	Admin  = "vipwalk-test-admin"
	Reader = "vipwalk-test-reader"

	proxyUser = "system:kube-proxy"
)

// newCredentials makes a CA, a serving certificate for the addresses, the
// service accounts' key and a token for each user.
func newCredentials(dir string, addresses []net.IP) (*credentials, error) {
	c := &credentials{dir: dir, tokens: map[string]string{}}
	if err := c.makeCertificates(addresses); err != nil {
		return nil, fmt.Errorf("making certificates: %w", err)
	}
	if err := c.makeServiceAccountKey(); err != nil {
		return nil, fmt.Errorf("making the service accounts' key: %w", err)
	}
	var csv string
	for i, u := range users {
		token := make([]byte, 16)
		rand.Read(token)
		c.tokens[u.name] = hex.EncodeToString(token)
		csv += fmt.Sprintf("%s,%s,%d,%q\n", c.tokens[u.name], u.name, i, u.group)
	}
	return c, os.WriteFile(c.file("tokens.csv"), []byte(csv), 0o600)
}

func (c *credentials) file(name string) string { return filepath.Join(c.dir, name) }

func (c *credentials) makeCertificates(addresses []net.IP) error {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	now := time.Now()
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "vipwalk test cluster"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(48 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	if err != nil {
		return err
	}
	c.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER})
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	serving := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "kube-apiserver"},
		NotBefore: ca.NotBefore, NotAfter: ca.NotAfter, IPAddresses: addresses,
		DNSNames:    []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, KeyUsage: x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, serving, ca, key.Public(), caKey)
	if err != nil {
		return err
	}
	if err := writeKey(c.file("apiserver.key"), key); err != nil {
		return err
	}
	return os.WriteFile(c.file("apiserver.crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600)
}

func (c *credentials) makeServiceAccountKey() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	if err := writeKey(c.file("sa.key"), key); err != nil {
		return err
	}
	return os.WriteFile(c.file("sa.pub"), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), 0o600)
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}
