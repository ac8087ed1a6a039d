package roll

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"clusterctl/tests/lab/cluster"
	"clusterctl/tests/programs/webimage"
)

// Addresses of the lab's registries, on its bridge: one with a private CA and a user, one without TLS, and one whose
// user and password a credential provider returns.
const (
	bridgeAddress    = "10.99.0.1"
	privateRegistry  = bridgeAddress + ":5000"
	plainRegistry    = bridgeAddress + ":5001"
	providedRegistry = bridgeAddress + ":5002"
)

const registriesConfig = `variable "password" {
  type      = string
  sensitive = true
}

cluster "registries" {
  runtime {
    registry "10.99.0.1:5000" {
      ca       = file("ca.pem")
      username = "nodes"
      password = var.password
    }
    registry "images.example" { mirrors = ["https://10.99.0.1:5000"] }
    registry "10.99.0.1:5001" { plain_http = true }
    registry "10.99.0.1:5002" { plain_http = true }
    credential_provider "lab" {
      program      = "/opt/providers/lab"
      match_images = ["10.99.0.1:5002"]
    }
  }
}

machine "c1" {
  name    = "c1"
  address = "10.99.0.11"
  roles   = ["control-plane", "node"]
  ssh { user = "root" }
}

machine "n1" {
  name    = "n1"
  address = "10.99.0.21"
  roles   = ["node"]
  ssh { user = "root" }
}
`

// providerScript is a script that installs a credential provider, as cloud providers ship them.
const providerScript = `set -e
umask 022
mkdir -p /opt/providers
cat >/opt/providers/lab <<'PROGRAM'
#!/bin/sh
cat >/dev/null
echo '{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"CredentialProviderResponse",
"cacheKeyType":"Registry","auth":{"10.99.0.1:5002":{"username":"provided","password":"also secret"}}}'
PROGRAM
chmod 755 /opt/providers/lab`

// registriesEnv is the environment variable with the folder from which TestServeRegistries serves.
const registriesEnv = "LAB_REGISTRIES"

// TestServeRegistries serves the registries in the lab's network. TestNodesPullFromDeclaredRegistries starts it as a
// process. It does nothing if registriesEnv is not set.
func TestServeRegistries(t *testing.T) {
	folder := os.Getenv(registriesEnv)
	if folder == "" {
		return
	}
	image, err := tarball.ImageFromPath(filepath.Join(folder, "images/web.tar"), nil)
	if err != nil {
		t.Fatal(err)
	}
	handler := registry.New()
	if err := pushImage(handler, image); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(folder, "server.pem"), filepath.Join(folder, "server.key"))
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error)
	for address, h := range map[string]http.Handler{
		privateRegistry: requireAuth(handler, "nodes", "very secret"), plainRegistry: handler,
		providedRegistry: requireAuth(handler, "provided", "also secret"),
	} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if address == privateRegistry {
			l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})
		}
		go func() { failed <- http.Serve(l, h) }()
	}
	go func() { // the standard input ends when the parent process exits
		_, err := io.Copy(io.Discard, os.Stdin)
		failed <- errors.Join(io.EOF, err)
	}()
	fmt.Println("serving")
	if err := <-failed; !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
}

