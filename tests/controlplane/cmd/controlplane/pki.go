package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// pki is a throw-away certificate authority: it signs the serving certificates of all
// parts and the client certificates that give each part (and the admin) its identity.
type pki struct {
	dir  string
	cert *x509.Certificate
	key  crypto.Signer
	pem  []byte // the CA certificate, for kubeconfigs and webhook caBundles
}

func newPKI(dir string) (*pki, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	p := &pki{dir: dir}
	tmpl := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "controlplane-ca"},
		DNSNames:              []string{"kubeflow-trainer-ca"}, // the name that Trainer 2.0 looks for in its authority
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	// RSA, as Trainer 2.0 reads its authority's key as such; all other keys are quicker ones.
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	p.key = key
	if err := p.write("ca.key", "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key)); err != nil {
		return nil, err
	}
	if p.cert, err = p.sign("ca", tmpl, key.Public()); err != nil {
		return nil, err
	}
	p.pem = pemBlock("CERTIFICATE", p.cert.Raw)
	return p, nil
}

// server writes NAME.crt and NAME.key, a serving certificate for 127.0.0.1.
func (p *pki) server(name string) error {
	return p.issue(name, &x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 0, 0, 1)},
		DNSNames: []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
			"kubeflow-trainer-controller-manager.kubeflow-system.svc"}, // which Trainer 2.0 looks for
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
}

// client writes NAME.crt and NAME.key: user and groups are what RBAC will see.
func (p *pki) client(name, user string, groups ...string) error {
	return p.issue(name, &x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// issue makes a key, signs the template and writes both.
func (p *pki) issue(name string, tmpl *x509.Certificate) error {
	key, err := p.writeKey(name)
	if err != nil {
		return err
	}
	_, err = p.sign(name, tmpl, key.Public())
	return err
}

// sign writes NAME.crt; the first one, the authority's, is signed by itself.
func (p *pki) sign(name string, tmpl *x509.Certificate, key crypto.PublicKey) (cert *x509.Certificate, err error) {
	if tmpl.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		return nil, err
	}
	tmpl.NotBefore = time.Now().Add(-time.Hour)
	tmpl.NotAfter = time.Now().AddDate(1, 0, 0) // Trainer 2.0 renews what has 90 days or less
	parent := p.cert
	if parent == nil {
		parent = tmpl
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, key, p.key)
	if err != nil {
		return nil, err
	}
	if cert, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	return cert, p.write(name+".crt", "CERTIFICATE", der)
}

// writeKey makes NAME.key (also used alone, for the service-account token key).
func (p *pki) writeKey(name string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, p.write(name+".key", "EC PRIVATE KEY", der)
}

func (p *pki) write(file, kind string, der []byte) error {
	return os.WriteFile(p.path(file), pemBlock(kind, der), 0o600)
}

func (p *pki) path(file string) string { return filepath.Join(p.dir, file) }

func b64(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

func pemBlock(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// kubeconfig issues a client certificate and writes FILE, a kubeconfig with everything inlined.
func (p *pki) kubeconfig(file, server, name, user string, groups ...string) error {
	if err := p.client(name, user, groups...); err != nil {
		return err
	}
	crt, err := os.ReadFile(p.path(name + ".crt"))
	if err != nil {
		return err
	}
	key, err := os.ReadFile(p.path(name + ".key"))
	if err != nil {
		return err
	}
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: controlplane
clusters:
- name: controlplane
  cluster: {server: "%s", certificate-authority-data: %s}
users:
- name: %s
  user: {client-certificate-data: %s, client-key-data: %s}
contexts:
- name: controlplane
  context: {cluster: controlplane, user: %s, namespace: default}
`, server, b64(p.pem), name, b64(crt), b64(key), name)
	return os.WriteFile(file, []byte(text), 0o600)
}