func requireAuth(h http.Handler, user, password string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u, p, ok := r.BasicAuth(); !ok || u != user || p != password {
			w.Header().Set("WWW-Authenticate", `Basic realm="lab"`)
			http.Error(w, "unauthorized", http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// pushImage stores an image as web:1 in a registry.
func pushImage(h http.Handler, image v1.Image) error {
	send := func(method, path, kind string, content []byte) error {
		r := httptest.NewRequest(method, path, bytes.NewReader(content))
		r.Header.Set("Content-Type", kind)
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != http.StatusCreated {
			return fmt.Errorf("%s %s: %d %s", method, path, w.Code, w.Body)
		}
		return nil
	}
	blob := func(digest v1.Hash, content []byte) error {
		return send(http.MethodPost, "/v2/web/blobs/uploads/?digest="+digest.String(), "application/octet-stream",
			content)
	}
	layers, err := image.Layers()
	if err != nil {
		return err
	}
	for _, l := range layers {
		digest, err := l.Digest()
		if err != nil {
			return err
		}
		stream, err := l.Compressed()
		if err != nil {
			return err
		}
		content, err := io.ReadAll(stream)
		if err = errors.Join(err, stream.Close()); err != nil {
			return err
		}
		if err := blob(digest, content); err != nil {
			return err
		}
	}
	name, err := image.ConfigName()
	if err != nil {
		return err
	}
	settings, err := image.RawConfigFile()
	if err != nil {
		return err
	}
	if err := blob(name, settings); err != nil {
		return err
	}
	manifest, err := image.RawManifest()
	if err != nil {
		return err
	}
	kind, err := image.MediaType()
	if err != nil {
		return err
	}
	return send(http.MethodPut, "/v2/web/manifests/1", string(kind), manifest)
}

// writeAuthority writes a private CA, and a server certificate of that CA for the lab's bridge.
func writeAuthority(c *cluster.Cluster) error {
	issue := func(template, parent *x509.Certificate, signer *ecdsa.PrivateKey) (*ecdsa.PrivateKey, []byte, error) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, nil, err
		}
		if signer == nil {
			signer = key
		}
		template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(time.Now().UnixNano()),
			time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
		der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
		return key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), err
	}
	ca := &x509.Certificate{Subject: pkix.Name{CommonName: "lab"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign}
	signer, caText, err := issue(ca, ca, nil)
	if err != nil {
		return err
	}
	server := &x509.Certificate{Subject: pkix.Name{CommonName: bridgeAddress},
		IPAddresses: []net.IP{net.ParseIP(bridgeAddress)},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	key, text, err := issue(server, ca, signer)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return errors.Join(c.Write("ca.pem", string(caText)), c.Write("server.pem", string(text)),
		c.Write("server.key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))))
}

// Nodes pull images for pods without pull secrets from four registries: a private one with its CA and the nodes'
// credentials, a mirror, one without TLS, and one with the credentials of a credential provider.
// Proves S25.
func TestNodesPullFromDeclaredRegistries(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	c, err := cluster.New(ctx, cluster.Options{Name: fmt.Sprintf("registries-%d", os.Getpid()), Log: os.Stderr,
		Machines: []string{"c1=10.99.0.11", "n1=10.99.0.21"},
		Files: map[string]string{"cluster.hcl": registriesConfig,
			"secret.auto.clustervars": "password = \"very secret\"\n"}, HasPrograms: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Down(context.Background()); err != nil {
			t.Errorf("take the lab down: %v", err)
		}
	})
	if err := errors.Join(writeAuthority(c), webimage.Write(c.Bundle,
		filepath.Join(c.Folder, "images/web.tar"))); err != nil {
		t.Fatal(err)
	}
	defer serveRegistries(ctx, t, c)()
	if out, err := c.Clusterctl(ctx, "plan").CombinedOutput(); err == nil || !strings.Contains(string(out),
		"/opt/providers/lab does not exist") {
		t.Errorf("plan without the credential provider: error %v, want one that names the program\n%s", err, out)
	}
	for _, m := range c.Lab.Machines {
		if _, err := m.Run(ctx, providerScript); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	if err := c.Apply(ctx, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if strings.Contains(out.String(), "very secret") {
		t.Error("apply shows the password")
	}
	for i, image := range []string{privateRegistry + "/web:1", "images.example/web:1", plainRegistry + "/web:1",
		providedRegistry + "/web:1"} {
		pod := fmt.Sprintf("web-%d", i)
		if out, err := c.KubectlCommand(ctx, "run", pod, "--image="+image,
			"--image-pull-policy=Always").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if out, err := c.KubectlCommand(ctx, "wait", "--for=condition=Ready", "pod/"+pod,
			"--timeout=60s").CombinedOutput(); err != nil {
			output, _ := c.KubectlCommand(ctx, "get", "events", "--field-selector=involvedObject.name="+
				pod).CombinedOutput()
			t.Errorf("%s: %v\n%s%s", image, err, out, output)
		}
	}
	if out, err := c.Clusterctl(ctx, "plan", "-detailed-exitcode").CombinedOutput(); err != nil {
		t.Errorf("the plan after apply is not empty: %v\n%s", err, out)
	}
	// Removing the blocks removes all files that apply wrote for them.
	if err := c.Write("cluster.hcl", strings.Replace(registriesConfig,
		registriesConfig[strings.Index(registriesConfig, "  runtime {"):strings.Index(registriesConfig,
			"}\n\nmachine")], "",
		1)); err != nil {
		t.Fatal(err)
	}
	if out, err := c.Clusterctl(ctx, "apply", "-auto-approve").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, m := range c.Lab.Machines {
		left, err := m.Run(ctx, "ls -d /etc/containerd/certs.d/*/ /var/lib/kubelet/config.json "+
			"/etc/kubernetes/credential-providers.yaml 2>/dev/null || true")
		if err != nil || strings.TrimSpace(left) != "" {
			t.Errorf("%s still has %s, %v", m.Name, left, err)
		}
	}
}

// serveRegistries runs the registries, and returns a function that stops them.
func serveRegistries(ctx context.Context, t *testing.T, c *cluster.Cluster) (stop func()) {
	serve := c.Lab.Command(ctx, os.Args[0], "-test.run", "^TestServeRegistries$")
	serve.Env, serve.Stderr = append(os.Environ(), registriesEnv+"="+c.Folder), os.Stderr
	input, err := serve.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := serve.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	prefix := make([]byte, len("serving"))
	if _, err := io.ReadFull(output, prefix); err != nil || string(prefix) != "serving" {
		t.Fatalf("the registries do not serve: %q, %v", prefix, err)
	}
	return func() {
		_ = input.Close()
		if err := serve.Wait(); err != nil {
			t.Errorf("the registries: %v", err)
		}
	}
}
